"""What edits were worth: the memory that keeps a search from trying again what lost before."""

from __future__ import annotations

import math
import random
from typing import NamedTuple

LOSS_OCTAVES = 0.02
"""An edit that is expected to cost more than this (1.4%) is a loss; less is noise."""

FAILURE_OCTAVES = -1.0
"""What a program that failed is taken for: twice as slow as its parent."""


class Edit(NamedTuple):
    """One setting, changed from one value to another: what "BLOCK 1024 -> 4096" says."""

    setting: str
    old: str
    new: str

    @classmethod
    def read(cls, arm: str, detail: str) -> Edit:
        """Words of any other form are a setting of their own that goes from undone to done."""
        head, _, new = detail.rpartition(" -> ")
        name, _, old = head.rpartition(" ")
        return cls(f"{arm}/{name}", old, new) if name and " -> " not in head else cls(f"{arm}/{detail}", "", "done")


class EditMemory:
    """Learns what each value of each setting is worth, in octaves, as if settings did not interact.

    They do, so an edit that is expected to lose is not forbidden but rarely let through, the more rarely the more
    often its new value was seen. Values never compared with the old one are let through.
    """

    def __init__(self, forgiveness: float = 0.3) -> None:
        self._forgiveness = forgiveness
        self._worth: dict[str, dict[str, float]] = {}  # by setting and value, relative to one value of the setting
        self._n: dict[tuple[str, str], int] = {}

    def learn(self, arm: str, detail: str, parent_us: float | None, child_us: float | None) -> None:
        """Takes in one outcome, latencies in microseconds; `child_us` is None for a program that failed."""
        if not detail or parent_us is None:
            return
        edit = Edit.read(arm, detail)
        octaves = FAILURE_OCTAVES if child_us is None else math.log2(parent_us / child_us)
        worth = self._worth.setdefault(edit.setting, {})
        if edit.old not in worth:
            worth[edit.old] = worth.get(edit.new, octaves) - octaves
        seen = self._n.get((edit.setting, edit.new), 0)
        known = worth.get(edit.new, 0.0)
        worth[edit.new] = known + (worth[edit.old] + octaves - known) / (seen + 1)
        self._n[edit.setting, edit.new] = seen + 1

    def expected(self, arm: str, detail: str) -> float | None:
        """Octaves that an edit should win; None when its two values were never compared."""
        edit = Edit.read(arm, detail)
        worth = self._worth.get(edit.setting, {})
        return worth[edit.new] - worth[edit.old] if edit.new in worth and edit.old in worth else None

    def lets_through(self, arm: str, detail: str, rng: random.Random) -> bool:
        """True for edits that are new or should do no harm, and now and then for the others."""
        expected = self.expected(arm, detail)
        if expected is None or expected > -LOSS_OCTAVES:
            return True
        edit = Edit.read(arm, detail)
        return rng.random() < self._forgiveness ** max(1, self._n.get((edit.setting, edit.new), 1))
