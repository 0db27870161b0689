"""Which tensors a kernel reads and which it writes, and how one that is changed in place is made two."""

from __future__ import annotations

import ast
from typing import NamedTuple

from evaluators.decomposition.kernels import definition, pointers
from evaluators.decomposition.splice import Edit, spliced
from evaluators.decomposition.steps import Kernel
from evaluators.gates.reachable import dotted_name

IN_PLACE = "in_out_ptr"
BEFORE, AFTER = "before_ptr", "after_ptr"


class Access(NamedTuple):
    """Parameters, in order. `reads` counts what a tensor held before the launch, not what the kernel put there."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    is_split: bool  # every tensor that is both can be made two


class _Uses(NamedTuple):
    """Where a parameter is used: names in the pointer of a load, of a store, and elsewhere."""

    loads: list[ast.Name]
    stores: list[ast.Name]
    others: list[ast.Name]
    has_atomics: bool


def access_of(kernel: Kernel) -> Access:
    """Loads count as reading what was there before when they stand above the first store to the same tensor."""
    function = definition(kernel.source, kernel.name)
    uses = {name: _uses(function, name) for name in pointers(kernel)}
    reads = tuple(name for name, use in uses.items() if _reads(name, use))
    writes = tuple(name for name, use in uses.items() if _writes(name, use))
    both = [uses[name] for name in reads if name in writes]
    return Access(reads, writes, is_split=not any(use.others or use.has_atomics for use in both))


def split_in_place(kernel: Kernel) -> str:
    """The source with `before_ptrN` and `after_ptrN` in the place of each `in_out_ptrN` that is read and written."""
    function = definition(kernel.source, kernel.name)
    edits = []
    for argument in function.args.args:
        use = _uses(function, argument.arg)
        if not is_two(kernel, argument.arg):
            continue
        before, after = names_of_two(argument.arg)
        edits.append(Edit.of(argument, f"{before}, {after}"))
        edits += [Edit.of(name, after if _is_after(name, use) else before) for name in use.loads]
        edits += [Edit.of(name, after) for name in use.stores]
    return spliced(kernel.source, edits)


def is_two(kernel: Kernel, parameter: str) -> bool:
    """Whether a parameter is read and written, so that `split_in_place` makes it two."""
    access = access_of(kernel)
    return access.is_split and parameter in access.reads and parameter in access.writes


def names_of_two(parameter: str) -> tuple[str, str]:
    """What the two are called: `in_out_ptr3` becomes `before_ptr3` and `after_ptr3`."""
    number = parameter.removeprefix(IN_PLACE) if parameter.startswith(IN_PLACE) else f"_{parameter}"
    return BEFORE + number, AFTER + number


def _uses(function: ast.FunctionDef, parameter: str) -> _Uses:
    found = _Uses([], [], [], has_atomics=False)
    pointed: set[ast.Name] = set()
    atomics = False
    for call in (n for n in ast.walk(function) if isinstance(n, ast.Call) and n.args):
        operation = (dotted_name(call.func) or "").removeprefix("tl.")
        names = [n for n in ast.walk(call.args[0]) if isinstance(n, ast.Name) and n.id == parameter]
        if operation == "load":
            found.loads.extend(names)
        elif operation == "store":
            found.stores.extend(names)
        elif operation.startswith("atomic_"):
            atomics = atomics or bool(names)
        else:
            continue
        pointed.update(names)
    everywhere = (n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == parameter)
    found.others.extend(n for n in everywhere if n not in pointed)
    return found._replace(has_atomics=atomics)


def _is_after(load: ast.Name, use: _Uses) -> bool:
    """Whether a load stands below the first store: what it loads, the kernel has put there."""
    first = min(((s.lineno, s.col_offset) for s in use.stores), default=None)
    return first is not None and (load.lineno, load.col_offset) > first


def _reads(name: str, use: _Uses) -> bool:
    if use.has_atomics or (use.others and not name.startswith("out_ptr")):
        return True
    return any(not _is_after(load, use) for load in use.loads)


def _writes(name: str, use: _Uses) -> bool:
    return (
        bool(use.stores) or use.has_atomics or (bool(use.others) and name.startswith(("out_ptr", IN_PLACE, "ws_ptr")))
    )
