"""Ancestry: the correct programs that an island has seen of late, so that a prompt can say how a program came about."""

from __future__ import annotations

from db.records import Verdict
from islands.grid import Occupant

N_KEPT = 512
LONGEST_CHAIN = 6


class Ancestry:
    """Programs by id, its own and migrants. The ones that were not looked at for longest are forgotten."""

    def __init__(self, n_kept: int = N_KEPT) -> None:
        self._n_kept = n_kept
        self._programs: dict[str, Occupant] = {}  # what was seen or looked at last stands last

    def see(self, program: Occupant) -> None:
        """Remembers a program, in the place of what was said of it before."""
        self._programs.pop(program.program_id, None)
        self._programs[program.program_id] = program
        if len(self._programs) > self._n_kept:
            del self._programs[next(iter(self._programs))]

    def revise(self, verdict: Verdict) -> None:
        """Takes in what counters said later of a program, whichever candidate they read."""
        program = self._programs.get(verdict.program_id)
        if program is not None:
            own = verdict.model_copy(update={"candidate_id": program.candidate.candidate_id})
            self._programs[verdict.program_id] = program._replace(verdict=own)

    def find(self, program_id: str) -> Occupant | None:
        """A program, if it is still remembered."""
        program = self._programs.get(program_id)
        if program is not None:
            self.see(program)
        return program

    def chain(self, program: Occupant) -> list[Occupant]:
        """The way to a program along first parents, oldest ancestor first, itself last; at most `LONGEST_CHAIN`."""
        chain = [program]
        while len(chain) < LONGEST_CHAIN and (parents := chain[0].candidate.lineage.parents):
            before = self.find(parents[0])
            if before is None or before in chain:
                break
            chain.insert(0, before)
        return chain
