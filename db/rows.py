"""An evaluation as one row of the table `evaluations`: flat columns for what people ask, whole records beside them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from db.hashing import content_hash
from db.measures import TIERS, MeasureSpace, Tier
from db.records import Capture, Evaluation, Lineage, Verdict

# what an insert writes, in the order of `row_of`
COLUMNS: dict[str, str] = {
    "seq": "BIGINT",
    "candidate_id": "VARCHAR",
    "run_id": "VARCHAR",
    "problem_id": "VARCHAR",
    "island": "INTEGER",
    "program_id": "VARCHAR",
    "entry_point": "VARCHAR",
    "hardware_id": "VARCHAR",
    "precision": "VARCHAR",
    "outcome": "VARCHAR",
    "gate": "VARCHAR",
    "reason": "VARCHAR",
    "replaces_baseline": "BOOLEAN",
    "error_ratio": "DOUBLE",
    "compute_sol_pct": "DOUBLE",
    "memory_sol_pct": "DOUBLE",
    "profile_source": "VARCHAR",
    "state": "VARCHAR",
    "parent_state": "VARCHAR",
    "predicted_octaves": "DOUBLE",
    "fingerprint": "VARCHAR",
    "duplicate_of": "VARCHAR",
    "operator": "VARCHAR",
    "technique": "VARCHAR",
    "parents": "VARCHAR[]",
    "source_bytes": "INTEGER",
    "created_s": "DOUBLE",
    "lineage": "JSON",
    "verdict": "JSON",
    "captures": "JSON",
    "source": "VARCHAR",
    "latency_kind": "VARCHAR",
    "latency_us": "DOUBLE",
    "low_us": "DOUBLE",
    "high_us": "DOUBLE",
    "call_us": "DOUBLE",
    "baseline_us": "DOUBLE",
    "baseline_call_us": "DOUBLE",
    "baseline_name": "VARCHAR",
    "floor_us": "DOUBLE",
    "speedup": "DOUBLE",
    "tier": "VARCHAR",
    "latency_bin": "INTEGER",
    "grid": "UBIGINT",
    "cell": "INTEGER",
    "rank_us": "DOUBLE",
}

# what counters that come later may change
REPROFILED = ("compute_sol_pct", "memory_sol_pct", "profile_source", "state", "tier", "cell", "verdict")

_N_PLACE_COLUMNS = list(COLUMNS).index("rank_us") - list(COLUMNS).index("latency_kind") + 1
_TIE_PER_BYTE = 1e-12  # a 4 KiB source counts as 4e-9 slower: far below what can be measured, enough to break a tie
_SPACE = MeasureSpace()

# what writes JSON, without a check of arguments that takes a quarter of the time
_LINEAGES = TypeAdapter(Lineage).serializer
_VERDICTS = TypeAdapter(Verdict).serializer
_CAPTURES = TypeAdapter(tuple[Capture, ...], config=ConfigDict(ser_json_inf_nan="strings")).serializer
_ELSEWHERE = {"captures"}


def row_of(evaluation: Evaluation, seq: int) -> tuple[Any, ...]:
    """The values of `COLUMNS`. `seq` counts the rows of an archive."""
    candidate, verdict = evaluation.candidate, evaluation.verdict
    lineage, profile = candidate.lineage, verdict.profile
    n_bytes = _n_bytes_of(candidate.source)
    refusal = next((gate for gate in verdict.gates if not gate.passed), None)
    return (
        seq,
        verdict.candidate_id,
        verdict.run_id,
        verdict.problem_id,
        candidate.island,
        verdict.program_id,
        candidate.entry_point,
        verdict.hardware_id,
        verdict.precision,
        verdict.outcome,
        refusal.gate if refusal else None,
        refusal.reason if refusal else "",
        verdict.replaces_baseline,
        verdict.error_ratio,
        profile.compute_sol_pct if profile else None,
        profile.memory_sol_pct if profile else None,
        profile.source if profile else None,
        verdict.bottleneck.state.key if verdict.bottleneck else None,
        lineage.state or None,
        lineage.predicted_octaves,
        verdict.fingerprint,
        verdict.duplicate_of,
        lineage.operator,
        lineage.technique,
        list(lineage.parents),
        n_bytes,
        evaluation.created_at,
        _LINEAGES.to_json(lineage).decode(),
        _verdict_json(verdict),
        _CAPTURES.to_json(verdict.captures).decode(),
        candidate.source,
        *_place_of(verdict, n_bytes),
    )


def reprofiled(verdict: Verdict) -> tuple[Any, ...]:
    """The values of `REPROFILED`, for a correct verdict with a profile."""
    assert verdict.profile is not None and verdict.latency is not None and verdict.tier is not None
    latency_bin = _SPACE.latency_bin_of(verdict.latency.device_us)
    return (
        verdict.profile.compute_sol_pct,
        verdict.profile.memory_sol_pct,
        verdict.profile.source,
        verdict.bottleneck.state.key if verdict.bottleneck else None,
        verdict.tier,
        _cell_of(verdict.tier, latency_bin),
        _verdict_json(verdict),
    )


def _n_bytes_of(source: str) -> int:
    return len(source) if source.isascii() else len(source.encode())


def _verdict_json(verdict: Verdict) -> str:
    return _VERDICTS.to_json(verdict, exclude=_ELSEWHERE).decode()


def _cell_of(tier: Tier, latency_bin: int) -> int:
    return TIERS.index(tier) * _SPACE.n_latency_bins + latency_bin - _SPACE.lowest_bin


@lru_cache(maxsize=64)
def _grid_of(*key: str) -> int:
    return int(content_hash(*key), 16)


def _place_of(verdict: Verdict, n_bytes: int) -> tuple[Any, ...]:
    """Latency and cell, `latency_kind` up to `rank_us`; all None unless the verdict has a latency."""
    latency, tier = verdict.latency, verdict.tier
    if latency is None or tier is None:
        return (None,) * _N_PLACE_COLUMNS
    latency_bin = _SPACE.latency_bin_of(latency.device_us)
    return (
        latency.kind,
        latency.device_us,
        latency.low_us,
        latency.high_us,
        latency.call_us,
        latency.baseline_us,
        latency.baseline_call_us,
        latency.baseline_name,
        latency.floor_us,
        latency.speedup,
        tier,
        latency_bin,
        _grid_of(verdict.problem_id, verdict.hardware_id, latency.kind, verdict.precision),
        _cell_of(tier, latency_bin),
        latency.device_us * (1 + _TIE_PER_BYTE * n_bytes),
    )
