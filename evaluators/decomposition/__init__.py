"""A *decomposition* is a compiled model taken apart: what Inductor generated for it, step by step, and the parts of it
that can be searched on their own.

Inductor's *output* (`output`) is a list of *steps*: allocations, views, launches of its Triton kernels, calls of
libraries. A *part* is a run of neighbouring launches with the tensors that go in and come out (`parts`); it becomes a
problem with a runnable seed (`problems`), and the winner goes back in its place (`stitch`). Libraries' calls stay.
Importing this, `output`, `stitch` or `classify` imports neither torch nor triton; `capture` needs a GPU.
"""
