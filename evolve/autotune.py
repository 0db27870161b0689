"""Several programs that differ in launch knobs alone become one under `@triton.autotune`.

The winners of a search over several shapes often are the same kernel with other tile sizes and warps. `merge` finds
what differs and writes it back as `triton.Config`s, keyed by the kernel's size arguments. It is the inverse of what
happens on entry, where every configuration of an autotuned program becomes a candidate of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from db.errors import EvolveError

LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")  # what triton.Config takes beside the constexprs
_SIZE_CALLS = ("size", "numel", "dim", "cdiv", "next_power_of_2", "len", "int", "min", "max")


class AutotuneError(EvolveError, ValueError):
    """Programs that are not the same kernel under other knobs."""


class Spot(NamedTuple):
    """A constant that may be a knob: `kernel` and `name` as a launch passes it, `variable` where a name holds it."""

    kernel: str
    name: str
    variable: str


@dataclass(frozen=True)
class Reading:
    """A program with its knobs taken out: equal skeletons are the same kernel."""

    skeleton: str
    values: dict[Spot, int]


def merge(sources: Sequence[str]) -> str:
    """One program for several: the first, with what differs in the others as configurations.

    A kernel that all agree on is left as it is; if they agree on everything, the answer is the first program.

    Raises:
        AutotuneError: the programs differ in more than launch knobs, or a knob is used where it cannot vary.
    """
    readings = [read(source) for source in sources]
    if any(one.skeleton != other.skeleton for one, other in pairwise(readings)):
        raise AutotuneError(
            "the programs differ in more than launch knobs, so one kernel cannot stand for all",
            "write them one by one: evolve best PROBLEM -o FILE",
        )
    varying = [spot for spot in readings[0].values if len({r.values[spot] for r in readings}) > 1]
    text = Text(sources[0])
    edits: list[Edit] = []
    for kernel in dict.fromkeys(spot.kernel for spot in varying):
        spots = [spot for spot in varying if spot.kernel == kernel]
        choices = list(dict.fromkeys(tuple(r.values[spot] for spot in spots) for r in readings))
        edits += _autotune(text, kernel, spots, choices)
    return text.spliced(edits)


def is_same_kernel(one: str, other: str) -> bool:
    """Whether two programs differ in launch knobs at most."""
    return read(one).skeleton == read(other).skeleton


def read(source: str) -> Reading:
    """Take the knobs out of a program.

    Raises:
        SyntaxError: the source does not parse.
    """
    tree = ast.parse(source)
    values: dict[Spot, int] = {}
    for function in _functions(tree):
        constants = {target.id: node for target, node in _constant_assignments(function)}
        for call in _launches(function):
            for keyword in call.keywords:
                _take_out(keyword, _kernel_of(call), constants, values)
    return Reading(ast.dump(tree), values)


def _take_out(keyword: ast.keyword, kernel: str, constants: dict[str, ast.Constant], values: dict[Spot, int]) -> None:
    """Note a keyword's constant, or that of the name it passes, and blank it in the tree."""
    value, variable = keyword.value, keyword.value.id if isinstance(keyword.value, ast.Name) else ""
    if variable in constants:
        value = constants[variable]
    if isinstance(value, ast.Constant) and type(value.value) is int and keyword.arg:
        values[Spot(kernel, keyword.arg, variable)] = value.value
        if not variable:
            value.value = 0
    if variable and isinstance(value, ast.Constant):
        constants[variable] = ast.Constant(value.value)  # other launches may pass it too: blank it only once
        value.value = 0


# ------------------------------------------------------------------------------------------------------- write back


_BY_HAND = "write the programs one by one: evolve best PROBLEM -o FILE"
_LINE = 100


class Edit(NamedTuple):
    """Bytes `start` to `end` of a source become `text`."""

    start: int
    end: int
    text: str


