"""Notes on Triton: which version takes which, and that they are true of the one that is installed."""

from __future__ import annotations

import re

import pytest
import triton
import triton.language as tl

from islands.prompts.notes import notes_on

_NAMES = re.compile(r"`tl\.(\w+)")


@pytest.mark.parametrize(
    ("version", "last"),
    [
        ("3.6.0", "There is no `tl.squeeze`"),
        ("3.7.1", "round_f32_to_tf32"),
        ("3.8.0+git1", "round_f32_to_tf32"),
        ("3.9.0", "Block pointers are gone"),
        ("4.1", "Block pointers are gone"),
        ("3.2.0", "There is no `tl.squeeze`"),
        ("unknown", "There is no `tl.squeeze`"),
    ],
)
def test_a_version_takes_the_newest_notes_that_are_not_newer(version: str, last: str) -> None:
    assert last in notes_on(version)


def test_the_notes_are_true_of_the_installed_version() -> None:
    there_is, _, rest = notes_on(triton.__version__).partition("There is not:")
    there_is_not, _, own = rest.partition("In this version also:")
    names = set(_NAMES.findall(there_is))
    assert len(names) > 50
    assert [name for name in sorted(names) if not hasattr(tl, name)] == []
    assert [name for name in _NAMES.findall(there_is_not.split("\n")[1]) if hasattr(tl, name)] == []
    said_to_exist = [line for line in own.split("\n") if " exist" in line]
    assert [name for line in said_to_exist for name in _NAMES.findall(line) if not hasattr(tl, name)] == []
