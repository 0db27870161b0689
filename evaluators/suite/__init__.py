"""The built-in suite: one KernelBench-style file for each problem, with a plain Triton seed in `seeds/`.

A problem file defines `Model`, `get_inputs` and `get_init_inputs`, its sizes at module level, `SMALL` (the sizes that
fit the interpreter) and `TOLERANCES` (by output dtype: rtol, atol). Inputs are signed, outputs are of order one and
weights are random, so that a program that drops a term, a sign or a parameter is seen. `mutants` makes the wrong
programs that prove it. The files are read as text: nothing here is imported by the loader.
"""
