"""A provisional profile of a measured program: what its latency says against the work that the problem asks for.

Counters replace it where Nsight Compute may read them. Memory: bytes of inputs and outputs, each moved once, over the
latency. Compute: operations of products and convolutions of the reference, as torch counts them; elementwise
arithmetic is left out, because it does not bound these kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from db.records import Capture, Hardware, Latency, Launch, PrecisionClass, Profile
from evaluators.capture.flops import KINDS
from evaluators.gates.integrity import floor_us
from evaluators.input_sets import Drawn, n_bytes_of
from evaluators.problems.reference import Reference


class Work(NamedTuple):
    """What a problem asks for: bytes that must move, and operations by the unit that can do them."""

    moved_bytes: int
    flops: float
    kind: str  # key of `Hardware.tflops`


def work_of(reference: Reference, drawn: Drawn, precision: PrecisionClass) -> Work:
    """The work of one forward on these inputs. Runs the reference once more, under a counter."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        reference.expected(drawn.inputs)
    dtypes = [v.dtype for v in drawn.inputs if isinstance(v, Tensor) and v.is_floating_point()]
    plain = "tf32" if precision is PrecisionClass.RELAXED else "fp32"
    kind = KINDS.get(dtypes[0], plain) if dtypes else plain
    return Work(n_bytes_of(drawn.inputs) + n_bytes_of(drawn.expected), float(counter.get_total_flops()), kind)


def measured_profile(work: Work, latency: Latency, captures: Sequence[Capture], hardware: Hardware) -> Profile:
    """Speed of light of a measured latency, each in [0, 100], with what the compiler says of the widest launch."""
    seconds = latency.device_us * 1e-6
    memory = floor_us(work.moved_bytes, hardware) / latency.device_us
    rate = hardware.tflops.get(work.kind, 0.0) * 1e12
    compute = work.flops / seconds / rate if rate else 0.0
    launch = _widest(captures)
    profile = Profile(
        source="compiled" if launch else "none",
        compute_sol_pct=min(100.0, 100 * compute),
        memory_sol_pct=min(100.0, 100 * memory),
    )
    if launch is None:
        return profile
    return profile.model_copy(
        update={
            "n_registers": launch.n_registers,
            "spill_bytes": launch.spill_bytes,
            "shared_bytes": launch.shared_bytes,
            "occupancy": launch.occupancy,
            "occupancy_limiter": launch.occupancy_limiter,
        }
    )


def _widest(captures: Sequence[Capture]) -> Launch | None:
    launches = [launch for capture in captures for launch in capture.launches]
    return max(launches, key=lambda launch: launch.grid[0] * launch.grid[1] * launch.grid[2], default=None)
