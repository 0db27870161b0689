"""Whole programs in an answer: fenced, or standing there as they are."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from db.hashing import program_id_of
from islands.llm.fences import Fenced, fenced_texts
from islands.llm.refusals import Refusal, RefusalKind

PYTHON = frozenset({"", "py", "python", "python3", "triton", "plaintext", "text"})
OTHER_LANGUAGES = frozenset(
    {
        *("c", "c++", "cc", "cpp", "cu", "cuda", "cxx", "go", "hip", "java", "javascript", "js", "julia", "metal"),
        *("opencl", "ptx", "rs", "rust", "sh", "bash", "ts", "typescript"),
    }
)
_OTHER = re.compile(
    r"^[ \t]*(?:#include\b|__global__|template\s*<|fn \w+\(|extern \"C\"|using namespace )", re.MULTILINE
)
_DIFF = re.compile(r"^(?:@@ .*@@|--- \S|\+\+\+ \S)", re.MULTILINE)
_BEGINS = re.compile(r"^(?:import |from \w|@\w|class \w|def \w|#!|\"\"\"|''')")

WHOLE = "Answer with SEARCH/REPLACE blocks, or with the whole program in one fence of Python."


def parses(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def defines(tree: ast.Module, entry_point: str) -> bool:
    """Whether a class or function of this name stands at the top level."""
    return any(isinstance(s, ast.ClassDef | ast.FunctionDef) and s.name == entry_point for s in tree.body)


def is_program(source: str, entry_point: str) -> bool:
    tree = parses(source)
    return tree is not None and defines(tree, entry_point)


def read_program(lines: Sequence[str], parent: str, entry_point: str, finish_reason: str) -> str | Refusal:
    """The one program that an answer without blocks gives; whether it is any good is for others to say."""
    fences = fenced_texts(lines)
    python = [one for one in fences if one.language in PYTHON and one.text.strip()]
    whole = [one for one in python if is_program(one.text, entry_point)]
    if whole:
        return _only_one(whole, parent, entry_point, finish_reason)
    if python and not _is_other(python):
        return _longest(python, finish_reason)
    bare = "" if fences else _bare_program(lines, entry_point)
    if bare:
        return bare if finish_reason != "length" else _cut_off()
    return _nothing("\n".join(lines), fences, finish_reason)


def _only_one(whole: list[Fenced], parent: str, entry_point: str, finish_reason: str) -> str | Refusal:
    """Of several, the parent itself does not count, nor does the same program written twice."""
    ids = {program_id_of(one.text, entry_point): one for one in whole}
    if len(ids) > 1:
        ids.pop(program_id_of(parent, entry_point), None)
    if len(ids) > 1:
        reason = (
            f"The answer holds {len(ids)} different programs that define {entry_point}. Give one: the best of them."
        )
        return Refusal(RefusalKind.SEVERAL_PROGRAMS, reason)
    (only,) = ids.values()
    return only.text if only.is_closed or finish_reason == "stop" else _cut_off()


def _longest(python: list[Fenced], finish_reason: str) -> str | Refusal:
    longest = max(python, key=lambda one: len(one.text))
    is_cut = not python[-1].is_closed and finish_reason != "stop"
    return _cut_off() if is_cut or finish_reason == "length" else longest.text


def _is_other(python: list[Fenced]) -> bool:
    return all(parses(one.text) is None and (_OTHER.search(one.text) or _DIFF.search(one.text)) for one in python)


def _bare_program(lines: Sequence[str], entry_point: str) -> str:
    """A program without a fence: from a line that begins one to the end, or to a line before prose."""
    starts = [index for index, line in enumerate(lines) if _BEGINS.match(line)][:3]
    for start in starts:
        blanks = [index for index in range(start, len(lines)) if not lines[index].strip()]
        for end in [len(lines), *reversed(blanks[-8:])]:
            text = "\n".join(lines[start:end]) + "\n"
            if is_program(text, entry_point):
                return text
    return ""


def _cut_off() -> Refusal:
    return Refusal(
        RefusalKind.CUT_OFF,
        "The answer ends before its code does. Answer again, shorter: SEARCH/REPLACE blocks of the lines that change, "
        "and little prose.",
    )


def _nothing(text: str, fences: list[Fenced], finish_reason: str) -> Refusal:
    if _DIFF.search(text):
        return Refusal(RefusalKind.OTHER_FORMAT, f"A unified diff is not read here. {WHOLE}")
    if any(one.language in OTHER_LANGUAGES for one in fences) or _OTHER.search(text):
        reason = "The code is not Python. Programs are Python with Triton kernels (@triton.jit)."
        return Refusal(RefusalKind.OTHER_LANGUAGE, f"{reason} {WHOLE}")
    if finish_reason == "length":
        return _cut_off()
    return Refusal(RefusalKind.NO_CODE, f"The answer holds no code. {WHOLE}")