class Text:
    """A source with its tree, and the places of nodes in it."""

    def __init__(self, source: str) -> None:
        self.tree = ast.parse(source)
        self._bytes = source.encode()
        self._starts = [0]
        for line in self._bytes.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def place(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """First byte of a node, and the one after its last; ast counts columns in bytes."""
        end_row, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[end_row - 1] + end_column

    def of(self, node: ast.expr) -> str:
        """How a node is written."""
        start, end = self.place(node)
        return self._bytes[start:end].decode()

    def line(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """The whole lines of a node, with the last line break."""
        return self._starts[node.lineno - 1], self._starts[node.end_lineno or node.lineno]

    def margin(self, node: ast.expr | ast.stmt) -> str:
        """The white space that begins a node's line."""
        start = self._starts[node.lineno - 1]
        line = self._bytes[start : self._starts[node.lineno]].decode()
        return line[: len(line) - len(line.lstrip())]

    def spliced(self, edits: Sequence[Edit]) -> str:
        """The source with edits applied, none of which overlap."""
        result = self._bytes
        for edit in sorted(edits, reverse=True):
            result = result[: edit.start] + edit.text.encode() + result[edit.end :]
        return result.decode()


def _autotune(text: Text, kernel: str, spots: Sequence[Spot], choices: Sequence[tuple[int, ...]]) -> list[Edit]:
    """The edits that put a kernel under `@triton.autotune`."""
    definition = _definition(text.tree, kernel)
    launches = [(f, call) for f in _functions(text.tree) for call in _launches(f) if _kernel_of(call) == kernel]
    if len(launches) != 1:
        raise AutotuneError(f"{kernel} is launched {len(launches)} times: its knobs cannot vary together", _BY_HAND)
    function, call = launches[0]
    held = [spot for spot in spots if spot.variable]
    for spot in held:
        _require_free(function, call, spot)
    key = _size_arguments(definition, call, function)
    above = text.line(definition.decorator_list[0])[0] if definition.decorator_list else text.line(definition)[0]
    return [
        Edit(above, above, _decorator(spots, choices, key)),
        Edit(*text.place(call), _launch(text, call, spots)),
        *(Edit(*text.line(node), "") for spot in held for node in _assignments(function, spot.variable)),
    ]


def _decorator(spots: Sequence[Spot], choices: Sequence[tuple[int, ...]], key: Sequence[str]) -> str:
    configs = "".join(f"        {_config(spots, choice)},\n" for choice in choices)
    return f"@triton.autotune(\n    configs=[\n{configs}    ],\n    key={_quoted(list(key))},\n)\n"


def _config(spots: Sequence[Spot], choice: Sequence[int]) -> str:
    pairs = list(zip(spots, choice, strict=True))
    constexprs = {spot.name: value for spot, value in pairs if spot.name not in LAUNCH_OPTIONS}
    options = "".join(f", {spot.name}={value}" for spot, value in pairs if spot.name in LAUNCH_OPTIONS)
    return f"triton.Config({_quoted(constexprs)}{options})"


def _quoted(value: object) -> str:
    """A literal as formatters write it."""
    return repr(value).replace("'", '"')


def _launch(text: Text, call: ast.Call, spots: Sequence[Spot]) -> str:
    """The launch without its knobs; a grid that needs one takes it from the chosen configuration."""
    assert isinstance(call.func, ast.Subscript)
    knobs = {spot.name for spot in spots}
    kept = [keyword for keyword in call.keywords if keyword.arg not in knobs]
    names = [f"{keyword.arg}=" if keyword.arg else "**" for keyword in kept]
    arguments = [text.of(argument) for argument in call.args]
    arguments += [name + text.of(keyword.value) for name, keyword in zip(names, kept, strict=True)]
    head = f"{_kernel_of(call)}[{_grid(text, call.func.slice, spots)}]"
    line = f"{head}({', '.join(arguments)})"
    margin = text.margin(call)
    return line if len(margin + line) <= _LINE else f"{head}(\n{margin}    {', '.join(arguments)}\n{margin})"


def _grid(text: Text, grid: ast.expr, spots: Sequence[Spot]) -> str:
    entries = {spot.variable: spot.name for spot in spots if spot.variable}
    if not any(isinstance(node, ast.Name) and node.id in entries for node in ast.walk(grid)):
        return text.of(grid)
    changed = _FromMeta(entries).visit(grid)
    return ast.unparse(changed) if isinstance(changed, ast.Lambda) else f"lambda META: {ast.unparse(changed)}"


class _FromMeta(ast.NodeTransformer):
    """Replaces variables by entries of the configuration."""

    def __init__(self, entries: dict[str, str]) -> None:
        self._entries = entries

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self._entries:
            return node
        return ast.parse(f"META[{self._entries[node.id]!r}]", mode="eval").body


def _require_free(function: ast.FunctionDef, call: ast.Call, spot: Spot) -> None:
    """Refuses a variable that host code needs for more than this launch."""
    inside = {id(node) for node in ast.walk(call)}
    for node in ast.walk(function):
        is_read = isinstance(node, ast.Name) and node.id == spot.variable and isinstance(node.ctx, ast.Load)
        if is_read and id(node) not in inside:
            raise AutotuneError(f"{spot.variable} is used outside the launch of {spot.kernel}", _BY_HAND)


def _assignments(function: ast.FunctionDef, variable: str) -> Iterator[ast.Assign]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and _is_constant_of(node, variable):
            yield node


# ------------------------------------------------------------------------------------------------------ reading code


def _functions(tree: ast.AST) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def _definition(tree: ast.Module, kernel: str) -> ast.FunctionDef:
    return next(function for function in _functions(tree) if function.name == kernel)


def _launches(function: ast.FunctionDef) -> Iterator[ast.Call]:
    """Calls of the form `kernel[grid](...)`."""
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Subscript)
            and isinstance(node.func.value, ast.Name)
        ):
            yield node


