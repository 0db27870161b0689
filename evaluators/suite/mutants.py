"""Wrong programs that correctness must refuse: each is a problem's seed with one more kernel that spoils its outputs.

They are legal programs (host code allocates and launches), so nothing but the comparison with the reference can tell.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from db.errors import ProblemError
from db.records import Problem

_ZEROS = """
@triton.jit
def zeros_kernel(out_ptr, n_elements, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.zeros((BLOCK,), dtype=out_ptr.dtype.element_ty), mask=offsets < n_elements)
"""

_IDENTITY = """
@triton.jit
def identity_kernel(in_ptr, out_ptr, n_inputs, n_elements, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    value = tl.load(in_ptr + offsets % n_inputs, mask=mask)
    tl.store(out_ptr + offsets, value.to(out_ptr.dtype.element_ty), mask=mask)
"""

_WRONG_ELEMENT = """
@triton.jit
def wrong_element_kernel(out_ptr, index):
    value = tl.load(out_ptr + index)
    if out_ptr.dtype.element_ty.is_floating():
        tl.store(out_ptr + index, value + 1.0)
    else:
        tl.store(out_ptr + index, value ^ 64)
"""

_HALF = """
@triton.jit
def half_kernel(in_ptr, out_ptr, n_elements, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    value = tl.load(in_ptr + offsets, mask=mask)
    if out_ptr.dtype.element_ty.is_floating():
        value = value.to(tl.float16).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + offsets, value, mask=mask)
"""


def mutants(problem: Problem) -> dict[str, str]:
    """Wrong programs by name: `zeros`, `identity` (the first input in the shape and dtype of the outputs),
    `one_wrong_element` (in the middle of the first output) and, for problems in float32, `half_precision` (inputs and
    outputs rounded to float16).

    Raises:
        ProblemError: the problem has no seed whose host code returns plain names, as those of the suite do.
    """
    if not problem.seeds:
        raise ProblemError(f"problem {problem.name!r} has no seed to make mutants of", "give a seed file")
    seed = _Seed(problem.seeds[0], problem.entry_point)
    first, outputs = seed.inputs[0], seed.outputs
    made = {
        "zeros": seed.spoilt(_ZEROS, after=[_over("zeros_kernel", o, o) for o in outputs]),
        "identity": seed.spoilt(
            _IDENTITY, after=[_over("identity_kernel", f"{first}, {o}, {first}.numel()", o) for o in outputs]
        ),
        "one_wrong_element": seed.spoilt(
            _WRONG_ELEMENT, after=[f"wrong_element_kernel[(1,)]({outputs[0]}, {outputs[0]}.numel() // 2)"]
        ),
    }
    if "float32" in problem.tolerances:
        made["half_precision"] = seed.spoilt(
            _HALF,
            before=[line for name in seed.inputs for line in _rounded(name)],
            after=[_over("half_kernel", f"{o}, {o}", o) for o in outputs],
        )
    return made


def _over(kernel: str, arguments: str, tensor: str) -> str:
    """A launch of one program for every 1024 elements of a tensor."""
    return f"{kernel}[(triton.cdiv({tensor}.numel(), 1024),)]({arguments}, {tensor}.numel(), BLOCK=1024)"


def _rounded(name: str) -> list[str]:
    """Lines that put a rounded copy of an input in its place."""
    copy = f"half_{name}"
    return [f"{copy} = torch.empty_like({name})", _over("half_kernel", f"{name}, {copy}", name), f"{name} = {copy}"]


class _Seed:
    """A seed's text and where its host function begins and returns."""

    def __init__(self, source: str, entry_point: str) -> None:
        function = _host_function(ast.parse(source), entry_point)
        returned = function.body[-1]
        value = returned.value if isinstance(returned, ast.Return) else None
        names = value.elts if isinstance(value, ast.Tuple) else [value]
        if not all(isinstance(name, ast.Name) for name in names):
            raise ProblemError("the seed's host function must end by returning names", "return out, not an expression")
        self.inputs = [a.arg for a in function.args.args if a.arg != "self"]
        self.outputs = [name.id for name in names]
        self._lines = source.splitlines()
        self._first, self._return = function.body[0].lineno - 1, returned.lineno - 1
        self._indent = " " * returned.col_offset

    def spoilt(self, kernel: str, *, before: Sequence[str] = (), after: Sequence[str]) -> str:
        """The seed with a kernel added, and lines put before its host code and before its return."""
        lines = [*self._lines[: self._first], *(self._indent + line for line in before)]
        lines += [*self._lines[self._first : self._return], *(self._indent + line for line in after)]
        class_line = next(
            i for i, line in enumerate(lines) if line.startswith(("class ModelNew", "def kernel_function"))
        )
        lines[class_line:class_line] = [*kernel.strip("\n").split("\n"), "", ""]
        return "\n".join([*lines, *self._lines[self._return :]]) + "\n"


def _host_function(tree: ast.Module, entry_point: str) -> ast.FunctionDef:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == entry_point:
            return node
        if isinstance(node, ast.ClassDef) and node.name == entry_point:
            return next(n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "forward")
    raise ProblemError(f"the seed defines no {entry_point}", "give a seed that does")
