"""Scans that Inductor splits over programs, as loops over tiles.

Inductor gives every stretch of every line to a program of its own, which waits for those before it (decoupled
look-back: Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back", 2016). That needs memory
filled with zeros, through which programs talk, and a program has one line: where neighbours in memory belong to
different lines, each element costs a sector of 32 bytes. Here a program takes several lines and goes along them tile by
tile with a carry.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from evaluators.decomposition.kernels import definition
from evaluators.decomposition.steps import Configuration, Kernel, Launch, Output
from evaluators.gates.reachable import dotted_name

HEURISTICS = "split_scan"
MIN_LINES = 128  # with fewer, most of a GPU has nothing to do while one program goes along a line
TILE = 2048  # elements of a first program's tile
LINES_APART = 16  # of them lines, where these are neighbours in memory: two sectors of float32

_LOOK_BACK = "exclusive_scan_decoupled_lookback"
_WORKSPACE = "ws_ptr"
_HEAD = """\
xoffset = tl.program_id(0){wide} * XBLOCK
xindex = xoffset + tl.arange(0, XBLOCK)[:, None]{wide}
xmask = xindex < xnumel
r0_base = tl.arange(0, R0_BLOCK)[None, :]{wide}"""
_WIDE = ".to(tl.int64)"  # where there are more elements than 32 bits count
_REPLACED = frozenset({"XBLOCK", "xoffset", "xindex", "xmask", "r0_offset", "r0_index", "r0_mask"})
_LOOP = """\
for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
    r0_index = r0_offset + r0_base
    r0_mask = r0_index < r0_numel"""
_OF_LOOP = frozenset({"r0_offset", "r0_index", "r0_mask"})


class Loops(NamedTuple):
    """An output with loops, and where a search over each loop's tiles may begin."""

    output: Output
    configurations: dict[str, Configuration]


def with_loops(output: Output) -> Loops:
    """A loop in the place of every split scan that can be written as one. Steps keep their numbers; memory through
    which programs talked is no argument any more."""
    found = {name: looped(kernel) for name, kernel in output.kernels.items()}
    kernels = {name: kernel for name, kernel in found.items() if kernel is not None}
    steps = [
        _without_workspace(step, output.kernels[step.kernel])
        if isinstance(step, Launch) and step.kernel in kernels
        else step
        for step in output.steps
    ]
    changed = {"kernels": {**output.kernels, **kernels}, "steps": tuple(steps)}
    first = {name: first_configuration(output.kernels[name]) for name in kernels}
    return Loops(output.model_copy(update=changed), first)


