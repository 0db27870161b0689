"""Answers: what a model writes becomes the source that it meant, or a typed refusal; never an exception."""

from __future__ import annotations

import random

import pytest

from db.hashing import program_id_of
from islands.llm.answers import read_answer
from islands.llm.refusals import Answer, Refusal, RefusalKind
from tests.support.bad_answers import BAD, bad_answers, block, fenced
from tests.support.llm_edits import DISTORTIONS, WRAPPINGS, applied, drawn_edits, real_programs, rendered

PROGRAMS = real_programs()
SOURCE = PROGRAMS["row_softmax"]


def read(answer: str, parent: str = SOURCE, finish_reason: str = "stop") -> Answer | Refusal:
    return read_answer(answer, parent, entry_point="ModelNew", finish_reason=finish_reason)


def source_of(answer: str, parent: str = SOURCE, finish_reason: str = "stop") -> str:
    got = read(answer, parent, finish_reason)
    assert isinstance(got, Answer), got
    return got.source


def kind_of(answer: str, parent: str = SOURCE, finish_reason: str = "stop") -> RefusalKind:
    got = read(answer, parent, finish_reason)
    assert isinstance(got, Refusal), got
    assert got.reason.strip()
    return got.kind


# ------------------------------------------------------------------------------------------------------ what was meant


@pytest.mark.parametrize("distortion", DISTORTIONS)
def test_distorted_blocks_make_the_program_that_was_meant(distortion: str) -> None:
    rng = random.Random(distortion)
    for name, source in PROGRAMS.items():
        edits = drawn_edits(source, rng)
        answer = rendered(source, edits, rng, distortion, rng.choice(list(WRAPPINGS)))
        meant = applied(source, edits)
        assert program_id_of(source_of(answer, source), "") == program_id_of(meant, ""), (name, answer)


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_whatever_stands_around_the_blocks(wrapping: str) -> None:
    rng = random.Random(wrapping)
    for source in PROGRAMS.values():
        edits = drawn_edits(source, rng)
        answer = rendered(source, edits, rng, wrapping=wrapping)
        assert source_of(answer, source).strip() == applied(source, edits).strip()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_whole_program_is_taken_as_it_is(name: str) -> None:
    source, rng = PROGRAMS[name], random.Random(name)
    child = applied(source, drawn_edits(source, rng))
    for answer in (
        fenced(child),
        fenced(child, ""),
        child,
        f"Here it is.\n\n{fenced(child)}\nIt is faster.\n",
        f"Here it is.\n\n{child}\nIt is faster, I think.\n",
        fenced("print('a test')") + fenced(child),
        fenced(source) + "becomes\n" + fenced(child),
        fenced(child).replace("\n", "\r\n"),
        fenced(child) + fenced(child),
    ):
        assert program_id_of(source_of(answer, source), "") == program_id_of(child, "")


def test_a_parent_with_windows_lines_is_read() -> None:
    child = source_of(block("    norm = 0.0", "    norm = 1.0"), SOURCE.replace("\n", "\r\n"))
    assert child == SOURCE.replace("norm = 0.0", "norm = 1.0")


def test_a_first_program_needs_no_parent() -> None:
    assert source_of(fenced(SOURCE), parent="") == SOURCE
    assert kind_of(block("x = 1", "x = 2"), parent="") is RefusalKind.NOT_FOUND


def test_a_block_may_rest_on_what_a_block_before_it_made() -> None:
    answer = block("    norm = 0.0", "    norm = 1.0") + block("    norm = 1.0", "    norm = 2.0")
    assert "    norm = 2.0\n" in source_of(answer)


def test_a_block_given_twice_counts_once() -> None:
    once = block("    norm = 0.0", "    norm = 1.0")
    assert source_of(once + once) == source_of(once)


def test_lines_can_be_deleted() -> None:
    assert "import triton\n" not in source_of("<<<<<<< SEARCH\nimport triton\n=======\n>>>>>>> REPLACE\n")


# ------------------------------------------------------------------------------------------------- markers in strings

MARKED = SOURCE + '\n\nTEXT = """\n<<<<<<< SEARCH\nold\n=======\nnew\n>>>>>>> REPLACE\n"""\n'


