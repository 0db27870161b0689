"""Inputs and weights of the timed workload on the GPU, for as long as a batch is profiled."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from db.records import PrecisionClass
from evaluators.device_memory import SharedRegion, lay_out
from evaluators.input_sets import ReferenceSets


@contextlib.contextmanager
def shared_inputs(sets: ReferenceSets, precision: PrecisionClass, device: int = 0) -> Iterator[dict[str, Any]]:
    """What a worker has to know of the problem, with the judge's own values: labels and indices have their range.

    Any thread may call: the first set of a workload and its weights are there since the sessions were opened.

    Raises:
        DeviceError: they do not fit in the GPU's memory once more.
    """
    full = next(s for s in sets.sets if s.workload.role == "full")
    weights = sets.weights(full.workload)
    values = [*weights.values(), *sets.drawn(full).inputs]
    places, n_bytes = lay_out(values)
    region = SharedRegion.allocate(n_bytes, device)
    try:
        for place, value in zip(places, values, strict=True):
            if isinstance(value, Tensor):
                region.tensor(place).copy_(value)
        torch.cuda.synchronize()
        yield {
            "region": {"handle": region.handle, "n_bytes": region.n_bytes},
            "weights": dict(zip(weights, places, strict=False)),
            "inputs": places[len(weights) :],
            "init_args": sets.references[full.workload.name].init_args(),
            "precision": precision.value,
        }
    finally:
        region.close()