def first_configuration(kernel: Kernel) -> Configuration:
    """Tiles for the loop of a split scan."""
    n_lines = LINES_APART if "ReductionHint.OUTER" in kernel.source else 1
    length = kernel.size_hints.get("r0_", TILE)  # a power of two
    constants = {"XBLOCK": n_lines, "R0_BLOCK": min(length, TILE // n_lines)}
    return Configuration(constants=constants, num_warps=4, num_stages=1)


def looped(kernel: Kernel) -> Kernel | None:
    """The kernel as a loop. None where it is no split scan, has few lines, or is written in a way not known here."""
    if kernel.heuristics != HEURISTICS or kernel.size_hints.get("x", 0) < MIN_LINES or "tl.atomic_" in kernel.source:
        return None
    function = definition(kernel.source, kernel.name)
    scans = list(_scans(function))
    if not scans or any(not scan.dtype for scan in scans):
        return None
    workspaces = {name for name in kernel.parameters if name.startswith(_WORKSPACE)}
    loop = _Writer(scans, workspaces).written(function)
    return kernel.model_copy(
        update={
            "source": _with_function(kernel.source, function, loop),
            "parameters": tuple(name for name in kernel.parameters if name not in workspaces),
            "types": {name: text for name, text in kernel.types.items() if name not in workspaces},
            "constexprs": ("XBLOCK", *kernel.constexprs),
            "heuristics": "reduction",
            "mutated": tuple(name for name in kernel.mutated if name not in workspaces),
            "grid_type": "Grid1D",
        }
    )


class _Scan(NamedTuple):
    """What is bound to what in one scan: the whole of this program's stretch, and of all before it."""

    stretch: str
    before: str
    combine: str
    dtype: str  # as Triton spells it; empty where it is not seen


def _scans(function: ast.FunctionDef) -> Iterator[_Scan]:
    bound = {name: s.value for s in function.body if isinstance(s, ast.Assign) and (name := _target(s))}
    for name, value in bound.items():
        match value:
            case ast.Call(args=[_, ast.Name(id=stretch), _, ast.Name(id=combine), *_]) if _is_look_back(value):
                yield _Scan(stretch, name, combine, _dtype(bound, stretch))


def _is_look_back(value: ast.AST | None) -> bool:
    called = (dotted_name(value.func) or "") if isinstance(value, ast.Call) else ""
    return called.rpartition(".")[2].startswith(_LOOK_BACK)


def _dtype(bound: dict[str, ast.expr], stretch: str) -> str:
    """Of `tl.reduce(v, ...)` where `v = tl.broadcast_to(u, ...)` and `u = x.to(dtype)`."""
    match bound.get(stretch):
        case ast.Call(args=[ast.Name(id=whole), *_]):
            match bound.get(whole):
                case ast.Call(args=[ast.Name(id=value), *_]):
                    match bound.get(value):
                        case ast.Call(func=ast.Attribute(attr="to"), args=[dtype]):
                            return ast.unparse(dtype)
    return ""


def _target(statement: ast.stmt) -> str:
    """The one name that a statement binds, or the empty string."""
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        return target.id if isinstance(target, ast.Name) else ""
    return ""


class _Writer:
    """Writes the loop: what is the same for every tile before it, the rest inside."""

    def __init__(self, scans: list[_Scan], workspaces: set[str]) -> None:
        self._scans = scans
        self._gone = set(workspaces)  # names of what programs tell each other
        self._workspaces = frozenset(workspaces)
        self._of_loop = set(_OF_LOOP) | {scan.before for scan in scans}

    def written(self, function: ast.FunctionDef) -> str:
        before, inside = self._sorted(function)
        before += [f"{s.before} = tl.full([XBLOCK, 1], 0, {s.dtype})" for s in self._scans]
        carried = "tl.where(r0_offset == 0, {s.stretch}, {s.combine}({s.before}, {s.stretch}))"
        inside += [f"{s.before} = {carried.format(s=s)}" for s in self._scans]
        arguments = [ast.unparse(a) for a in function.args.args if a.arg not in self._workspaces]
        arguments.insert(len(arguments) - 1, "XBLOCK: tl.constexpr")
        lines = [*_lines(before), *_LOOP.splitlines(), *(f"    {line}" for line in _lines(inside))]
        head = f"@triton.jit\ndef {function.name}({', '.join(arguments)}):\n"
        return head + "".join(f"    {line}\n" for line in lines)

    def _sorted(self, function: ast.FunctionDef) -> tuple[list[str], list[str]]:
        """Statements before the loop and inside it."""
        before: list[str] = []
        inside: list[str] = []
        for statement in function.body:
            name = _target(statement)
            if name == "xoffset":
                before.append(_HEAD.format(wide=_WIDE if _WIDE in ast.unparse(statement) else ""))
            if name in _REPLACED or self._is_gone(statement, name):
                continue
            is_inside = bool(_names(statement) & self._of_loop)
            if is_inside and name:
                self._of_loop.add(name)
            (inside if is_inside else before).append(ast.unparse(_Tiled().visit(statement)))
        return before, inside

    def _is_gone(self, statement: ast.stmt, name: str) -> bool:
        """Whether a statement is about the memory through which programs talk."""
        if _is_look_back(getattr(statement, "value", None)):
            return True
        is_about = bool(_names(statement) & self._gone) or "tl.num_programs" in ast.unparse(statement)
        if is_about and name:
            self._gone.add(name)
        return is_about


class _Tiled(ast.NodeTransformer):
    """One line of elements becomes a tile: lines along its first axis."""

    def visit_List(self, node: ast.List) -> ast.List:
        match node.elts:
            case [ast.Name(id="R0_BLOCK")]:
                return ast.List([ast.Name("XBLOCK", ast.Load()), *node.elts], node.ctx)
            case [ast.Constant(value=1)]:
                return ast.List([ast.Constant(1), ast.Constant(1)], node.ctx)
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        match (dotted_name(node.func) or "").removeprefix("tl."):
            case "associative_scan":
                node.args[1] = ast.Constant(1)
            case "reduce":
                node.args[1] = ast.Constant(1)
                node.keywords.append(ast.keyword("keep_dims", ast.Constant(True)))
            case "load":
                node.args[1] = _masked(node.args[1])
            case "store":
                node.args[2] = _masked(node.args[2])
        return node


def _masked(mask: ast.expr) -> ast.expr:
    """The last program's tile may have more lines than there are."""
    lines = ast.Name("xmask", ast.Load())
    if isinstance(mask, ast.Constant) or "xmask" in _names(mask):
        return lines if isinstance(mask, ast.Constant) else mask
    return ast.BinOp(mask, ast.BitAnd(), lines)


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _lines(statements: list[str]) -> list[str]:
    return [line for statement in statements for line in statement.splitlines()]


def _with_function(source: str, function: ast.FunctionDef, text: str) -> str:
    """The source with another text in the place of a function and its decorators."""
    assert function.end_lineno is not None
    lines = source.splitlines(keepends=True)
    first = min(decorator.lineno for decorator in function.decorator_list) - 1
    return "".join([*lines[:first], text, *lines[function.end_lineno :]])


def _without_workspace(step: Launch, kernel: Kernel) -> Launch:
    pairs = zip(kernel.parameters, step.arguments, strict=False)
    kept = tuple(argument for name, argument in pairs if not name.startswith(_WORKSPACE))
    return step.model_copy(update={"arguments": kept})
