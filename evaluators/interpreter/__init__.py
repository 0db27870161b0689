"""Candidates without a GPU: their kernels run under Triton's interpreter, in the sandbox.

`run.interpret` is the judge's side and `job.run` the child's. `shims` gives the interpreter what ordinary kernels need
and it lacks, `device` lets host code that asks for a GPU go on without one. A kernel that the interpreter cannot run
is *unsupported*, never wrong.
"""
