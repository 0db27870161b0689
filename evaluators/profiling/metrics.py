"""Which metric of Nsight Compute fills which field of our records, on both pages.

Names and labels as Nsight Compute 2019.5 to 2025.3 print them. Where several names are given, the first that has a
value counts: what one version or one set of sections lacks, another has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from evaluators.profiling.tables import METRIC, Row
from evaluators.profiling.values import Quantity, parse_value


class Metric(NamedTuple):
    """One field: its names on the raw page and its labels on the details page."""

    field: str
    quantity: Quantity
    raw: tuple[str, ...]
    labels: tuple[str, ...] = ()


_ELAPSED = "avg.pct_of_peak_sustained_elapsed"
_ACTIVE = "avg.pct_of_peak_sustained_active"

METRICS = (
    Metric("duration_us", Quantity.TIME, ("gpu__time_duration.sum", "gpu__time_duration.avg"), ("duration",)),
    Metric(
        "compute_sol_pct",
        Quantity.PERCENT,
        (f"sm__throughput.{_ELAPSED}",),
        ("compute (sm) throughput", "compute (sm) [%]", "sm [%]", "sol sm"),
    ),
    Metric(
        "memory_sol_pct",
        Quantity.PERCENT,
        (f"gpu__compute_memory_throughput.{_ELAPSED}",),
        ("memory throughput", "memory [%]", "sol memory"),
    ),
    Metric(
        "dram_pct",
        Quantity.PERCENT,
        (f"gpu__dram_throughput.{_ELAPSED}", f"dram__throughput.{_ELAPSED}"),
        ("dram throughput",),
    ),
    Metric(
        "l1_pct",
        Quantity.PERCENT,
        (f"l1tex__throughput.{_ACTIVE}", f"l1tex__throughput.{_ELAPSED}"),
        ("l1/tex cache throughput", "sol l1/tex cache"),
    ),
    Metric("l2_pct", Quantity.PERCENT, (f"lts__throughput.{_ELAPSED}",), ("l2 cache throughput", "sol l2 cache")),
    Metric("dram_gb_s", Quantity.RATE, ("dram__bytes.sum.per_second",), ("memory throughput",)),
    Metric("dram_read_bytes", Quantity.BYTES, ("dram__bytes_read.sum",)),
    Metric("dram_write_bytes", Quantity.BYTES, ("dram__bytes_write.sum",)),
    Metric("l1_hit_pct", Quantity.PERCENT, ("l1tex__t_sector_hit_rate.pct",), ("l1/tex hit rate",)),
    Metric("l2_hit_pct", Quantity.PERCENT, ("lts__t_sector_hit_rate.pct",), ("l2 hit rate",)),
    Metric("issue_pct", Quantity.PERCENT, (f"smsp__issue_active.{_ACTIVE}",), ("one or more eligible",)),
    Metric("n_registers", Quantity.COUNT, ("launch__registers_per_thread",), ("registers per thread",)),
    Metric("occupancy", Quantity.FRACTION, ("sm__maximum_warps_per_active_cycle_pct",), ("theoretical occupancy",)),
    Metric("achieved_occupancy", Quantity.FRACTION, (f"sm__warps_active.{_ACTIVE}",), ("achieved occupancy",)),
    Metric("waves_per_sm", Quantity.RATIO, ("launch__waves_per_multiprocessor",), ("waves per sm",)),
)

_SHARED = tuple(
    Metric(kind, Quantity.BYTES, (f"launch__shared_mem_per_block_{kind}",), (f"{kind} shared memory per block",))
    for kind in ("dynamic", "static")
)
_SPILLS = Metric("spills", Quantity.COUNT, ("derived__local_spilling_requests",), ("local memory spilling requests",))

# blocks per SM that each resource allows; of two that limit alike, the first is named
_LIMITS = tuple(
    Metric(name, Quantity.COUNT, (f"launch__occupancy_limit_{raw}",), (f"block limit {label}",))
    for name, raw, label in (
        ("registers", "registers", "registers"),
        ("shared", "shared_mem", "shared mem"),
        ("threads", "warps", "warps"),
        ("barriers", "barriers", "barriers"),
        ("blocks", "blocks", "sm"),
    )
)

# the tensor pipe: cycles in which it is active; where a version lacks those, instructions that it executes
_TENSOR_CYCLES = re.compile(r"sm__pipe_tensor\w*_cycles_active\.avg\.pct_of_peak_sustained_(active|elapsed)")
_TENSOR_INSTRUCTIONS = re.compile(r"sm__inst_executed_pipe_tensor\w*\.avg\.pct_of_peak_sustained_(active|elapsed)")
_INTEGERS = frozenset({"n_registers", "shared_bytes", "spill_bytes"})

Found = dict[str, float | int | str]
Lookup = Callable[[Metric], float | None]


def read_metrics(rows: list[Row]) -> Found:
    """The fields that the rows of one launch have values for, by the names of `db.profile.Counters`."""
    lookup = _lookup(rows)
    found: Found = {m.field: value for m in METRICS if (value := lookup(m)) is not None}
    shared = [value for m in _SHARED if (value := lookup(m)) is not None]
    if shared:
        found["shared_bytes"] = sum(shared)
    if lookup(_SPILLS) == 0:  # requests that spilling causes; how many bytes a thread spills, no counter says
        found["spill_bytes"] = 0
    if (tensor := _tensor_pct(rows)) is not None:
        found["tensor_pct"] = tensor
    if limiter := _occupancy_limiter(lookup, found):
        found["occupancy_limiter"] = limiter
    return {name: round(value) if name in _INTEGERS else value for name, value in found.items()}  # type: ignore[arg-type]


def _lookup(rows: list[Row]) -> Lookup:
    raw = [row for row in rows if not row.is_details]
    labelled = [(row.cells[METRIC].strip().lower(), row) for row in rows if row.is_details]

    def lookup(metric: Metric) -> float | None:
        for name in metric.raw:
            for row in raw:
                if (
                    value := parse_value(row.cells.get(name, ""), row.units.get(name, ""), metric.quantity)
                ) is not None:
                    return value
        for label, row in labelled:
            if label in metric.labels:
                text, unit = row.cells.get("metric value", ""), row.cells.get("metric unit", "")
                if (value := parse_value(text, unit, metric.quantity)) is not None:
                    return value
        return None

    return lookup


def _tensor_pct(rows: list[Row]) -> float | None:
    for pattern in (_TENSOR_CYCLES, _TENSOR_INSTRUCTIONS):
        found = [
            value
            for row in rows
            if not row.is_details
            for name, text in row.cells.items()
            if pattern.fullmatch(name)
            and (value := parse_value(text, _unit_of(name, row.units), Quantity.PERCENT)) is not None
        ]
        if found:
            return max(found)
    return None


def _unit_of(name: str, units: Mapping[str, str]) -> str:
    return units.get(name, "")


def _occupancy_limiter(lookup: Lookup, found: Found) -> str:
    """What keeps more blocks from an SM: too small a grid, or the scarcest resource. Empty at full occupancy."""
    if float(found.get("waves_per_sm", 1.0)) < 1.0:
        return "grid"
    limits = {m.field: value for m in _LIMITS if (value := lookup(m)) is not None}
    if not limits or float(found.get("occupancy", 0.0)) >= 1.0:
        return ""
    return min(limits, key=lambda name: limits[name])
