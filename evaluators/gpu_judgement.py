"""One candidate before the judge, on a GPU: is it right, is it honest, how fast is it."""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from db.errors import DeviceError
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
from evaluators.timed_sets import Draws, TimedSets
from evaluators.timing import Method, Rotation

N_FIRST_LOOK = 3
LOOKS_AT_ANY, LOOKS_AT_BEST = 1, 3  # at the least, on fresh inputs; those at one that may replace the baseline
MAX_LOOKS = 12  # contexts that others make stall up to a third of single replays
N_EVENTS_IN_A_LOOK = 4
MOST_COMPARED = 16  # launches of one that may replace the baseline, while they take no longer than this
COMPARED_S = 0.02
N_REPLAYS = 7
MAX_REPLAYS = 31
STEADY = 0.02  # width of the interval over the median that needs no more replays
MIN_ROUNDS = 6  # fewer paired rounds have no 95% interval
MAX_ROUNDS = 15
N_CALL_ROUNDS = 5
N_BELIEVED = 3  # tries, each with new claims and new clocks
SUSTAINED_S = 0.03
N_CLOCKS = 3  # tries: a process that makes its context stalls the GPU for 40 ms, so one failure proves nothing


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
    device: str = "cuda"

    def __post_init__(self) -> None:
        self.draws = Draws(self.sets.references[self.problem.full.name], self.watch, self.device)

    def note(self, latency: Latency) -> None:
        """Remembers the fastest correct program, which decides who deserves a second look."""
        self.best_us = min(self.best_us or math.inf, latency.device_us)


class Paired(NamedTuple):
    """Interleaved rounds of program and baseline."""

    program_us: list[float]
    baseline_us: list[float]
    watched_s: list[float]  # what the judge saw of the program's share of a round
    control_s: list[float]  # and of the baseline's, beyond what that claims

    def check(self, n_launches: int) -> GateResult:
        """Whether the program's claims fit the judge's clock; a claim is for one of so many launches."""
        claimed_s = [1e-6 * us * n_launches for us in self.program_us]
        return integrity.check_rounds(claimed_s, self.watched_s, self.control_s)

    @property
    def gains(self) -> list[float]:
        return [b / p for p, b in zip(self.program_us, self.baseline_us, strict=True)]


def is_out_of_memory(error: Exception) -> bool:
    """Whether the GPU had no room left, also where a reference or its inputs were what asked for it."""
    return any(isinstance(one, torch.OutOfMemoryError) for one in (error, error.__cause__))