def test_markers_in_a_string_of_the_parent_are_code() -> None:
    inside = "old\n=======\nnew"
    assert "\nolder\n" in source_of(block(inside, "older\n=======\nnew"), MARKED)
    assert "\nnewer\n>>>>>>> REPLACE\n" in source_of(
        block("new\n>>>>>>> REPLACE\n" + '"""', "newer\n>>>>>>> REPLACE\n" + '"""'), MARKED
    )
    whole = 'TEXT = """\n<<<<<<< SEARCH\nold'
    assert "\nolder\n" in source_of(block(whole, f"{whole}er"), MARKED)


def test_a_whole_program_may_have_markers_in_a_string() -> None:
    child = MARKED.replace("norm = 0.0", "norm = 1.0")
    assert source_of(fenced(child), MARKED) == child


# -------------------------------------------------------------------------------------------------------- EVOLVE-BLOCK

HEAD, _, TAIL = SOURCE.partition("    norm = 0.0\n")
START, END = "    # EVOLVE-BLOCK-START\n", "    # EVOLVE-BLOCK-END\n"
FENCED_OFF = f"{HEAD}{START}    norm = 0.0\n{END}{TAIL}"


def test_what_is_between_the_markers_may_change() -> None:
    child = FENCED_OFF.replace("norm = 0.0", "norm = 1.0")
    assert source_of(block("    norm = 0.0", "    norm = 1.0"), FENCED_OFF) == child
    assert source_of(fenced(child), FENCED_OFF) == child


def test_layout_outside_of_the_markers_is_the_parents() -> None:
    child = FENCED_OFF.replace("norm = 0.0", "norm = 1.0")
    assert (
        source_of(fenced(child.replace("\n\n\n", "\n").replace("width, TILE:", "width,  TILE:")), FENCED_OFF) == child
    )


@pytest.mark.parametrize(
    "answer",
    [
        block("import triton", "import triton as triton"),
        fenced(FENCED_OFF.replace("min(1024", "min(2048")),
        fenced(SOURCE.replace("norm = 0.0", "norm = 1.0")),  # the markers are gone
        fenced(FENCED_OFF.replace(START, "").replace("import torch\n", f"import torch\n{START}")),
        block("    norm = 0.0", f"    norm = 1.0\n{END}    top = 2\n{START}"),
        block("    norm = 0.0", f"    norm = 1.0\n{END}    top = 2\n{START}".rstrip()),
        fenced(FENCED_OFF + "\nimport math\n"),
    ],
)
def test_what_is_outside_of_the_markers_may_not(answer: str) -> None:
    assert kind_of(answer, FENCED_OFF) is RefusalKind.OUTSIDE_EVOLVE_BLOCK


def test_a_string_may_not_swallow_what_is_outside() -> None:
    two = f"{START}    norm = 0.0\n{END}    top = top\n{START}    other = 0\n{END}"
    parent = f"{HEAD}{two}{TAIL}"
    answer = block("    norm = 0.0", '    norm = 0.0\n    """') + block("    other = 0", '    """\n    other = 0')
    assert kind_of(answer, parent) is RefusalKind.OUTSIDE_EVOLVE_BLOCK


def test_of_two_places_the_one_that_may_change_is_meant() -> None:
    parent = f"{HEAD}    norm = 0.0\n{START}    norm = 0.0\n{END}{TAIL}"
    assert (
        source_of(block("    norm = 0.0", "    norm = 1.0"), parent)
        == f"{HEAD}    norm = 0.0\n{START}    norm = 1.0\n{END}{TAIL}"
    )


# ----------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("name", BAD)
def test_every_kind_of_bad_answer_is_refused_by_its_name(name: str) -> None:
    n_kinds = len(BAD)
    for seed, source in enumerate(PROGRAMS.values()):
        for bad in bad_answers(source, n_kinds, seed):
            if bad.name == name:
                got = read(bad.text, source, bad.finish_reason)
                assert isinstance(got, Refusal), (bad, got)
                assert got.kind in bad.kinds, (bad, got)
                assert len(got.reason) > 20


