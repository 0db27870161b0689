"""From the text of a model's answer to a new source, or to a refusal that says what to do. Pure: no input, no output.

An answer holds SEARCH/REPLACE blocks against the parent, or a whole program. What is not certain is refused: a wrong
guess would cost a judgement, a refusal costs one more call.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from db.hashing import program_id_of
from islands.llm.blocks import EXAMPLE, Block, has_conflict_markers, is_search, read_blocks
from islands.llm.fences import fenced_texts
from islands.llm.matching import Splice, splice_of
from islands.llm.placeholders import left_out, n_ellipses, placeholder_in
from islands.llm.programs import WHOLE, defines, is_program, parses, read_program
from islands.llm.refusals import Answer, Refusal, RefusalKind
from islands.llm.regions import has_live_markers, restored, swallowed

MOST_CHARACTERS = 100_000  # of an answer without what was thought before it: ten times the longest program
_CUT = frozenset({"length", "max_tokens", "max_output_tokens"})  # how providers say that the token limit was met
_THOUGHT = re.compile(r"\A\s*<think(?:ing)?>.*?(?P<end></think(?:ing)?>|\Z)", re.DOTALL)
_INVISIBLE = str.maketrans({"\ufeff": None, "\u200b": None, "\u00a0": " ", "\r": "\n"})


def read_answer(
    answer: str, parent: str, *, entry_point: str, finish_reason: str = "", others: Sequence[str] = ()
) -> Answer | Refusal:
    """The source that an answer makes of its parent.

    Args:
        answer: what the model wrote.
        parent: the source that was edited; empty where there is none, and then only a whole program will do.
        entry_point: the name that a program must define at its top level.
        finish_reason: why the model stopped, as its provider says: "stop", "length", or nothing where nobody knows.
        others: sources that the child must not equal either, such as the second parent of a crossover.

    Never raises for what a model wrote.
    """
    finish = "length" if finish_reason.lower() in _CUT else finish_reason.lower()
    lines, parent_lines = plain_lines(answer), plain_lines(parent)
    if not any(line.strip() for line in lines):
        return _empty(finish)
    if sum(map(len, lines)) + len(lines) > MOST_CHARACTERS:
        reason = f"The answer is longer than {MOST_CHARACTERS} characters. {WHOLE}"
        return Refusal(RefusalKind.TOO_LONG, reason)
    form = "blocks" if _has_blocks(lines, entry_point) else "program"
    read = _edited if form == "blocks" else _rewritten
    child = read(lines, parent_lines, entry_point, finish)
    if isinstance(child, Refusal):
        return child
    source = "\n".join(child).rstrip("\n") + "\n"
    return _refusal_of(source, "\n".join(parent_lines), entry_point, others) or Answer(source, form)


def plain_lines(text: str) -> list[str]:
    """Lines of a text without carriage returns, invisible characters, and what a model thought before it answered."""
    spoken = _THOUGHT.sub("", text.replace("\r\n", "\n").translate(_INVISIBLE))
    return spoken.split("\n")


def _empty(finish: str) -> Refusal:
    if finish == "length":
        return Refusal(RefusalKind.CUT_OFF, f"The token limit was met before the answer began. Think shorter. {WHOLE}")
    return Refusal(RefusalKind.EMPTY, f"The answer is empty. {WHOLE}")


def _has_blocks(lines: Sequence[str], entry_point: str) -> bool:
    """Whether a SEARCH marker stands outside of any program: inside of one it is part of a string."""
    marked = {index for index, line in enumerate(lines) if is_search(line)}
    for fenced in fenced_texts(lines) if marked else []:
        inside = marked.intersection(range(fenced.first, fenced.first + len(fenced.lines)))
        if inside and is_program(fenced.text, entry_point):
            marked -= inside
    return bool(marked)


# ------------------------------------------------------------------------------------------------------------- blocks


def _edited(lines: Sequence[str], parent: list[str], _: str, finish: str) -> list[str] | Refusal:
    """The parent with every block applied."""
    blocks = read_blocks(lines, parent)
    if isinstance(blocks, Refusal):
        return blocks
    if finish == "length":
        reason = "The token limit cut the answer off, and blocks may be missing. Answer again, shorter."
        return Refusal(RefusalKind.CUT_OFF, reason)
    if not any(line.strip() for line in parent):
        return Refusal(RefusalKind.NOT_FOUND, "There is no program to edit yet. Write the whole program in one fence.")
    child = _applied(blocks, parent)
    return child if isinstance(child, Refusal) else restored(child, parent)


def _applied(blocks: list[Block], parent: list[str]) -> list[str] | Refusal:
    """Blocks search the parent. One that fits only what blocks before it made is applied to that."""
    found = [splice_of(block, parent) for block in blocks]
    late = next((k for k, one in enumerate(found) if isinstance(one, Refusal)), len(found))
    child = _spliced([one for one in found[:late] if isinstance(one, Splice)], parent)
    for block, first in zip(blocks[late:], found[late:], strict=True):
        if isinstance(child, Refusal):
            return child
        again = splice_of(block, child) if child != parent else first
        if isinstance(again, Refusal):
            return first if isinstance(first, Refusal) else again
        child = _spliced([again], child)
    return child


def _spliced(splices: list[Splice], source: list[str]) -> list[str] | Refusal:
    """All splices at once; one that is given twice counts once."""
    result = list(source)
    ordered = sorted({(s.first, s.last, tuple(s.lines)) for s in splices}, reverse=True)
    begin = len(source)
    for first, last, lines in ordered:
        if last > begin:
            reason = f"Two blocks edit the same lines, {first + 1} to {last}. Make one block of them."
            return Refusal(RefusalKind.OVERLAP, reason)
        result[first:last] = lines
        begin = first
    return result


# ------------------------------------------------------------------------------------------------------ whole program


def _rewritten(lines: Sequence[str], parent: list[str], entry_point: str, finish: str) -> list[str] | Refusal:
    """The program that an answer without blocks gives, within what may change."""
    text = read_program(lines, "\n".join(parent), entry_point, finish)
    is_whole = isinstance(text, str) and is_program(text, entry_point)
    if has_conflict_markers(lines) and not is_whole:
        return Refusal(RefusalKind.MALFORMED_BLOCK, f"No SEARCH line is as it must be. {EXAMPLE}")
    if isinstance(text, Refusal):
        return text
    child = text.split("\n")
    missing = placeholder_in(child, parent)
    return left_out(missing, "The program") if missing else restored(child, parent)


# -------------------------------------------------------------------------------------------------------------- child


def _refusal_of(source: str, parent: str, entry_point: str, others: Sequence[str]) -> Refusal | None:
    """Why a source is no child of its parent, if it is none."""
    tree = parses(source)
    if tree is None:
        return Refusal(RefusalKind.NOT_PYTHON, f"The program that the answer makes does not parse: {_error(source)}.")
    if not defines(tree, entry_point):
        reason = f"The program defines no {entry_point} at its top level. Keep that name; give the whole program."
        return Refusal(RefusalKind.NO_ENTRY_POINT, reason)
    known = parses(parent)
    if n_ellipses(tree) > (n_ellipses(known) if known else 0):
        return left_out("...", "The program")
    if not has_live_markers(source):
        return swallowed()
    mine = program_id_of(source, entry_point)
    if mine in {program_id_of(known, entry_point) for known in (parent, *others)}:
        reason = "The program is the one you were shown; comments and layout do not count. Change what it does."
        return Refusal(RefusalKind.UNCHANGED, reason)
    return None


def _error(source: str) -> str:
    """What is wrong with a source that does not parse, with its line."""
    try:
        ast.parse(source)
    except SyntaxError as error:
        line = (error.text or "").strip()[:120]
        return f"line {error.lineno}: {error.msg}" + (f", at {line!r}" if line else "")
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error) or type(error).__name__
    return ""