def _kernel_of(call: ast.Call) -> str:
    assert isinstance(call.func, ast.Subscript) and isinstance(call.func.value, ast.Name)
    return call.func.value.id


def _constant_assignments(function: ast.FunctionDef) -> Iterator[tuple[ast.Name, ast.Constant]]:
    """Names that a function binds once, to an integer."""
    bound: dict[str, int] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound[node.id] = bound.get(node.id, 0) + 1
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0]
            if bound[name.id] == 1 and _is_constant_of(node, name.id):
                assert isinstance(node.value, ast.Constant)
                yield name, node.value


def _is_constant_of(node: ast.Assign, name: str) -> bool:
    target = node.targets[0]
    return (
        len(node.targets) == 1
        and isinstance(target, ast.Name)
        and target.id == name
        and isinstance(node.value, ast.Constant)
        and type(node.value.value) is int
    )


def _size_arguments(definition: ast.FunctionDef, call: ast.Call, function: ast.FunctionDef) -> list[str]:
    """The kernel's parameters that are given sizes: what a choice of configuration may depend on."""
    names = [argument.arg for argument in definition.args.args]
    given = dict(zip(names, call.args, strict=False)) | {k.arg: k.value for k in call.keywords if k.arg}
    sizes = _size_names(function)
    constexprs = {a.arg for a in definition.args.args if a.annotation and "constexpr" in ast.unparse(a.annotation)}
    return [n for n in names if n in given and n not in constexprs and _is_size(given[n], sizes)]


def _size_names(function: ast.FunctionDef) -> set[str]:
    """Local names that hold sizes, in the order of their assignment."""
    sizes: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and _is_size(node.value, sizes):
            sizes |= {name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return sizes


def _is_size(value: ast.expr, sizes: set[str]) -> bool:
    """Whether an expression is made of shapes; strides and constants do not decide which configuration is best."""
    if isinstance(value, ast.Name):
        return value.id in sizes
    if isinstance(value, ast.Attribute):
        return value.attr == "shape"
    if isinstance(value, ast.Subscript):
        return _is_size(value.value, sizes)
    if isinstance(value, ast.BinOp):
        return _is_size(value.left, sizes) or _is_size(value.right, sizes)
    if isinstance(value, ast.Call):
        name = value.func.attr if isinstance(value.func, ast.Attribute) else ast.unparse(value.func)
        return name in _SIZE_CALLS
    return False
