"""Whether a problem fits in memory, counted before any of its tensors is made.

A machine that runs out of memory kills some process without a word; a problem that is too large should be told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from db.errors import DeviceError, ProblemError
from db.records import Hardware, Problem, TensorSpec, Workload
from evaluators.problems.module import SMALLER
from evaluators.problems.reference import InputSpec, Reference

FLOAT64_COPIES = 2.0  # the reference in float64 holds values twice as wide as float32
_CGROUP = Path("/sys/fs/cgroup")


class Footprint(NamedTuple):
    """Bytes of a workload's tensors."""

    inputs: int
    weights: int
    outputs: int

    @property
    def total(self) -> int:
        return sum(self)


def footprint(problem: Problem, workload: Workload) -> Footprint:
    """What the tensors of a workload take, as far as it can be known without making them.

    Raises:
        ProblemError: `get_inputs` fails.
    """
    reference = Reference(problem, workload)
    # a standalone Triton file cannot run on fake tensors: what it returns is left out
    outputs = 0 if problem.kind == "triton" else _n_bytes_known(reference.output_specs)
    return Footprint(_n_bytes(reference.input_specs()), _n_bytes_known(reference.weight_specs), outputs)


def check_fits(problem: Problem, hardware: Hardware) -> None:
    """Make sure that the full workload fits the GPU, and what is computed on this machine its memory.

    Raises:
        DeviceError: it does not.
        ProblemError: `get_inputs` fails.
    """
    full, small = footprint(problem, problem.full), footprint(problem, problem.small)
    _check(problem, problem.full, full.total, hardware.dram_bytes, hardware.name)
    here = full.weights + small.total * (1 + FLOAT64_COPIES)
    _check(problem, problem.small, here, available_bytes(), "this machine")


def available_bytes() -> float:
    """Memory that this process may still take, by the machine and by its control group."""
    meminfo = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(meminfo["MemAvailable"].split()[0]) * 1024
    return min(free, _left_in_group())


def _left_in_group() -> float:
    try:
        limit, used = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return math.inf
    return math.inf if limit == "max" else int(limit) - int(used)


def _check(problem: Problem, workload: Workload, n_bytes: float, limit_bytes: float, where: str) -> None:
    if n_bytes > limit_bytes:
        raise DeviceError(
            f"problem {problem.name!r} does not fit in memory: its {workload.name} workload takes"
            f" {_gigabytes(n_bytes)}, {where} has {_gigabytes(limit_bytes)}",
            SMALLER,
        )


def _gigabytes(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:,.1f} GB"


def _n_bytes_known(specs: Callable[[], Sequence[InputSpec]]) -> int:
    """0 where fake tensors do not get through: the reference may branch on values."""
    try:
        return _n_bytes(specs())
    except ProblemError:
        return 0


def _n_bytes(specs: Sequence[InputSpec]) -> int:
    return sum(_n_elements(s) * _itemsize(s.dtype) for s in specs if isinstance(s, TensorSpec))


def _n_elements(spec: TensorSpec) -> int:
    """Elements in memory: one that a stride of zero repeats counts once."""
    return math.prod(size for size, stride in zip(spec.shape, spec.strides, strict=True) if stride != 0)


def _itemsize(dtype: str) -> int:
    return int(getattr(torch, dtype).itemsize)
