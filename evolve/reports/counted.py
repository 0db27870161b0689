"""How many programs of a run have hardware counters, and why not more, as its records say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from db.records import Evaluation, LatencyKind


def counters_line(correct: Sequence[Evaluation]) -> str:
    """One sentence on the correct programs of a run, each counted once; empty where no GPU measured any."""
    measured = [e.verdict for e in correct if e.verdict.latency and e.verdict.latency.kind is LatencyKind.MEASURED]
    profiles = {v.program_id: v.profile for v in measured if v.profile is not None and not v.duplicate_of}
    n_read = sum(profile.source == "ncu" for profile in profiles.values())
    if not profiles:
        return ""
    said = f"Hardware counters were read of {n_read} of {len(profiles)} correct program{'s' * (len(profiles) != 1)}"
    notes = Counter(profile.note for profile in profiles.values() if profile.source != "ncu" and profile.note)
    if n_read == len(profiles):
        return f"{said}."
    why = "; ".join(f"{n} because {note}" for note, n in notes.most_common(2))
    return f"{said}; not of {why}." if why else f"{said}; the others did not get their turn or entered no cell."
