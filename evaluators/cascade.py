"""The order of a judgement: gates answer one after the other, the first refusal ends it, every phase is clocked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from db.measures import classify
from db.records import (
    Capture,
    Gate,
    GateResult,
    Hardware,
    Latency,
    Outcome,
    PrecisionClass,
    Profile,
    Verdict,
)
from evaluators.evaluator import Prepared
from evaluators.profiling.diagnosis import architecture_of, diagnose


class Refusal(Exception):  # noqa: N818  a gate's answer, not an error
    """Raised inside a cascade when a gate says no. Never leaves `evaluate`."""

    def __init__(self, gate: Gate, reason: str, evidence: dict[str, object] | None = None) -> None:
        super().__init__(reason)
        self.result = GateResult(gate=gate, passed=False, reason=reason, evidence=evidence or {})

    @classmethod
    def of(cls, result: GateResult) -> Refusal:
        """A gate's own answer, as a refusal."""
        refusal = cls(result.gate, result.reason)
        refusal.result = result
        return refusal


class Cascade:
    """The gates of one candidate: collects their answers and seconds, and states the verdict."""

    def __init__(
        self, prepared: Prepared, hardware: Hardware, versions: dict[str, str], precision: PrecisionClass
    ) -> None:
        self.prepared = prepared
        self.gates: list[GateResult] = list(prepared.gates)
        self.seconds: dict[str, float] = dict(prepared.seconds)
        self.error_ratio: float | None = None
        self._hardware = hardware
        self._versions = versions
        self._precision = precision

    def admit(self, result: GateResult) -> None:
        """Notes an answer. Raises `Refusal` when it is a no of any gate but speed, which refuses no program."""
        if not result.passed and result.gate is not Gate.SPEED:
            raise Refusal.of(result)
        self.gates.append(result)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the wall-clock of its body to `seconds[name]`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def traced(self, capture: Capture) -> None:
        """Puts a capture with the traffic of its launches in the place of the plain one of its workload."""
        captures = (capture if c.workload == capture.workload else c for c in self.prepared.captures)
        self.prepared = self.prepared.model_copy(update={"captures": tuple(captures)})

    def failed(self, refusal: Refusal) -> Verdict:
        """The verdict of a candidate that a gate refused."""
        self.gates.append(refusal.result)
        return self._verdict(Outcome.FAILED)

    def unsupported(self, gate: Gate, reason: str) -> Verdict:
        """The verdict of a candidate that cannot be judged here: not wrong, not ranked."""
        self.gates.append(GateResult(gate=gate, passed=False, reason=reason))
        return self._verdict(Outcome.UNSUPPORTED)

    def correct(self, latency: Latency, profile: Profile) -> Verdict:
        """The verdict of a correct candidate, faster than the baseline or not."""
        speed = next((g for g in self.gates if g.gate is Gate.SPEED), None)
        tier = classify(profile.compute_sol_pct, profile.memory_sol_pct)
        whole = profile if profile.duration_us else profile.model_copy(update={"duration_us": latency.device_us})
        bottleneck = diagnose(
            whole,
            self.prepared.candidate.source,
            self.prepared.captures,
            architecture_of(self._hardware.compute_capability),
            tier,
            self._precision,
        )
        return self._verdict(
            Outcome.CORRECT,
            latency=latency,
            profile=profile,
            tier=tier,
            bottleneck=bottleneck,
            replaces_baseline=speed is not None and speed.passed,
        )

    def _verdict(self, outcome: Outcome, **parts: object) -> Verdict:
        candidate = self.prepared.candidate
        return Verdict.model_validate(
            {
                "candidate_id": candidate.candidate_id,
                "run_id": candidate.run_id,
                "problem_id": candidate.problem_id,
                "program_id": candidate.program_id,
                "hardware_id": self._hardware.hardware_id,
                "outcome": outcome,
                "gates": tuple(self.gates),
                "precision": self._precision,
                "error_ratio": self.error_ratio,
                "fingerprint": self.prepared.fingerprint,
                "captures": self.prepared.captures,
                "versions": self._versions,
                "seconds": {name: round(s, 4) for name, s in self.seconds.items()},
                **parts,
            }
        )
