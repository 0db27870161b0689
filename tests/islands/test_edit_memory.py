"""The memory of edits carries over what settings were worth, and forgives."""

from __future__ import annotations

import random

import pytest

from islands.edits import Edit, EditMemory


@pytest.fixture
def memory() -> EditMemory:
    return EditMemory()


def passes(memory: EditMemory, detail: str, n: int = 200) -> int:
    rng = random.Random(0)
    return sum(memory.lets_through("tile", detail, rng) for _ in range(n))


def test_new_edits_pass(memory: EditMemory) -> None:
    assert passes(memory, "BLOCK of k 1 -> 2") == 200
    memory.learn("tile", "BLOCK of k 1 -> 2", 100.0, 150.0)
    assert passes(memory, "BLOCK of k 1 -> 4") == 200
    assert passes(memory, "ROWS of k 1 -> 2") == 200


def test_losers_are_rarely_let_through(memory: EditMemory) -> None:
    memory.learn("tile", "BLOCK of k 1 -> 2", 100.0, 150.0)
    assert 20 < passes(memory, "BLOCK of k 1 -> 2") < 100
    memory.learn("tile", "BLOCK of k 1 -> 2", 100.0, 150.0)
    assert passes(memory, "BLOCK of k 1 -> 2") < 40


def test_failures_are_losses(memory: EditMemory) -> None:
    memory.learn("tile", "BLOCK of k 1 -> 2", 100.0, None)
    assert memory.expected("tile", "BLOCK of k 1 -> 2") == -1.0


def test_going_back_is_expected_to_undo(memory: EditMemory) -> None:
    memory.learn("tile", "BLOCK of k 1 -> 2", 100.0, 50.0)
    assert memory.expected("tile", "BLOCK of k 2 -> 1") == -1.0
    assert passes(memory, "BLOCK of k 2 -> 1") < 100


def test_values_are_compared_over_a_third(memory: EditMemory) -> None:
    memory.learn("tile", "BLOCK of k 1 -> 2", 100.0, 50.0)
    memory.learn("tile", "BLOCK of k 2 -> 4", 100.0, 50.0)
    assert memory.expected("tile", "BLOCK of k 1 -> 4") == 2.0


def test_edits_in_other_words_are_remembered_whole(memory: EditMemory) -> None:
    memory.learn("tile", "exp to base 2 in k", 100.0, 110.0)
    assert passes(memory, "exp to base 2 in k") < 100
    assert passes(memory, "exp to base 2 in other") == 200


def test_noise_is_no_loss(memory: EditMemory) -> None:
    memory.learn("tile", "BLOCK of k 1 -> 2", 100.0, 101.0)
    assert passes(memory, "BLOCK of k 1 -> 2") == 200


@pytest.mark.parametrize(
    ("detail", "edit"),
    [
        ("WARPS 4 -> 8", Edit("arm/WARPS", "4", "8")),
        ("BLOCK of k unset -> 64", Edit("arm/BLOCK of k", "unset", "64")),
        ("A 1 -> 2, B 3 -> 4", Edit("arm/A 1 -> 2, B 3 -> 4", "", "done")),
        ("exp2", Edit("arm/exp2", "", "done")),
    ],
)
def test_words_are_read(detail: str, edit: Edit) -> None:
    assert Edit.read("arm", detail) == edit
