"""Candidates that the model expects to be much slower than their parent need not spend GPU time."""

from __future__ import annotations

from db.hashing import content_hash
from db.records import SEED, Candidate

ONE_IN = 8  # of those that would be left out is judged all the same: the model may be wrong


class PreRanker:
    """Compares the modelled latency of a candidate with that of its fastest parent.

    Args:
        factor: how many times its parent's latency a candidate may be expected to take; 0 leaves nothing out.
    """

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._modelled_us: dict[str, float] = {}  # by program id

    def objection(self, candidate: Candidate, modelled_us: float | None) -> str:
        """Why a candidate is not worth judging, or nothing. Remembers what the model expects of it."""
        if modelled_us is None or not self._factor:
            return ""
        self._modelled_us[candidate.program_id] = modelled_us
        parents = [self._modelled_us[p] for p in candidate.lineage.parents if p in self._modelled_us]
        if not parents or candidate.lineage.operator == SEED or modelled_us <= self._factor * min(parents):
            return ""
        if int(content_hash(candidate.run_id, candidate.program_id), 16) % ONE_IN == 0:
            return ""
        ratio = modelled_us / min(parents)
        return f"not judged: the model expects it to take {ratio:.2f} times as long as its parent"
