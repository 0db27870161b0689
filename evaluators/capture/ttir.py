"""The text of Triton's first dialect (TTIR), read into functions, blocks and operations.

MLIR prints one operation a line and a region between braces at line ends (MLIR Language Reference, "Operations",
"Blocks", "Regions"). What an operation means is left to the reader; here are only its name, its operands and results in
the order in which they are printed, and its regions. Triton 3.6 to 3.9 differ in names of operations, not in this.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_NOT_A_NAME = re.compile(r"[^\w.]")
_OPERATION = re.compile(r'(?:(?P<results>%[^=]*?) = )?"?(?P<name>[A-Za-z_][\w.]*)"?(?P<rest>.*)')
_VALUE = re.compile(r"%[\w.$-]+(?:#\d+)?")
_RESULT = re.compile(r"(%[\w.$-]+)(?::(\d+))?")
_SYMBOL = re.compile(r'@"?([\w.$-]+)"?')
_ARGUMENT = re.compile(r"(%[\w.$-]+): ([^%]*)")
_LABEL = re.compile(r"\^(\w+)")


class Unreadable(ValueError):  # noqa: N818  an answer: nothing is known of this kernel
    """The text is not as expected."""


class Operation(NamedTuple):
    """`tt.load` with operands ("%p", "%mask") and results ("%x",); results of one operation are "%x#0", "%x#1"."""

    name: str
    results: tuple[str, ...]
    operands: tuple[str, ...]
    text: str  # its first line, after the name
    regions: tuple[Region, ...]


class Block(NamedTuple):
    label: str  # "" for the first block of most regions
    arguments: tuple[str, ...]
    operations: list[Operation]


Region = list[Block]


class Argument(NamedTuple):
    name: str  # "%x_ptr"
    type: str  # "!tt.ptr<f32>", and what is printed after it

    @property
    def is_pointer(self) -> bool:
        return self.type.startswith(("!tt.ptr", "!tt.tensordesc"))


class Function(NamedTuple):
    name: str
    is_entry: bool
    arguments: tuple[Argument, ...]
    body: Region


def read_functions(text: str) -> dict[str, Function]:
    """The functions of a module, by name.

    Raises:
        Unreadable: braces that do not match, or a line that is no operation.
    """
    reader = _Reader(_lines(text))
    top: list[Operation] = []
    while not reader.is_at_end:
        top.append(reader.operation())
    bodies = [region for operation in top if operation.name == "module" for region in operation.regions]
    functions = [_function(o) for body in bodies for block in body for o in block.operations if o.name == "tt.func"]
    return {function.name: function for function in functions}


def symbol_of(text: str) -> str:
    """The function that a call names. Raises `Unreadable` where there is none."""
    found = _SYMBOL.search(text)
    if found is None:
        raise Unreadable(f"no symbol in {text[:80]!r}")
    return found[1]


def targets_of(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Labels that a branch names, each with the values that it hands on."""
    for found in re.finditer(r"\^(\w+)(?:\(([^)]*)\))?", text):
        yield found[1], tuple(_VALUE.findall(found[2] or ""))


def names_used_in(operation: Operation) -> Iterator[str]:
    """Values that an operation or a region of it takes, without the number of a result."""
    yield from (name.partition("#")[0] for name in operation.operands)
    for region in operation.regions:
        for block in region:
            for inner in block.operations:
                yield from names_used_in(inner)


def _function(operation: Operation) -> Function:
    if not operation.regions:
        return Function(symbol_of(operation.text), is_entry=False, arguments=(), body=[])
    arguments = tuple(Argument(*found) for found in _ARGUMENT.findall(operation.text))
    return Function(symbol_of(operation.text), " public " in operation.text, arguments, operation.regions[0])


def _lines(text: str) -> list[str]:
    """The lines that say something, without locations; inside quotes only letters, digits, "_" and "." are left."""
    plain = _STRING.sub(lambda found: f'"{_NOT_A_NAME.sub("_", found[0][1:-1])}"', text)
    lines = (_without_location(line).strip() for line in plain.splitlines())
    return [line for line in lines if line and not line.startswith(("#", "//"))]


def _without_location(line: str) -> str:
    while (start := line.find(" loc(")) >= 0:
        depth, end = 0, start + 4
        while end < len(line):
            depth += (line[end] == "(") - (line[end] == ")")
            end += 1
            if not depth:
                break
        line = line[:start] + line[end:]
    return line


class _Reader:
    """Lines, from the first to the last."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at >= len(self._lines)

    def _next(self) -> str:
        if self.is_at_end:
            raise Unreadable("a region does not end")
        self._at += 1
        return self._lines[self._at - 1]

    def operation(self) -> Operation:
        first = line = self._next()
        regions: list[Region] = []
        while line.endswith("{"):
            region, line = self._region()
            regions.append(region)
        found = _OPERATION.fullmatch(first)
        if found is None:
            raise Unreadable(f"no operation: {first[:80]!r}")
        operands = tuple(_VALUE.findall(found["rest"]))
        return Operation(found["name"], _results(found["results"] or ""), operands, found["rest"], tuple(regions))

    def _region(self) -> tuple[Region, str]:
        """A region, and the line that ends it."""
        blocks = [Block("", (), [])]
        while True:
            line = self._lines[self._at] if not self.is_at_end else self._next()
            if line.startswith("}"):
                self._at += 1
                return [b for b in blocks if b.operations or b.label or b is blocks[-1]], line
            if line.startswith("^"):
                self._at += 1
                blocks.append(_block(line))
            else:
                blocks[-1].operations.append(self.operation())


def _block(line: str) -> Block:
    label = _LABEL.match(line)
    if label is None:
        raise Unreadable(f"no label: {line[:80]!r}")
    return Block(label[1], tuple(name for name, _ in _ARGUMENT.findall(line)), [])


def _results(text: str) -> tuple[str, ...]:
    names: list[str] = []
    for name, count in _RESULT.findall(text):
        names += [f"{name}#{i}" for i in range(int(count))] if count else [name]
    return tuple(names)
