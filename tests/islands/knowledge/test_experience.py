"""The experience memory keeps what stood out, the directions keep a search from circling."""

from __future__ import annotations

import math

import pytest
from attempts import MATMUL, OTHER_ROW, ROW, attempt

from islands.knowledge import ExperienceMemory
from islands.knowledge.diversity import DiversityEnforcer
from islands.knowledge.experience import CAPACITY, Noted

FASTER, SLOWER = math.log2(1.05), -math.log2(1.20)


@pytest.mark.parametrize(
    ("octaves", "noted"),
    [
        (FASTER, Noted.APPENDED),
        (FASTER - 1e-6, Noted.SKIPPED),
        (SLOWER, Noted.APPENDED),
        (SLOWER + 1e-6, Noted.SKIPPED),
        (0.0, Noted.SKIPPED),
        (None, Noted.SKIPPED),
    ],
)
def test_what_stood_out_is_kept(octaves: float | None, noted: Noted) -> None:
    memory = ExperienceMemory()
    assert memory.offer(attempt(octaves=octaves)) is noted
    assert len(memory) == (noted is Noted.APPENDED)


def test_the_oldest_goes_first() -> None:
    memory = ExperienceMemory()
    for k in range(CAPACITY + 2):
        assert memory.offer(attempt(f"technique{k}")) is Noted.APPENDED
    assert [e.technique for e in memory.held] == [f"technique{k}" for k in range(2, CAPACITY + 2)]


def test_the_same_technique_in_the_same_state_is_replaced_and_becomes_the_newest() -> None:
    memory = ExperienceMemory()
    memory.offer(attempt(octaves=0.5, detail="num_warps of k 4 -> 8"))
    memory.offer(attempt("other"))
    assert memory.offer(attempt(octaves=0.8, detail="num_warps of k 4 -> 16", cause="less traffic")) is Noted.REPLACED
    assert [(e.technique, e.octaves) for e in memory.held][-1] == ("turn_warps", 0.8)
    assert memory.held[-1].cause == "less traffic" and memory.held[-1].speedup == pytest.approx(2**0.8)
    assert memory.offer(attempt(octaves=0.8, state=MATMUL)) is Noted.APPENDED


def test_nothing_new_is_skipped() -> None:
    memory = ExperienceMemory()
    memory.offer(attempt(octaves=0.5, detail="num_warps of k 4 -> 8"))
    assert memory.offer(attempt(octaves=0.53, detail="num_warps of q 2 -> 8")) is Noted.SKIPPED
    assert memory.offer(attempt(octaves=-0.9, detail="num_warps of q 2 -> 1")) is Noted.SKIPPED  # another one lost
    assert memory.offer(attempt(octaves=-0.9, detail="num_warps of q 2 -> 8")) is Noted.REPLACED  # the same one lost


def test_it_recalls_moves_for_the_same_bottleneck_and_kind() -> None:
    memory = ExperienceMemory()
    memory.offer(attempt(octaves=0.5, detail="num_warps of k 4 -> 8"))
    assert memory.recall("turn_warps", OTHER_ROW, "num_warps 8") == 0.5
    assert memory.recall("turn_warps", ROW, "num_warps 16") is None
    assert memory.recall("turn_warps", MATMUL, "num_warps 8") is None
    assert memory.recall("other", ROW, "num_warps 8") is None


def test_two_directions_over_and_over_are_excluded_until_a_third_was_judged() -> None:
    directions = DiversityEnforcer()
    for direction in ["a up", "a down"] * 2 + ["a up"]:
        directions.judged(direction)
        assert not directions.excluded
    directions.judged("a up")
    assert directions.excluded == {"a up", "a down"}
    directions.judged("b")
    assert not directions.excluded
    for _ in range(5):
        directions.judged("a up")
    assert directions.excluded == {"a up", "b"}
