"""What a run has judged so far: the latest verdicts, by program and by the work that they are on."""

from __future__ import annotations

from collections.abc import Iterable

from db.records import Verdict

MAX_KEPT = 20_000  # verdicts of some 15 KB each; the archive has the others


class KnownVerdicts:
    """The verdicts of one run, as long as they are among the last `MAX_KEPT`; of older ones, that they exist."""

    def __init__(self, max_kept: int = MAX_KEPT) -> None:
        self._max_kept = max_kept
        self._by_program: dict[str, Verdict] = {}  # oldest first
        self._by_work: dict[str, Verdict] = {}  # by fingerprint
        self._forgotten: set[str] = set()  # program ids

    def add(self, verdict: Verdict) -> None:
        """A verdict on a program; the first one stays."""
        if verdict.program_id in self._by_program or verdict.program_id in self._forgotten:
            return
        self._by_program[verdict.program_id] = verdict
        if verdict.fingerprint and not verdict.duplicate_of:
            self._by_work.setdefault(verdict.fingerprint, verdict)
        while len(self._by_program) > self._max_kept:
            self._forget(self._by_program.pop(next(iter(self._by_program))))

    def update(self, verdicts: Iterable[Verdict]) -> None:
        """Verdicts in the order in which they came."""
        for verdict in verdicts:
            self.add(verdict)

    def on_program(self, program_id: str) -> Verdict | None:
        """The verdict on a program, if it is still known."""
        return self._by_program.get(program_id)

    def on_work(self, fingerprint: str) -> Verdict | None:
        """The verdict that was not taken from another one, on the first program with this fingerprint."""
        return self._by_work.get(fingerprint)

    def is_forgotten(self, program_id: str) -> bool:
        """Whether a program was judged so long ago that only the archive knows its verdict."""
        return program_id in self._forgotten

    @property
    def has_forgotten(self) -> bool:
        """Whether the archive knows verdicts of this run that are not known here any more."""
        return bool(self._forgotten)

    def _forget(self, verdict: Verdict) -> None:
        self._forgotten.add(verdict.program_id)
        if self._by_work.get(verdict.fingerprint) is verdict:
            del self._by_work[verdict.fingerprint]
