"""How a launch lies on a GPU: programs per SM, programs at a time, and how many turns that takes."""

from __future__ import annotations

import math
from typing import NamedTuple

from db.records import Hardware, Launch
from evaluators.capture.occupancy import WARP_SIZE, occupancy_of


class Residency(NamedTuple):
    """Where the programs of a launch are while it runs."""

    n_programs: int
    per_sm: int  # programs on one SM at a time, at least 1
    n_active_sms: int
    n_warps: int  # of one program

    @property
    def at_once(self) -> int:
        """Programs that run at the same time: a wave."""
        return min(self.n_programs, self.per_sm * self.n_active_sms)

    @property
    def n_waves(self) -> int:
        """Turns until every program has run, the last of them perhaps partly filled."""
        return math.ceil(self.n_programs / self.at_once)

    @property
    def threads(self) -> int:
        """Of one program."""
        return self.n_warps * WARP_SIZE

    @property
    def warps_per_sm(self) -> int:
        return self.per_sm * self.n_warps


def residency_of(launch: Launch, hardware: Hardware) -> Residency:
    """The residency of a launch, from registers, shared memory, warps and grid."""
    n_programs = max(1, launch.grid[0] * launch.grid[1] * launch.grid[2])
    occupancy = occupancy_of(
        hardware,
        n_registers=launch.n_registers,
        shared_bytes=launch.shared_bytes,
        num_warps=launch.num_warps,
        n_programs=n_programs,
    )
    n_active_sms = min(hardware.n_sms, n_programs)
    return Residency(n_programs, max(1, occupancy.blocks_per_sm), n_active_sms, launch.num_warps)
