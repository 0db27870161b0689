"""Actors that judge made-up programs: what they do to one stands in its source.

work = A        equal work has an equal fingerprint, whatever else the source says
us = 90.0       its latency
takes = 0.5     seconds that its evaluation takes
kills = 1       how many evaluators it takes down before one judges it
victim = zygote that it takes down the zygote of an evaluator instead
refused = why   the static gate refuses it
log = FOLDER    where each call leaves a line
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

import ray

from db.errors import DeviceError
from db.measures import Tier
from db.records import (
    Candidate,
    EntryPoint,
    Gate,
    GateResult,
    Latency,
    LatencyKind,
    Lineage,
    Outcome,
    Profile,
    Verdict,
)
from evaluators.evaluator import Prepared
from evaluators.report import BaselineReport, EvaluatorReport
from evaluators.sandbox import ZygoteEndedError
from support import runs

for module in (sys.modules[__name__], runs):  # the workers of Ray cannot import what only tests can
    ray.cloudpickle.register_pickle_by_value(module)

VERSIONS = {"judge": "1"}
BASELINE_US = 100.0


def make_report() -> EvaluatorReport:
    baseline = BaselineReport(name="compile", kind=LatencyKind.MEASURED, method="graph", device_us=BASELINE_US)
    return EvaluatorReport(hardware=runs.make_hardware(), baseline=baseline, versions=VERSIONS, isolation="subreaper")


def make_candidate(number: int, log: Path, **says: object) -> Candidate:
    """A candidate whose source says what is to be done to it."""
    lines = [f"{name} = {value}" for name, value in {"log": log, **says}.items()]
    return Candidate(
        candidate_id=f"run-0-{number:06d}",
        run_id="run",
        problem_id="problem",
        island=0,
        source="\n".join(lines),
        entry_point=EntryPoint.MODEL,
        lineage=Lineage(operator="retune"),
    )


def said(candidate: Candidate, name: str, default: str = "") -> str:
    """What a candidate's source says of a name."""
    found = re.search(rf"^{name} = (.*)$", candidate.source, re.MULTILINE)
    return found.group(1) if found else default


def calls(log: Path) -> list[str]:
    """The calls that left a line, in order: "prepare run-0-000001"."""
    file = log / "calls.txt"
    return file.read_text().splitlines() if file.exists() else []


def note(candidate: Candidate, call: str) -> None:
    if folder := said(candidate, "log"):
        with Path(folder, "calls.txt").open("a") as file:
            file.write(f"{call} {candidate.candidate_id}\n")


def make_verdict(
    candidate: Candidate, refusal: str = "", *, gate: Gate = Gate.STATIC, versions: dict[str, str] = VERSIONS
) -> Verdict:
    by_chance = 50 + int(candidate.program_id, 16) % 10_000 / 100
    latency = Latency(
        kind=LatencyKind.MEASURED,
        method="graph",
        device_us=float(said(candidate, "us", str(by_chance))),
        low_us=1.0,
        high_us=1e6,
        baseline_us=BASELINE_US,
        baseline_name="compile",
    )
    return Verdict(
        candidate_id=candidate.candidate_id,
        run_id=candidate.run_id,
        problem_id=candidate.problem_id,
        program_id=candidate.program_id,
        hardware_id=runs.make_hardware().hardware_id,
        outcome=Outcome.FAILED if refusal else Outcome.CORRECT,
        gates=(GateResult(gate=gate, passed=not refusal, reason=refusal),),
        latency=None if refusal else latency,
        tier=None if refusal else Tier.MEMORY_BOUND,
        profile=None if refusal else Profile(source="compiled", memory_sol_pct=70.0),
        fingerprint=said(candidate, "work"),
        versions=versions,
        seconds={"timing": 0.1},
    )


@ray.remote(num_cpus=0, max_concurrency=4)
class MadeUpPreparer:
    def prepare(self, candidate: Candidate, report: EvaluatorReport) -> Prepared:
        note(candidate, "prepare")
        refusal = said(candidate, "refused")
        verdict = make_verdict(candidate, refusal) if refusal else None
        modelled_us = float(said(candidate, "modelled", "0")) or None
        return Prepared(
            candidate=candidate, fingerprint=said(candidate, "work"), verdict=verdict, modelled_us=modelled_us
        )


@ray.remote(num_cpus=0, max_concurrency=4, max_restarts=-1)
class MadeUpEvaluator:
    def evaluate(self, prepared: Prepared) -> Verdict:
        candidate = prepared.candidate
        note(candidate, "evaluate")
        kills = int(said(candidate, "kills", "0"))
        if kills and calls(Path(said(candidate, "log"))).count(f"evaluate {candidate.candidate_id}") <= kills:
            if said(candidate, "victim") == "zygote":
                raise ZygoteEndedError("the zygote has ended while a candidate was in its child")
            os._exit(1)
        time.sleep(float(said(candidate, "takes", "0")))
        if said(candidate, "work") == "no gpu":
            raise DeviceError("the GPU is gone", "look for it")
        if said(candidate, "wrong") or (said(candidate, "lucky") and candidate.lineage.operator == "confirm"):
            return make_verdict(candidate, "it differs from the reference", gate=Gate.CORRECTNESS)
        return make_verdict(candidate)


@ray.remote(num_cpus=0, max_concurrency=4)
class ForeignEvaluator:
    """Judges with other software than the run began with."""

    def evaluate(self, prepared: Prepared) -> Verdict:
        note(prepared.candidate, "foreign")
        return make_verdict(prepared.candidate, versions={**VERSIONS, "triton": "3.5.0"})


@ray.remote(num_cpus=0)
class BornDead:
    def __init__(self) -> None:
        raise RuntimeError("no libtriton here")

    def evaluate(self, prepared: Prepared) -> Verdict:
        raise NotImplementedError
