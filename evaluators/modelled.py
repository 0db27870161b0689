"""Judging without a GPU: correctness under Triton's interpreter, latency from the model of a target GPU.

What comes out is labelled `modelled` everywhere and is compared with the modelled latency of the problem's first seed,
or, where there is none, of the reference as torch runs it eagerly.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from db.errors import SeedError
from db.records import (
    Candidate,
    Capture,
    Gate,
    GateResult,
    Latency,
    LatencyKind,
    Lineage,
    Problem,
    Profile,
    Verdict,
    Workload,
)
from evaluators.capture.capture import CaptureFailed
from evaluators.cascade import Cascade, Refusal
from evaluators.evaluator import Evaluator, EvaluatorSettings, Prepared
from evaluators.forwards import Forward
from evaluators.gates import correctness, first_program, speed
from evaluators.gates.first_program import Look
from evaluators.gates.launches import check_launches
from evaluators.gates.layout import borrowed_outputs
from evaluators.gates.model_gate import Exactness, exactness, max_abs_error, model_gate
from evaluators.gates.speed import Interval
from evaluators.gates.static import check_run
from evaluators.gates.work import check_work, operations_of, reads_of
from evaluators.hardware import load_hardware
from evaluators.input_sets import Drawn, InputSet, ReferenceSets, sets_of
from evaluators.interpreter.run import InputSet as Asked
from evaluators.interpreter.run import InterpretResult, interpret_sets
from evaluators.model.latency import ModelledLatency
from evaluators.modeller import Modeller
from evaluators.preparer import Preparer
from evaluators.problems.footprint import check_fits
from evaluators.report import BaselineReport, BaselineTime
from evaluators.sandbox.tensors import spec_of
from evaluators.versions import software_versions
from evaluators.zygotes import StartingZygotes

BUDGET_BYTES = 2 << 30  # of the judge's memory, for inputs and expected values at the small workload


class Unsupported(Exception):  # noqa: N818  an answer, not an error
    """The candidate cannot be judged without a GPU: not wrong, not ranked."""

    def __init__(self, gate: Gate, reason: str) -> None:
        super().__init__(reason)
        self.gate = gate
        self.reason = reason


class ModelledEvaluator(Evaluator):
    """Judges candidates of one problem for a GPU that is not here."""

    def __init__(self, problem: Problem, settings: EvaluatorSettings, zygotes: StartingZygotes | None = None) -> None:
        """Runs the reference at the small workload and models the problem's first seed, or the reference.

        Args:
            zygotes: started ahead; closed with the evaluator, or where it cannot be made.

        Raises:
            ConfigError: no such target.
            DeviceError: the problem does not fit in memory, of the target or of this machine.
            SeedError: no seed of the problem can be modelled, nor, where it has none, the reference.
        """
        self.problem = problem
        self.settings = settings
        self._resources = contextlib.ExitStack()
        self._zygotes = zygotes or StartingZygotes()
        self._resources.callback(self._zygotes.close)
        try:
            self.hardware = load_hardware(settings.target)
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        check_fits(self.problem, self.hardware)
        self._sets = ReferenceSets(
            self.problem, sets_of(self.problem, [self.problem.small], self.settings.secret_seed), "cpu", BUDGET_BYTES
        )
        self._resources.callback(self._sets.close)
        zygote = self._zygotes.compiler
        self._preparer = Preparer(self.problem, self.settings, self.hardware, keeps_cache=False, zygote=zygote)
        self._resources.callback(self._preparer.close)
        self._zygote = self._zygotes.interpreter
        deadline_s = self.settings.evaluate_deadline_s
        self._modeller = Modeller(self.problem, self.hardware, self._zygote, deadline_s=deadline_s)
        self._baseline_reads: dict[str, float] = {}  # bytes of inputs and weights, where the baseline is a seed
        self._baseline_operations = 0.0
        self._baseline = self._model_baseline()

    @property
    def baseline(self) -> BaselineReport:
        return self._baseline

    @property
    def isolation(self) -> str:
        return self._zygote.isolation

    @property
    def missing(self) -> tuple[str, ...]:
        return self._zygote.missing

    @property
    def forwards(self) -> tuple[Forward, ...]:
        return self._preparer.forwards

    def prepare(self, candidate: Candidate) -> Prepared:
        return self._preparer.prepare(candidate)

    def evaluate(self, prepared: Prepared) -> Verdict:
        if prepared.verdict is not None:
            return prepared.verdict
        cascade = Cascade(prepared, self.hardware, software_versions(), self.settings.precision)
        try:
            return self._judge(cascade)
        except Refusal as refusal:
            return cascade.failed(refusal)
        except Unsupported as unsupported:
            return cascade.unsupported(unsupported.gate, unsupported.reason)

    def profile(self, candidates: Sequence[Candidate], provisional: Sequence[Profile] = ()) -> list[Profile]:
        return [*provisional, *(self._profile(candidate) for candidate in candidates[len(provisional) :])]

    def close(self) -> None:
        self._resources.close()

    def _judge(self, cascade: Cascade) -> Verdict:
        candidate = cascade.prepared.candidate
        full = cascade.prepared.captures[0]
        with cascade.phase("correctness"):
            found, looks = self._check_all(cascade.prepared)
        n_sets = len(self._sets.sets)
        cascade.admit(GateResult(gate=Gate.CORRECTNESS, passed=True, evidence={"n_input_sets": n_sets}))
        result, cascade.error_ratio = model_gate(found, self.settings.precision)
        cascade.admit(first_program.held_to_more(result, looks) if looks else result)
        with cascade.phase("model"):
            modelled = self._model(candidate, full)
        work = check_work(modelled, self._baseline_reads, self._baseline_operations)
        if modelled.is_cut and not work.passed:
            raise Unsupported(Gate.INTEGRITY, f"its trace was cut short, and says: {work.reason}")
        cascade.admit(work)
        gain = self._baseline.device_us / modelled.device_us
        cascade.admit(speed.speed_gate(Interval(gain, gain, gain), speed.MARGIN, None, self._baseline.name))
        cascade.traced(modelled.capture)
        return cascade.correct(self._latency(modelled), modelled.profile)

    def _profile(self, candidate: Candidate) -> Profile:
        """What the model says of a program that nobody judged."""
        prepared = self.prepare(candidate)
        if prepared.verdict is not None:
            return Profile(source="none", note=prepared.verdict.reason)
        try:
            modelled = self._model(candidate, prepared.captures[0])
        except Unsupported as unsupported:
            return Profile(source="none", note=unsupported.reason)
        return modelled.profile.model_copy(update={"duration_us": modelled.device_us})

    def _check_all(self, prepared: Prepared) -> tuple[list[Exactness], list[Look]]:
        """Runs the candidate on every input set, in one child for each way of building it.

        How exact its outputs are, where float64 is known, and the closer looks that a program made from scratch gets.
        """
        candidate = prepared.candidate
        captures = {capture.workload: capture for capture in prepared.captures}
        found: list[Exactness] = []
        looks: list[Look] = []
        for sets in self._sets.built_alike:
            drawn = [self._sets.drawn(wanted) for wanted in sets]
            results = self._interpreted(candidate, sets[0].workload, drawn)
            # results end with the first that has no outputs, and that one is refused
            for wanted, d, result in zip(sets, drawn, results, strict=False):
                outputs = self._check(wanted, d, result, captures.get(wanted.workload.name))
                compared = zip(outputs, d.exact, d.errors, strict=True)
                found += [exactness(max_abs_error(o, x), e) for o, x, e in compared if x is not None and e is not None]
                if candidate.lineage.is_from_scratch and wanted.has_exact:
                    looks += first_program.look_at(outputs, d.expected, d.tolerances, d.exact, wanted.label)
            assert len(results) == len(drawn), "an input set was left out"
        return found, looks

    def _interpreted(self, candidate: Candidate, workload: Workload, drawn: Sequence[Drawn]) -> list[InterpretResult]:
        weights = self._sets.weights(workload)
        asked = []
        for d in drawn:
            borrowed = borrowed_outputs(d.expected, [*d.inputs, *weights.values()])
            asked.append(Asked(d.inputs, [spec_of(e) for e in d.expected], borrowed))
        return interpret_sets(
            self._zygote,
            source=candidate.source,
            entry_point=candidate.entry_point.value,
            init_args=self._sets.init_args(workload),
            weights=weights,
            sets=asked,
            deadline_s=self.settings.evaluate_deadline_s,
            hardware=self.hardware,
        )

    def _check(self, wanted: InputSet, drawn: Drawn, result: InterpretResult, capture: Capture | None) -> list[Tensor]:
        """The outputs. Raises `Refusal` or `Unsupported` unless they are what the reference makes of the set."""
        outputs = _outputs_of(result, wanted)
        for i, (output, expected, tolerance) in enumerate(zip(outputs, drawn.expected, drawn.tolerances, strict=True)):
            mismatch = correctness.compare(output, expected, tolerance)
            if mismatch is not None:
                which = f"output {i}: " if len(outputs) > 1 else ""
                reason = f"{which}{mismatch.describe()} ({wanted.label})"
                raise Refusal(Gate.CORRECTNESS, reason, mismatch._asdict())
        if result.changed_inputs:
            raise Refusal(Gate.INTEGRITY, f"input {result.changed_inputs[0]} was changed by the program")
        if result.changed_weights:
            raise Refusal(Gate.INTEGRITY, f"weight {result.changed_weights[0]!r} was changed by the program")
        ran = [check_run(result.torch_ops)]
        if capture is not None:
            ran.append(check_launches(capture, result.launches))
        for answer in ran:
            if not answer.passed:
                raise Refusal.of(answer)
        return outputs

    def _model(self, candidate: Candidate, capture: Capture) -> ModelledLatency:
        """The modelled latency at the timed workload. Raises `Unsupported` where there is none."""
        try:
            return self._modeller.model(candidate, capture)
        except CaptureFailed as failed:
            raise Unsupported(Gate.SPEED, f"its traffic cannot be traced: {failed.reason}") from failed
        except ValueError as error:
            raise Unsupported(Gate.SPEED, f"its latency cannot be modelled: {error}") from error

    def _latency(self, modelled: ModelledLatency) -> Latency:
        return Latency(
            kind=LatencyKind.MODELLED,
            method="model",
            device_us=modelled.device_us,
            low_us=modelled.device_us,
            high_us=modelled.device_us,
            baseline_us=self._baseline.device_us,
            baseline_name=self._baseline.name,
            floor_us=modelled.floor_us,
        )

    def _model_baseline(self) -> BaselineReport:
        """That of the first seed that can be modelled; where there is no seed, that of the eager reference."""
        sources = self.problem.seeds or ((self.problem.source,) if self.problem.kind == "triton" else ())
        if not sources:
            return self._report("eager", self._reference_us())
        failure: Unsupported | None = None
        for source in sources:
            candidate = _as_candidate(self.problem, source)
            prepared = self.prepare(candidate)
            try:
                if prepared.verdict is not None:
                    raise Unsupported(Gate.STATIC, prepared.verdict.reason)
                modelled = self._model(candidate, prepared.captures[0])
            except Unsupported as unsupported:
                failure = unsupported
                continue
            self._baseline_reads, self._baseline_operations = reads_of(modelled), operations_of(modelled)
            return self._report("seed", modelled.device_us)
        raise SeedError(
            f"no seed of problem {self.problem.name!r} can be modelled: {failure}",
            "without a GPU a search starts from a program that works; see `evolve check FILE --problem P`",
        ) from failure

    def _reference_us(self) -> float:
        """What the reference takes when torch runs it eagerly."""
        try:
            capture = self._preparer.capture_reference()
            return self._modeller.model_reference(capture, self.settings.precision).device_us
        except (CaptureFailed, ValueError) as error:
            raise SeedError(
                f"the reference of problem {self.problem.name!r} cannot be modelled: {error}",
                "without a GPU programs are then compared with a first one: give it with --seed-program FILE",
            ) from error

    def _report(self, name: Literal["eager", "seed"], device_us: float) -> BaselineReport:
        return BaselineReport(
            name=name,
            kind=LatencyKind.MODELLED,
            method="model",
            device_us=device_us,
            precision=self.settings.precision,
            times=(BaselineTime(name=name, method="model", device_us=device_us),),
            versions=software_versions(),
        )


def _outputs_of(result: InterpretResult, wanted: InputSet) -> list[Tensor]:
    """What the interpreter's child answered. Raises `Refusal` or `Unsupported` where it answered nothing."""
    if result.unsupported is not None:
        raise Unsupported(Gate.CORRECTNESS, result.unsupported)
    if result.failure is not None:
        raise Refusal(Gate.CORRECTNESS, f"{result.failure.reason} ({wanted.label})")
    assert result.outputs is not None
    return result.outputs


def _as_candidate(problem: Problem, source: str) -> Candidate:
    return Candidate(
        candidate_id="baseline",
        run_id="baseline",
        problem_id=problem.problem_id,
        island=0,
        source=source,
        entry_point=problem.entry_point,
        lineage=Lineage(operator="seed"),
    )
