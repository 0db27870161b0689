"""One candidate before the judge, on a GPU: is it right, is it honest, how fast is it."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from db.records import Gate, GateResult, Hardware, Latency, LatencyKind, PrecisionClass, Problem
from evaluators.baselines import Baseline, n_calls_for
from evaluators.cascade import Cascade, Refusal
from evaluators.gates import correctness, first_program, integrity, speed
from evaluators.gates.first_program import Look
from evaluators.gates.model_gate import Exactness, exactness, max_abs_error, model_gate
from evaluators.gates.speed import Interval, median_interval
from evaluators.gates.static import check_run, computing_operations
from evaluators.gpu_session import SessionLost, asked
from evaluators.input_sets import Drawn, InputSet, ReferenceSets
from evaluators.measured_profile import Work
from evaluators.session_pool import OpenSession
from evaluators.timing import Method, Rotation

N_FIRST_LOOK = 3
N_FRESH_LOOKS = 8  # contexts that others make stall up to a third of single replays: no program is slow eight times so
N_REPLAYS = 7
MAX_REPLAYS = 31
STEADY = 0.02  # width of the interval over the median that needs no more replays
MIN_ROUNDS = 6  # fewer paired rounds have no 95% interval
MAX_ROUNDS = 15
N_CALL_ROUNDS = 5
SUSTAINED_S = 0.02


@dataclass
class Bench:
    """What the judge keeps on the GPU for all candidates of a run."""

    problem: Problem
    hardware: Hardware
    precision: PrecisionClass
    sets: ReferenceSets
    work: Work
    rotation: Rotation
    baseline: Baseline
    best_us: float | None = None
    watch: random.Random = field(default_factory=random.SystemRandom)

    def secret_full_set(self) -> InputSet:
        """A set of the timed workload that no candidate has seen before it is timed."""
        full = [s for s in self.sets.sets if s.workload.role == "full"]
        return next((s for s in full if s.is_secret), full[-1])

    def note(self, latency: Latency) -> None:
        """Remembers the fastest correct program, which decides who deserves a second look."""
        self.best_us = min(self.best_us or math.inf, latency.device_us)


class Paired(NamedTuple):
    """Interleaved rounds of program and baseline."""

    program_us: list[float]
    baseline_us: list[float]

    @property
    def gains(self) -> list[float]:
        return [b / p for p, b in zip(self.program_us, self.baseline_us, strict=True)]


class Judgement:
    """The gates that need the GPU. Whoever calls holds its lock."""

    def __init__(self, bench: Bench, cascade: Cascade, session: OpenSession) -> None:
        self._bench = bench
        self._cascade = cascade
        self._session = session
        self._looks: list[Look] = []  # of a program that was made from scratch
        self._same_without_kernels: list[bool] = []  # for sets on which host code called a library

    @contextlib.contextmanager
    def answering(self, gate: Gate, phase: str) -> Iterator[None]:
        """Clocks a phase; a child that is lost in it is refused by this gate, and gone before the next is judged."""
        try:
            with self._cascade.phase(phase):
                yield
        except SessionLost as lost:
            self._session.end()
            raise Refusal(gate, str(lost)) from lost
        except torch.OutOfMemoryError as error:  # the judge's own: the child left it nothing
            self._session.end()
            torch.cuda.empty_cache()
            raise Refusal(gate, "it leaves no memory on the GPU to compare its outputs") from error

    def load(self) -> None:
        """Imports, builds and compiles the candidate in its child. Needs no lock."""
        candidate = self._cascade.prepared.candidate
        with self.answering(Gate.STATIC, "load"):
            self._session.give_cache(self._cascade.prepared.cache_dir)
            self._session.load({"source": candidate.source, "entry_point": candidate.entry_point.value})

    def decide(self) -> Latency:
        """Correctness, model, integrity and speed, in this order. Raises `Refusal` at the first no."""
        with self.answering(Gate.CORRECTNESS, "correctness"):
            found = [e for wanted in self._bench.sets.sets for e in self._check(wanted)]
        ghost = integrity.check_ghost(self._same_without_kernels)
        if not ghost.passed:
            raise Refusal.of(ghost)
        n_sets = len(self._bench.sets.sets)
        self._cascade.admit(GateResult(gate=Gate.CORRECTNESS, passed=True, evidence={"n_input_sets": n_sets}))
        result, self._cascade.error_ratio = model_gate(found, self._bench.precision)
        self._cascade.admit(first_program.held_to_more(result, self._looks) if self._looks else result)
        with self.answering(Gate.INTEGRITY, "timing"):
            latency = self._measure()
        self._bench.note(latency)
        return latency

    def _check(self, wanted: InputSet) -> list[Exactness]:
        """Runs the candidate on one input set; how exact its outputs are, where float64 is known."""
        slot, drawn = self._session.slot, self._bench.sets.drawn(wanted)
        slot.write(wanted.workload, drawn)
        asked(Gate.CORRECTNESS, self._session.check(wanted.workload), wanted.label)
        ran = check_run(self._session.torch_ops, self._bench.baseline.report.extern_ops)
        if not ran.passed:
            raise Refusal.of(ran)
        self._compare(wanted, drawn, Gate.CORRECTNESS)
        unchanged = slot.check_inputs(wanted.workload, drawn)
        if not unchanged.passed:
            self._cascade.admit(unchanged)
        outputs = slot.delivered(wanted.workload)
        if self._cascade.prepared.candidate.lineage.is_from_scratch and wanted.has_exact:
            bounds = drawn.tolerances
            self._looks += first_program.look_at(outputs, drawn.expected, bounds, drawn.exact, wanted.label)
        found = zip(outputs, drawn.exact, drawn.errors, strict=True)
        ratios = [exactness(max_abs_error(o, x), e) for o, x, e in found if x is not None and e is not None]
        self._check_idle(wanted, drawn)
        return ratios

    def _check_idle(self, wanted: InputSet, drawn: Drawn) -> None:
        """Where host code calls a library that computes: whether the program's own kernels change what it delivers."""
        if False in self._same_without_kernels or not computing_operations(self._session.torch_ops):
            return
        self._session.slot.write(wanted.workload, drawn)
        refused = self._session.idle(wanted.workload)
        self._same_without_kernels.append(not refused and not any(self._mismatches(wanted, drawn)))

    def _compare(self, wanted: InputSet, drawn: Drawn, gate: Gate) -> None:
        """Raises `Refusal` unless what the child delivered is what the reference makes of the set."""
        for i, mismatch in self._mismatches(wanted, drawn):
            which = f"output {i}: " if len(drawn.expected) > 1 else ""
            raise Refusal(gate, f"{which}{mismatch.describe()} ({wanted.label})", mismatch._asdict())

    def _mismatches(self, wanted: InputSet, drawn: Drawn) -> Iterator[tuple[int, correctness.Mismatch]]:
        """The outputs that are not what the reference makes of the set, by number."""
        delivered = self._session.slot.delivered(wanted.workload)
        compared = map(correctness.compare, delivered, drawn.expected, drawn.tolerances)
        return ((i, mismatch) for i, mismatch in enumerate(compared) if mismatch is not None)

    def _measure(self) -> Latency:
        bench, session = self._bench, self._session
        full = bench.problem.full
        session.slot.write(full, bench.sets.drawn(next(s for s in bench.sets.sets if s.workload == full)))
        method: Method | None = "events" if bench.baseline.report.method == "events" else None
        session.time(full, bench.rotation, bench.watch.randrange(1 << 30), method)
        found = self._steady(session.replay_us(N_FIRST_LOOK))
        self._check_floor(median_interval(found))
        known = bench.baseline.report
        is_comparable = session.method == known.method  # what events time is compared with what events time only
        if is_comparable and speed.is_clearly_slower(median_interval(found).median, known.device_us, bench.best_us):
            # it may hold a cell, and what keeps answers shows here; nobody lies to look slower, so no clock is asked
            self._check_freshly(median_interval(found).median)
            self._cascade.admit(GateResult(gate=Gate.INTEGRITY, passed=True))
            return self._without_pairing(found)
        found = self._steady(found + session.replay_us(N_REPLAYS - N_FIRST_LOOK))
        device_us = median_interval(found).median
        self._check_honesty(device_us)
        self._cascade.admit(GateResult(gate=Gate.INTEGRITY, passed=True))
        if is_comparable and device_us > known.device_us * (1 + speed.noise_margin(device_us)):
            return self._without_pairing(found)
        return self._paired(found)

    def _steady(self, found: list[float]) -> list[float]:
        """More replays while they disagree: other processes that make their contexts disturb a few in a row."""
        while median_interval(found).width > STEADY and len(found) < MAX_REPLAYS:
            found = found + self._session.replay_us(N_REPLAYS - N_FIRST_LOOK)
        return found

    def _check_floor(self, device: Interval) -> None:
        rotation, work, hardware = self._session.rotation, self._bench.work, self._bench.hardware
        # a reference that need not read all of its inputs is faster than moving them would be
        moved = min(work.moved_bytes, int(self._bench.baseline.report.device_us * hardware.dram_gb_s * 1e3))
        answer = integrity.check_floor(device.median, moved, rotation.rotated_bytes(work.moved_bytes), hardware)
        if not answer.passed:
            self._cascade.admit(answer)

    def _check_honesty(self, device_us: float) -> None:
        """The child's clock against the judge's, and the timed program on inputs that it never saw."""
        for is_last in (False, False, True):
            answer = self._check_clock(device_us)
            if answer.passed:
                break
            if is_last:
                self._cascade.admit(answer)
        self._check_freshly(device_us)

    def _check_freshly(self, device_us: float) -> None:
        """The timed program's outputs on inputs that it never saw, and how long it takes with such."""
        for shift in range(1, N_FRESH_LOOKS + 1):
            answer = integrity.check_fresh(self._verify_timed(shift), device_us)
            if answer.passed:
                break
            if shift == N_FRESH_LOOKS:
                self._cascade.admit(answer)

    def _check_clock(self, device_us: float) -> GateResult:
        """One comparison. A process that makes its context stalls the GPU for 40 ms, so one failure proves nothing."""
        session = self._session
        replay_s = 1e-6 * device_us * session.n_launches
        n = max(1, math.ceil(SUSTAINED_S / replay_s))
        sustained_s, watched_s = session.sustain(n)
        # calls that events time one by one wait for the host when nothing is flushed between them
        replayed_s = n * replay_s if session.method == "graph" else sustained_s
        return integrity.check_clock(replayed_s, sustained_s, watched_s)

    def _verify_timed(self, shift: int) -> float:
        """Fresh inputs for the sets that were timed: what the same launches make of them must be right. How long one
        takes with them, in microseconds."""
        session, bench = self._session, self._bench
        wanted = bench.secret_full_set()
        drawn = bench.sets.drawn(wanted)
        session.slot.write(wanted.workload, drawn)
        refused, fresh_us = session.verify(shift)
        asked(Gate.INTEGRITY, refused, "after timing")
        try:
            self._compare(wanted, drawn, Gate.INTEGRITY)
        except Refusal as refusal:
            raise Refusal(Gate.INTEGRITY, f"right when checked, wrong when timed: {refusal}") from refusal
        return fresh_us

    def _without_pairing(self, found: list[float]) -> Latency:
        """A program that does not beat the baseline: a latency, and a no of the speed gate."""
        device, report = median_interval(found), self._bench.baseline.report
        reason = f"slower than {report.name}: {device.median:.4g} us against {report.device_us:.4g} us"
        if device.median <= report.device_us:
            reason = f"no faster than {report.name} beyond the noise: {device.median:.4g} us"
        self._cascade.admit(GateResult(gate=Gate.SPEED, passed=False, reason=reason))
        return self._latency(device, report.device_us, report.call_us, None)

    def _paired(self, found: list[float]) -> Latency:
        """A program that may beat the baseline: interleaved rounds of both, device and call latency."""
        session, baseline = self._session, self._bench.baseline
        baseline.use(session.method)
        margin = speed.noise_margin(median_interval(found).median)
        device = self._rounds(margin)
        calls = self._call_rounds(median_interval(found).median)
        gain = median_interval(device.gains)
        call_ratio = median_interval([1 / g for g in calls.gains])
        self._cascade.admit(speed.speed_gate(gain, margin, call_ratio, baseline.report.name))
        baseline_us = median_interval(device.baseline_us).median
        call_us = median_interval(calls.program_us).median
        baseline_call_us = median_interval(calls.baseline_us).median
        return self._latency(median_interval(found + device.program_us), baseline_us, baseline_call_us, call_us)

    def _rounds(self, margin: float) -> Paired:
        """Replays of both in turn, order swapped each time, until the gain is settled or the rounds are used up."""
        session, baseline = self._session, self._bench.baseline
        paired = Paired([], [])
        session.replay_us(1)
        while len(paired.gains) < MAX_ROUNDS:
            if len(paired.gains) % 2:
                paired.program_us.extend(session.replay_us(1))
                paired.baseline_us.extend(baseline.replay_us(1))
            else:
                paired.baseline_us.extend(baseline.replay_us(1))
                paired.program_us.extend(session.replay_us(1))
            if len(paired.gains) >= MIN_ROUNDS and speed.is_settled(paired.gains, margin):
                break
        return paired

    def _call_rounds(self, device_us: float) -> Paired:
        paired = Paired([], [])
        n_calls = n_calls_for(device_us)
        for _ in range(N_CALL_ROUNDS):
            paired.program_us.extend(self._session.call_us(n_calls, 1))
            paired.baseline_us.extend(self._bench.baseline.call_us(n_calls, 1))
        return paired

    def _latency(
        self, device: Interval, baseline_us: float, baseline_call_us: float | None, call_us: float | None
    ) -> Latency:
        return Latency(
            kind=LatencyKind.MEASURED,
            method=self._session.method,
            device_us=device.median,
            low_us=device.low,
            high_us=device.high,
            baseline_us=baseline_us,
            baseline_name=self._bench.baseline.report.name,
            call_us=call_us,
            baseline_call_us=baseline_call_us,
            floor_us=integrity.floor_us(self._bench.work.moved_bytes, self._bench.hardware),
        )
