"""A kernel of Inductor as plain Triton: the same code without torch._inductor.

What the kernel calls of `torch._inductor.runtime.triton_helpers` is copied beside it under names of its own. Edits are
splices of text, so that the kernel reads as Inductor wrote it.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from evaluators.decomposition.access import split_in_place
from evaluators.decomposition.errors import DecompositionError
from evaluators.decomposition.fixed_sizes import fixed_sizes
from evaluators.decomposition.splice import Edit, segment
from evaluators.decomposition.steps import Kernel
from evaluators.gates.reachable import is_kernel

IMPORTS = ("import torch", "import triton", "import triton.language as tl")
_LIBDEVICE = "from triton.language.extra import libdevice"
_LOG2 = "from triton.language.standard import _log2"
_COPIED = "inductor_"  # what names of copied functions begin with


class Plain(NamedTuple):
    """Definitions by name in an order in which each comes after what it needs, and imports beyond `IMPORTS`."""

    definitions: dict[str, str]
    imports: tuple[str, ...]


def plain(kernel: Kernel, *, in_place: bool) -> Plain:
    """The kernel and all that it calls.

    Args:
        in_place: whether a tensor that is changed in place stays one argument. If not, what it held before and what it
            holds after are two (`before_ptr0`, `after_ptr0`), wherever the kernel can be split so, and sizes that are
            written into the kernel are compile-time parameters.

    Raises:
        DecompositionError: it calls something that cannot be copied.
    """
    source = kernel.source if in_place else split_in_place(kernel)
    definitions: dict[str, str] = {}
    imports: set[str] = set()
    for function in ast.parse(source).body:
        if not isinstance(function, ast.FunctionDef) or not is_kernel(function):
            continue
        edits = []
        for node, name in _foreign(function, {"triton_helpers"}):
            definitions |= _copied(name, imports)
            edits.append(Edit.of(node, _COPIED + name.lstrip("_")))
        edits += _spelt_out(function, imports)
        edits += [] if in_place else fixed_sizes(function)
        definitions[function.name] = "@triton.jit\n" + segment(source, function, edits)
    return Plain(definitions, tuple(sorted(imports)))


def definitions_text(parts: list[Plain]) -> str:
    """The definitions of several kernels, each once.

    Raises:
        DecompositionError: two of them are different and have one name.
    """
    found: dict[str, str] = {}
    for part in parts:
        for name, text in part.definitions.items():
            if found.setdefault(name, text) != text:
                raise DecompositionError(f"two kernels of the graph call different functions {name}")
    return "\n\n\n".join(text.strip("\n") for text in found.values()) + "\n"


def import_text(parts: list[Plain]) -> str:
    """Every import that the definitions need."""
    return "\n".join([*IMPORTS, *sorted({line for part in parts for line in part.imports})]) + "\n"


def _foreign(function: ast.AST, owners: set[str]) -> Iterator[tuple[ast.Attribute, str]]:
    """Attributes of these names: `triton_helpers.maximum`."""
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in owners:
            yield node, node.attr


def _spelt_out(function: ast.AST, imports: set[str]) -> list[Edit]:
    """`tl_math.f` is `tl.math.f`; libdevice needs its import."""
    if any(_foreign(function, {"libdevice"})):
        imports.add(_LIBDEVICE)
    return [Edit.of(node, f"tl.math.{name}") for node, name in _foreign(function, {"tl_math"})]


# ---------------------------------------------------------------------------------------------------- copied functions


@functools.cache
def _library() -> tuple[str, dict[str, ast.stmt]]:
    """The text of the functions that Inductor's kernels call, and its definitions by name."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        raise DecompositionError("torch is not installed")
    text = (Path(spec.origin).parent / "_inductor" / "runtime" / "triton_helpers.py").read_text()
    found: dict[str, ast.stmt] = {}
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.FunctionDef):
            found[statement.name] = statement
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            found[statement.target.id] = statement
    return text, found


def _copied(name: str, imports: set[str]) -> dict[str, str]:
    """The function with what it calls first, all renamed."""
    text, library = _library()
    function = library.get(name)
    if not isinstance(function, ast.FunctionDef) or not is_kernel(function):
        raise DecompositionError(f"a kernel calls triton_helpers.{name}, which is no Triton function")
    found: dict[str, str] = {}
    edits = [Edit(*_name_at(text, function), _COPIED + name.lstrip("_"))]
    for node in ast.walk(function):
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load) or node.id in _locals(function):
            continue
        if node.id == "_log2":
            imports.add(_LOG2)
        elif node.id == "math":
            edits.append(Edit.of(node, "tl.math"))
        elif node.id in library and node.id != name:
            found |= _copied(node.id, imports)
            edits.append(Edit.of(node, _COPIED + node.id.lstrip("_")))
    if any(_foreign(function, {"libdevice"})):
        imports.add(_LIBDEVICE)
    found[_COPIED + name.lstrip("_")] = "@triton.jit\n" + segment(text, function, edits)
    return found


def _locals(function: ast.FunctionDef) -> set[str]:
    stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return stored | {a.arg for a in function.args.args}


def _name_at(text: str, function: ast.FunctionDef) -> tuple[int, int, int, int]:
    """Where the function's name stands in its `def`."""
    column = text.splitlines()[function.lineno - 1].index(function.name, function.col_offset)
    return function.lineno, column, function.lineno, column + len(function.name)
