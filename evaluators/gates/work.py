"""Integrity without a GPU: does a program do the whole of its work at the timed size, too?

Values are compared at a small size, where the interpreter can run it. At the timed size there is only its trace: what
its launches write and read. A program that does less there than at the small size, or whose work depends on data that
a trace does not have, has a modelled latency that means nothing.
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
_OUTPUT = re.compile(r"(?P<name>.+)\+\d+:(?P<dtype>\w+?)\((?P<shape>[\d, ]*)\)\(.*\)")  # of `AddressSpace.describe`
_BITS = re.compile(r"\d+")
_FEW_BYTES = 4096  # traces count whole sectors


class _Output(NamedTuple):
    name: str
    n_bytes: int


def check_work(modelled: ModelledLatency, baseline_reads: Mapping[str, float]) -> GateResult:
    """Refuses a program that leaves a part of an output unwritten, or reads far less of its inputs than the baseline.

    Args:
        modelled: of the program, at the timed workload.
        baseline_reads: bytes of inputs and weights that the baseline reads, by name; empty where nobody knows.
    """
    reason = _unwritten(modelled) or _unread(modelled, baseline_reads)
    return GateResult(gate=Gate.INTEGRITY, passed=not reason, reason=reason)


def reads_of(modelled: ModelledLatency) -> dict[str, float]:
    """Bytes of each input and weight that a program reads, by name."""
    given = {f.name: f.read_bytes for f in modelled.footprints if not _is_made_on_the_way(f.name)}
    for operation in modelled.capture.torch_ops:
        for name in _named(operation):
            if not _is_made_on_the_way(name):
                given[name] = max(given.get(name, 0.0), float(operation.moved_bytes))
    return given


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
    return _Output(match["name"], math.prod(shape) * n_bytes)
