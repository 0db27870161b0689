"""Openings close after strikes, for exactly these parents, and can be reopened."""

from __future__ import annotations

from support.colony import elites
from support.landscape import Cross, Turn

from islands.strategies.openings import MAX_MATES, STRIKES, Openings

PARENT, *MATES = elites(*(100.0 + k for k in range(MAX_MATES + 4)))
IDS = (PARENT.program_id,)


def make() -> Openings:
    return Openings([Turn("WARPS", [1, 2]), Turn("STAGES", [1, 2]), Cross()])


def test_everything_is_open_at_first() -> None:
    found = make().of(PARENT, [PARENT, *MATES])
    assert list(found) == ["turn_warps", "turn_stages", "cross"]
    assert found["turn_warps"] == [(PARENT,)]
    assert found["cross"] == [(PARENT, mate) for mate in MATES[:MAX_MATES]]


def test_crossing_needs_a_mate() -> None:
    assert "cross" not in make().of(PARENT, [PARENT])


def test_an_operator_closes_after_its_strikes_and_for_these_parents_only() -> None:
    openings = make()
    for _ in range(STRIKES):
        assert "turn_warps" in openings.of(PARENT, [])
        openings.strike("turn_warps", IDS)
    assert list(openings.of(PARENT, [])) == ["turn_stages"]
    assert "turn_warps" in openings.of(MATES[0], [])


def test_a_pair_closes_alone() -> None:
    openings = make()
    openings.strike("cross", (PARENT.program_id, MATES[0].program_id), STRIKES)
    assert openings.of(PARENT, MATES[:2])["cross"] == [(PARENT, MATES[1])]


def test_has_any_agrees_with_of() -> None:
    openings = make()
    for arm in ("turn_warps", "turn_stages"):
        assert openings.has_any(PARENT, [])
        openings.strike(arm, IDS, STRIKES)
        openings.strike(arm, IDS, STRIKES)  # closing twice counts once
    assert not openings.has_any(PARENT, [])
    assert openings.has_any(PARENT, MATES)
    openings.reopen("turn_warps", IDS)
    openings.reopen("turn_warps", IDS)
    assert openings.has_any(PARENT, [])
    openings.strike("turn_warps", IDS, STRIKES)
    assert not openings.has_any(PARENT, [])