def test_two_hundred_bad_answers_and_no_exception() -> None:
    answers = bad_answers(SOURCE, 231, rng_seed=7)
    refused = [read(bad.text, SOURCE, bad.finish_reason) for bad in answers]
    assert all(isinstance(one, Refusal) for one in refused)
    assert len({one.kind for one in refused if isinstance(one, Refusal)}) >= 15


def test_noise_never_raises() -> None:
    rng = random.Random(3)
    pieces = [
        "<<<<<<< SEARCH",
        "=======",
        ">>>>>>> REPLACE",
        "```",
        "```python",
        "~~~",
        "\x00",
        "\ud800",
        "\r",
        "\u2028",
    ]
    pieces += [
        "# EVOLVE-BLOCK-START",
        "# EVOLVE-BLOCK-END",
        '"""',
        "class ModelNew: pass",
        "    ",
        "<think>",
        "</think>",
    ]
    for _ in range(1500):
        words = rng.choices([*pieces, *SOURCE.split("\n")], k=rng.randrange(30))
        got = read("\n".join(words), rng.choice([SOURCE, FENCED_OFF, MARKED, ""]), rng.choice(["", "stop", "length"]))
        assert isinstance(got, Answer | Refusal)


def test_the_nearest_lines_are_shown() -> None:
    got = read(block("    norm = 0.00", "    norm = 1.0"))
    assert isinstance(got, Refusal)
    assert "    norm = 0.0\n" in got.reason + "\n"


def test_the_lines_where_it_matches_are_named() -> None:
    got = read(block("        at = begin + lane", "        at = 1"))
    assert isinstance(got, Refusal)
    lines = [str(k) for k, line in enumerate(SOURCE.split("\n"), 1) if line == "        at = begin + lane"]
    assert len(lines) == 3
    assert ", ".join(lines) in got.reason


def test_a_program_that_was_whole_before_the_limit_counts() -> None:
    child = SOURCE.replace("norm = 0.0", "norm = 1.0")
    assert source_of(fenced(child) + "This is", finish_reason="length") == child


def test_a_fence_that_is_not_closed_needs_the_models_word_that_it_was_done() -> None:
    child = SOURCE.replace("norm = 0.0", "norm = 1.0")
    assert source_of(f"```python\n{child}", finish_reason="stop") == child
    assert kind_of(f"```python\n{child}", finish_reason="") is RefusalKind.CUT_OFF


def test_the_second_parent_is_no_child_either() -> None:
    other = SOURCE.replace("norm = 0.0", "norm = 1.0")
    got = read_answer(fenced(other), SOURCE, entry_point="ModelNew", others=[other])
    assert isinstance(got, Refusal) and got.kind is RefusalKind.UNCHANGED


def test_words_with_dots_in_comments_are_no_ellipsis() -> None:
    child = SOURCE.replace(
        "    norm = 0.0", "    # tiles 0, 1, ..., n of a row; masks of other rows are kept...\n    norm = 1.0"
    )
    assert source_of(fenced(child)) == child


def test_a_longer_fence_may_hold_a_shorter_one() -> None:
    child = SOURCE.replace("norm = 0.0", "norm = 1.0") + '\n\nTEXT = """\n```\ncode\n```\n"""\n'
    assert source_of(f"````python\n{child}````\n") == child


def test_new_levels_are_indented_from_the_nearest_known_one() -> None:
    """Here the first line lost its indentation, and the others kept theirs."""
    search = "norm = 0.0\n    for begin in range(0, width, TILE):\n        at = begin + lane"
    replace = f"{search}\n        if at:\n            extra = 1"
    assert "        at = begin + lane\n        if at:\n            extra = 1\n" in source_of(block(search, replace))


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "piece",
    [
        "# the rest ",
        "~",
        "`",
        "=======\n",
        "(",
        "import x\n\n",
        " \n",
        "<<<<<<< SEARCH\n",
        ">>>>>>> REPLACE\n",
        "# ...\n",
        "[",
        "{}",
    ],
)
def test_nothing_takes_long(piece: str) -> None:
    text = piece * (95_000 // len(piece))
    for answer in (text, block(text, "x"), fenced(text), f"<<<<<<< SEARCH\n{text}", f"```\n{text}"):
        assert isinstance(read(answer), Refusal)
