"""Integrity without a GPU: does a program do the whole of its work at the timed size, too?

Values are compared at a small size, where the interpreter can run it, and what runs there must be what was captured
(`gates/launches.py`). At the timed size there is only its trace: what its launches write, read and compute. A program
that does less there than at the small size, or whose work depends on data that a trace does not have, has a modelled
latency that means nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from db.records import Gate, GateResult, TorchOp
from evaluators.model.latency import ModelledLatency

# Honest programs write 0.998 of their outputs and more, as traces count it, and read 0.72 of what the seed reads and
# more, less where programs share what they read (194 variants of the suite's seeds)
WRITTEN_SHARE = 0.9
READ_SHARE = 0.6
# A copy computes nothing, or a mask an element; honest programs save passes, not the function. A seed may have wasted
# nearly all of its work, so it is enough to do more than a copy. Products are left out: algebra may do away with most.
COMPUTED_SHARE = 0.1
COMPUTED_AN_ELEMENT = 1.5  # of an output
_ELEMENTWISE = frozenset({"fp32", "sfu"})
_OUTPUT = re.compile(r"(?P<name>.+)\+\d+:(?P<dtype>\w+?)\((?P<shape>[\d, ]*)\)\(.*\)")  # of `AddressSpace.describe`
_BITS = re.compile(r"\d+")
_FEW_BYTES = 4096  # traces count whole sectors


class _Output(NamedTuple):
    name: str
    n_elements: int
    n_bytes: int


def check_work(
    modelled: ModelledLatency, baseline_reads: Mapping[str, float], baseline_operations: float = 0.0
) -> GateResult:
    """Refuses a program that leaves a part of an output unwritten, reads far less of its inputs than the baseline, or
    computes next to nothing beside it.

    Args:
        modelled: of the program, at the timed workload.
        baseline_reads: bytes of inputs and weights that the baseline reads, by name; empty where nobody knows.
        baseline_operations: on single elements, that the baseline computes; 0 where nobody knows.
    """
    reason = _unwritten(modelled) or _unread(modelled, baseline_reads) or _not_computed(modelled, baseline_operations)
    return GateResult(gate=Gate.INTEGRITY, passed=not reason, reason=reason)


def reads_of(modelled: ModelledLatency) -> dict[str, float]:
    """Bytes of each input and weight that a program reads, by name."""
    given = {f.name: f.read_bytes for f in modelled.footprints if not _is_made_on_the_way(f.name)}
    for operation in modelled.capture.torch_ops:
        for name in _named(operation):
            if not _is_made_on_the_way(name):
                given[name] = max(given.get(name, 0.0), float(operation.moved_bytes))
    return given


def operations_of(modelled: ModelledLatency) -> float:
    """Operations on single elements that a program's kernels compute; 0 for one that computes products as well."""
    work = [launch.traffic.flops for launch in modelled.capture.launches if launch.traffic is not None]
    if any(n and kind not in _ELEMENTWISE for flops in work for kind, n in flops.items()):
        return 0.0
    return sum(sum(flops.values()) for flops in work)


def _not_computed(modelled: ModelledLatency, baseline_operations: float) -> str:
    kinds = {kind for launch in modelled.capture.launches if launch.traffic for kind in launch.traffic.flops}
    n_computed, n_stored = (
        operations_of(modelled),
        sum(o.n_elements for o in map(_parse, modelled.capture.outputs) if o),
    )
    least = min(COMPUTED_SHARE * baseline_operations, COMPUTED_AN_ELEMENT * n_stored)
    if n_computed >= least or modelled.capture.torch_ops or kinds - _ELEMENTWISE:
        return ""
    return (
        f"at the timed size it computes {100 * n_computed / baseline_operations:.3g}% of what the baseline computes: "
        "not all of the work is done there, or what is done depends on data, which only a GPU can tell"
    )


def _unwritten(modelled: ModelledLatency) -> str:
    written = {f.name: f.written_bytes for f in modelled.footprints}
    by_torch = {name for operation in modelled.capture.torch_ops for name in _named(operation)}
    for i, output in enumerate(map(_parse, modelled.capture.outputs)):
        if output is None or output.n_bytes < _FEW_BYTES or output.name in by_torch:
            continue
        share = written.get(output.name, 0.0) / output.n_bytes
        if share < WRITTEN_SHARE:
            return (
                f"at the timed size its launches write {100 * share:.3g}% of output {i}: not all of the work is done "
                "there, or what is done depends on data, which only a GPU can tell"
            )
    return ""


def _unread(modelled: ModelledLatency, baseline_reads: Mapping[str, float]) -> str:
    read, wanted = reads_of(modelled), sum(baseline_reads.values())
    share = sum(min(read.get(name, 0.0), least) for name, least in baseline_reads.items()) / wanted if wanted else 1.0
    if share >= READ_SHARE:
        return ""
    return (
        f"at the timed size it reads {100 * share:.3g}% of what the baseline reads of its inputs: not all of the work "
        "is done there, or what is done depends on data, which only a GPU can tell"
    )


def _is_made_on_the_way(name: str) -> bool:
    return re.fullmatch(r"t\d+", name) is not None


def _named(operation: TorchOp) -> list[str]:
    """Storages that an operation of torch touches."""
    return [label.partition("+")[0] for label in operation.binding.split()[1:] if "+" in label]


def _parse(described: str) -> _Output | None:
    match = _OUTPUT.fullmatch(described)
    if match is None:
        return None
    shape = [int(size) for size in match["shape"].split(",") if size.strip()]
    bits = _BITS.search(match["dtype"].removeprefix("complex"))
    n_bytes = max(1, int(bits.group()) // 8) if bits else 1
    return _Output(match["name"], math.prod(shape), math.prod(shape) * n_bytes)
