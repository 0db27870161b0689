"""Edits of real kernels as a model would write them: drawn from a seed, rendered as blocks, and distorted."""

from __future__ import annotations

import ast
import random
import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.parents import kernel_sources

SEEDS = Path(__file__).parents[2] / "evaluators" / "suite" / "seeds"


def real_programs() -> dict[str, str]:
    """Name and source of every kernel of the tests and of every seed of the suite that defines an entry point."""
    seeds = {f"seed_{path.stem}": path.read_text() for path in sorted(SEEDS.glob("*.py"))}
    return {name: source for name, source in {**kernel_sources(), **seeds}.items() if "ModelNew" in source}


class TrueEdit(NamedTuple):
    """Lines `first` up to and without `last` of a source, and what takes their place."""

    first: int
    last: int
    lines: list[str]


def drawn_edits(source: str, rng: random.Random, most: int = 3) -> list[TrueEdit]:
    """One or more edits that do not touch, of statements inside functions, each with lines around it."""
    lines = source.split("\n")
    edits: list[TrueEdit] = []
    for statement in rng.sample(_statements(source), k=rng.randint(1, most)):
        edit = _with_context(_changed(statement, lines, rng), lines, rng)
        if all(edit.last < other.first or other.last < edit.first for other in edits):
            edits.append(edit)
    return sorted(edits)


def applied(source: str, edits: Sequence[TrueEdit]) -> str:
    lines = source.split("\n")
    for edit in reversed(edits):
        lines[edit.first : edit.last] = edit.lines
    return "\n".join(lines)


def _statements(source: str) -> list[ast.stmt]:
    return [
        statement
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef)
        for statement in node.body
        if isinstance(statement, ast.Assign | ast.AugAssign | ast.Return | ast.For | ast.If)
    ]


def _changed(statement: ast.stmt, lines: list[str], rng: random.Random) -> TrueEdit:
    first, last = statement.lineno - 1, statement.end_lineno or statement.lineno
    body = lines[first:last]
    indent = " " * statement.col_offset
    name = f"extra_{rng.randrange(1000)}"
    match rng.randrange(3):
        case 0:
            return TrueEdit(first, last, [f"{indent}{name} = {rng.randrange(100)}", *body])
        case 1:
            return TrueEdit(first, last, [f"{indent}if {name}:", *(f"    {line}" if line else "" for line in body)])
        case _:
            return TrueEdit(first, last, [f"{indent}{name} = [", f"{indent}    1,", f"{indent}]", *body])


def _with_context(edit: TrueEdit, lines: list[str], rng: random.Random) -> TrueEdit:
    """Lines before and after, at least until the text stands in the source once, whitespace aside."""
    first, last = edit.first, edit.last
    before, after = rng.randrange(3), rng.randrange(3)
    keys = ["".join(line.split()) for line in lines]
    while True:
        first, last = max(0, first - before), min(len(lines), last + after)
        filled = [key for key in keys if key]
        wanted = [key for key in keys[first:last] if key]
        n = sum(filled[at : at + len(wanted)] == wanted for at in range(len(filled)))
        if n == 1:
            return TrueEdit(first, last, lines[first : edit.first] + edit.lines + lines[edit.last : last])
        before = after = 1


# ---------------------------------------------------------------------------------------------------------- rendering

Halves = tuple[list[str], list[str]]
Distortion = Callable[[Halves, random.Random], Halves]


def _each(change: Callable[[str], str]) -> Distortion:
    return lambda halves, _: ([change(line) for line in halves[0]], [change(line) for line in halves[1]])


def _tabs(line: str) -> str:
    text = line.lstrip(" ")
    n = len(line) - len(text)
    return "\t" * (n // 4) + " " * (n % 4) + text


def _dedented(halves: Halves, _: random.Random) -> Halves:
    lines = textwrap.dedent("\n".join([*halves[0], *halves[1]])).split("\n")
    return lines[: len(halves[0])], lines[len(halves[0]) :]


def _stripped_first(halves: Halves, _: random.Random) -> Halves:
    """What `.strip()` on the text of a half leaves, where both halves begin with the same line."""
    if not halves[0][0].strip() or halves[0][0] != halves[1][0]:
        return halves
    return [halves[0][0].strip(), *halves[0][1:]], [halves[1][0].strip(), *halves[1][1:]]


def _blank_edges(halves: Halves, _: random.Random) -> Halves:
    return ["", *halves[0], ""], halves[1]


def _fenced_halves(halves: Halves, _: random.Random) -> Halves:
    return ["```python", *halves[0], "```"], ["```python", *halves[1], "```"]


DISTORTIONS: dict[str, Distortion] = {
    "none": _each(lambda line: line),
    "tabs": _each(_tabs),
    "trailing_blanks": lambda halves, rng: ([line + " " * rng.randrange(4) for line in halves[0]], halves[1]),
    "trailing_tabs": _each(lambda line: line + "\t"),
    "too_deep": _each(lambda line: "    " + line if line else line),
    "dedented": _dedented,
    "first_line_stripped": _stripped_first,
    "blank_edges": _blank_edges,
    "inner_spaces": _each(lambda line: re.sub(r" = ", "  =  ", line)),
    "no_blank_lines": _each(lambda line: line),
    "fenced_halves": _fenced_halves,
    "no_break_spaces": _each(lambda line: line.replace("    ", "\u00a0   ", 1)),
}

WRAPPINGS: dict[str, Callable[[str], str]] = {
    "bare": lambda text: text,
    "fenced": lambda text: f"```python\n{text}```\n",
    "fenced_diff": lambda text: f"~~~diff\n{text}~~~\n",
    "prose": lambda text: f"The loads wait, so I change this:\n\n{text}\nThat should gain 10%.\n",
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "byte_order_mark": lambda text: "\ufeff" + text,
    "thinking": lambda text: f"<think>\n<<<<<<< SEARCH\na draft\n</think>\n{text}",
    "sloppy_markers": lambda text: text.replace("<<<<<<< ", "<<<<<< ").replace(">>>>>>> ", ">>>>>>>>"),
    "short_dividers": lambda text: text.replace("\n=======\n", "\n======\n"),
    "indented_markers": lambda text: re.sub(r"^(<{7}|={7}$|>{7})", r"  \1", text, flags=re.MULTILINE),
}


def rendered(
    source: str, edits: Sequence[TrueEdit], rng: random.Random, distortion: str = "none", wrapping: str = "bare"
) -> str:
    """An answer that means these edits."""
    lines = source.split("\n")
    blocks = []
    for edit in edits:
        search, replace = DISTORTIONS[distortion]((lines[edit.first : edit.last], list(edit.lines)), rng)
        if distortion == "no_blank_lines":
            search = [line for line in search if line.strip()]
        blocks.append("\n".join(["<<<<<<< SEARCH", *search, "=======", *replace, ">>>>>>> REPLACE", ""]))
    return WRAPPINGS[wrapping]("\n".join(blocks))