class Judgement:
    """The gates that need the GPU. Whoever calls holds its lock."""

    def __init__(self, bench: Bench, cascade: Cascade, session: OpenSession) -> None:
        self._bench = bench
        self._cascade = cascade
        self._session = session
        self._looks: list[Look] = []  # of a program that was made from scratch
        self._same_without_kernels: list[bool] = []  # for sets on which host code called a library
        self._timed = TimedSets(bench.sets, bench.problem.full, session.slot, bench.draws)
        self._watched = bench.watch.randrange(1 << 30)

    @contextlib.contextmanager
    def answering(self, gate: Gate, phase: str) -> Iterator[None]:
        """Clocks a phase; a child that is lost in it is refused by this gate, and gone before the next is judged."""
        try:
            with self._cascade.phase(phase):
                yield
        except SessionLost as lost:
            self._session.end()
            raise Refusal(gate, str(lost)) from lost
        except (torch.OutOfMemoryError, DeviceError) as error:
            if not is_out_of_memory(error):
                raise
            self._session.end()  # the memory is the judge's own: the child left it nothing
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
            self._check_rest()
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
        unchanged = slot.check_inputs(wanted.workload, drawn.inputs)
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

    def _check_rest(self) -> None:
        """What no program may change: weights, memory between tensors, the state of its process."""
        for answer in (self._session.slot.check_rest(), integrity.check_state(self._session.changes())):
            if not answer.passed:
                raise Refusal.of(answer)

    def _measure(self) -> Latency:
        bench, session = self._bench, self._session
        self._timed.renew()
        method: Method | None = "events" if bench.baseline.report.method == "events" else None
        session.time(bench.problem.full, bench.rotation, self._watched, method)
        found = self._steady(session.replay_us(N_FIRST_LOOK))
        self._check_floor(median_interval(found))
        known = bench.baseline.report
        is_comparable = session.method == known.method  # what events time is compared with what events time only
        if is_comparable and speed.is_clearly_slower(median_interval(found).median, known.device_us, bench.best_us):
            # it may hold a cell, and what keeps answers shows here; nobody lies to look slower, so no clock is asked
            return self._without_pairing(found)
        found = self._steady(found + session.replay_us(N_REPLAYS - N_FIRST_LOOK))
        device_us = median_interval(found).median
        if is_comparable and device_us > known.device_us * (1 + speed.noise_margin(device_us)):
            return self._without_pairing(self._clocked(found))
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

    def _clocked(self, found: list[float]) -> list[float]:
        """Replays whose claims fit the judge's clock: these, or newer ones where something has disturbed them."""
        for _ in range(N_BELIEVED):
            answer = self._clock(median_interval(found).median)
            if answer.passed:
                return found
            found = self._session.replay_us(N_REPLAYS)
        raise Refusal.of(answer)

    def _clock(self, device_us: float, spare_s: float = 0.0) -> GateResult:
        """The child's clock against the judge's, over work without a pause, and against what it claimed before."""
        session = self._session
        replay_s = 1e-6 * device_us * session.n_launches
        n = max(1, math.ceil(SUSTAINED_S / replay_s))
        for _ in range(N_CLOCKS):
            sustained_s, watched_s = session.sustain(n)
            # calls that events time one by one wait for the host when nothing is flushed between them
            replayed_s = n * replay_s if session.method == "graph" else sustained_s
            answer = integrity.check_clock(replayed_s, sustained_s, watched_s, spare_s)
            if answer.passed:
                break
        return answer

    def _check_freshly(self, device_us: float, least: int) -> None:
        """How much longer the timed launches take on inputs that they never saw, and what they make of those."""
        ratios: list[float] = []
        while len(ratios) < MAX_LOOKS:
            ratios.append(self._look())
            answer = integrity.check_fresh(ratios, speed.noise_margin(device_us), least)
            if answer is not None and answer.passed:
                return
            if answer is not None:
                raise Refusal.of(answer)

    def _look(self) -> float:
        """New inputs in all sets: the time of a replay over that of the next on the same, all else being alike. One
        launch of the first is compared; nobody knew which."""
        self._timed.renew()
        fresh_us = self._replay_us()
        self._compare_launch(self._bench.watch.choice(self._comparable()))
        self._timed.write()
        return fresh_us / self._replay_us()

    def _replay_us(self) -> float:
        session = self._session
        n = 1 if session.method == "graph" else min(session.rotation.n_sets, N_EVENTS_IN_A_LOOK)
        return median_interval(session.replay_us(n)).median

    def _comparable(self) -> list[int]:
        session = self._session
        return session.rotation.comparable(session.method, self._watched)

    def _compare_launches(self) -> None:
        """More launches of the last replay, at random: one that does less may be any of them."""
        launches, end = self._comparable(), time.perf_counter() + COMPARED_S
        for launch in self._bench.watch.sample(launches, min(MOST_COMPARED, len(launches))):
            self._compare_launch(launch)
            if time.perf_counter() > end:
                return

    def _compare_launch(self, launch: int) -> None:
        """Raises `Refusal` unless a launch of the last replay made what the reference makes of its inputs."""
        self._session.slot.poison(self._timed.workload)
        asked(Gate.INTEGRITY, self._session.deliver(launch), "after timing")
        self._compare_timed(launch)

    def _compare_timed(self, launch: int) -> None:
        """What was delivered of a launch or a call on the timed sets, and its inputs."""
        try:
            self._compare(self._timed.wanted, self._timed.drawn(launch), Gate.INTEGRITY)
        except Refusal as refusal:
            raise Refusal(Gate.INTEGRITY, f"right when checked, wrong when timed: {refusal}") from refusal
        unchanged = self._timed.check_inputs(launch)
        if not unchanged.passed:
            raise Refusal.of(unchanged)

    def _without_pairing(self, found: list[float]) -> Latency:
        """A program that does not beat the baseline: a latency, and a no of the speed gate."""
        device, report = median_interval(found), self._bench.baseline.report
        self._check_freshly(device.median, LOOKS_AT_ANY)
        self._check_rest()
        self._cascade.admit(GateResult(gate=Gate.INTEGRITY, passed=True))
        reason = f"slower than {report.name}: {device.median:.4g} us against {report.device_us:.4g} us"
        if device.median <= report.device_us:
            reason = f"no faster than {report.name} beyond the noise: {device.median:.4g} us"
        self._cascade.admit(GateResult(gate=Gate.SPEED, passed=False, reason=reason))
        return self._latency(device, report.device_us, report.call_us, None)

    def _paired(self, found: list[float]) -> Latency:
        """A program that may beat the baseline: interleaved rounds of both, device and call latency; looked at more
        closely if it does."""
        baseline, device_us = self._bench.baseline, median_interval(found).median
        baseline.use(self._session.method)
        margin, n_calls = speed.noise_margin(device_us), n_calls_for(device_us)
        device = self._believed(lambda: self._rounds(margin), self._check_rounds)
        calls = self._believed(lambda: self._call_rounds(n_calls), lambda rounds: rounds.check(n_calls))
        gain = median_interval(device.gains)
        call_ratio = median_interval([1 / g for g in calls.gains])
        answer = speed.speed_gate(gain, margin, call_ratio, baseline.report.name)
        self._check_freshly(device_us, LOOKS_AT_BEST if answer.passed else LOOKS_AT_ANY)
        if answer.passed:
            self._compare_launches()
        self._check_rest()
        self._cascade.admit(GateResult(gate=Gate.INTEGRITY, passed=True))
        self._cascade.admit(answer)
        baseline_us = median_interval(device.baseline_us).median
        call_us = median_interval(calls.program_us).median
        baseline_call_us = median_interval(calls.baseline_us).median
        return self._latency(median_interval(found + device.program_us), baseline_us, baseline_call_us, call_us)

    def _believed(self, rounds: Callable[[], Paired], check: Callable[[Paired], GateResult]) -> Paired:
        """Paired rounds whose claims fit the judge's clock; measured again where something has disturbed them."""
        for _ in range(N_BELIEVED):
            found = rounds()
            answer = check(found)
            if answer.passed:
                return found
        raise Refusal.of(answer)

    def _check_rounds(self, rounds: Paired) -> GateResult:
        """The claims in rounds of replays: against each round, which is short, and against work without a pause."""
        answer = rounds.check(self._session.n_launches)
        if not answer.passed:
            return answer
        return self._clock(median_interval(rounds.program_us).median, integrity.spare_s(rounds.control_s))

    def _rounds(self, margin: float) -> Paired:
        """Replays of both in turn, order swapped each time, until the gain is settled or the rounds are used up."""
        paired = Paired([], [], [], [])
        self._session.replay_us(1)
        while len(paired.gains) < MAX_ROUNDS:
            order = (self._program_round, self._baseline_round)
            for one in order if len(paired.gains) % 2 else order[::-1]:
                one(paired)
            if len(paired.gains) >= MIN_ROUNDS and speed.is_settled(paired.gains, margin):
                break
        return paired

    def _program_round(self, paired: Paired) -> None:
        paired.program_us.extend(self._session.replay_us(1))
        paired.watched_s.append(self._session.last_s)

    def _baseline_round(self, paired: Paired) -> None:
        session = self._bench.baseline.session
        us = self._bench.baseline.replay_us(1)
        paired.baseline_us.extend(us)
        paired.control_s.append(session.last_s - 1e-6 * us[0] * session.n_launches)

    def _call_rounds(self, n_calls: int) -> Paired:
        """Calls of both in turn; what one call returned is compared, at random."""
        paired, baseline = Paired([], [], [], []), self._bench.baseline
        kept_round = self._bench.watch.randrange(N_CALL_ROUNDS)
        for i in range(N_CALL_ROUNDS):
            paired.program_us.append(
                self._compared_call(n_calls) if i == kept_round else self._session.call_us(n_calls, 1)[0]
            )
            paired.watched_s.append(self._session.last_s)
            us = baseline.call_us(n_calls, 1)
            paired.baseline_us.extend(us)
            paired.control_s.append(baseline.session.last_s - 1e-6 * us[0] * n_calls)
        return paired

    def _compared_call(self, n_calls: int) -> float:
        self._session.slot.poison(self._timed.workload)
        kept = self._bench.watch.randrange(n_calls)
        us, refused = self._session.call_kept_us(n_calls, kept)
        asked(Gate.INTEGRITY, refused, "after a call")
        self._compare_timed(kept)
        return us

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
