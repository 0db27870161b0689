"""From a candidate to its verdict: prepare on a CPU, ask the archive, evaluate on a device."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from db.errors import ClusterError
from db.records import SEED, Candidate, Gate, GateResult, LatencyKind, Outcome, PrecisionClass, Verdict
from evaluators.report import EvaluatorReport
from evaluators.sandbox.client import ZygoteEndedError
from evolve.busy import BusyClock
from evolve.cluster import ActorDied, answer, was_reached, why_it_died
from evolve.known import KnownVerdicts
from evolve.preranking import PreRanker

N_TRIALS = 2  # of one candidate, when actors die
MAX_CRASHES = 8  # candidates in a row
AVOIDED_S = 5.0  # about what an actor takes to start again
MAX_AVOIDED_S = 60.0
NOBODY_S = 1.0  # between two looks for an actor that is not waiting for a node
PATIENCE_S = 900.0  # for as long nodes may be away, all of them: what takes their place has to start


class Judge(Protocol):
    """Answers candidates with verdicts, in the order of the candidates."""

    async def judge(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        """Equal work may be answered with an earlier verdict."""
        ...

    async def judge_again(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        """Everything is judged anew."""
        ...


class UnfitError(Exception):
    """An actor that answered is not what it was when the run began."""


class ActorPool:
    """Actors of one kind; a call goes to one with the fewest calls in progress, however many there are.

    One that died is avoided for a while, the longer the more often it died in a row: a dead actor fails at once and
    would draw every call.

    Args:
        on_death: is told why one died.
    """

    def __init__(self, actors: Sequence[Any], on_death: Callable[[str], None] = lambda _: None) -> None:
        self._on_death = on_death
        self._members: list[_Member] = []
        self._ready: defaultdict[int, dict[_Member, None]] = defaultdict(dict)  # by calls in progress
        self._avoided: list[tuple[float, int, _Member]] = []  # a heap: until when
        self._last_call_at = 0.0
        for actor in actors:
            self.add(actor)

    def __len__(self) -> int:
        return len(self._members)

    def add(self, actor: Any) -> None:
        """One more to call."""
        member = _Member(actor)
        self._members.append(member)
        self._ready[0][member] = None

    @property
    def busy_shares(self) -> tuple[float, ...]:
        """For each actor, how much of the time it had something to do, in [0, 1]: from its first answer until the last
        call of all began. What ends after that is no longer waited for by anybody with work to give."""
        return tuple(member.busy.share(self._last_call_at) for member in self._members)

    async def call(self, method: str, *arguments: Any, objection: Callable[[Any], str] = lambda _: "") -> Any:
        """Call a method on the least loaded actor. Raises what the actor raises, or ActorDied.

        `objection` says why an answer shows that an actor may not be asked any more; UnfitError then.
        """
        member = self._least_loaded()
        n_deaths = member.n_deaths
        self._load(member, 1)
        self._last_call_at = time.monotonic()
        member.busy.enter()
        try:
            result = await answer(getattr(member.actor, method).remote(*arguments))
        except ActorDied as error:
            if n_deaths == member.n_deaths:  # else its other calls have told
                self._avoid(member, error)
            raise
        finally:
            self._load(member, -1)
            member.busy.leave()
        member.n_deaths = 0
        if why := objection(result):
            self._dismiss(member, why)
            raise UnfitError(why)
        return result

    def _dismiss(self, member: _Member, why: str) -> None:
        """Never call it again."""
        if member in self._members:
            self._members.remove(member)
            self._ready[member.n_calls].pop(member, None)
            member.is_avoided = True
            self._on_death(why)

    def _least_loaded(self) -> _Member:
        while self._avoided and self._avoided[0][0] <= time.monotonic():
            member = heapq.heappop(self._avoided)[-1]
            if member in self._members:
                member.is_avoided = False
                self._ready[member.n_calls][member] = None
        ready = min((n for n, members in self._ready.items() if members), default=None)
        if ready is None:
            return min(self._members, key=lambda member: member.n_calls)
        return next(iter(self._ready[ready]))

    def _load(self, member: _Member, change: int) -> None:
        self._ready[member.n_calls].pop(member, None)
        member.n_calls += change
        if not member.is_avoided:
            self._ready[member.n_calls][member] = None

    def _avoid(self, member: _Member, error: ActorDied) -> None:
        if was_reached(error):
            self._on_death(why_it_died(error))
        if not member.is_avoided:
            member.is_avoided = True
            self._ready[member.n_calls].pop(member, None)
            for_s = min(AVOIDED_S * 2**member.n_deaths, MAX_AVOIDED_S) if was_reached(error) else AVOIDED_S
            heapq.heappush(self._avoided, (time.monotonic() + for_s, id(member), member))
        member.n_deaths += was_reached(error)


class _Member:
    """An actor of a pool and what is known of it."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.n_calls = 0  # in progress
        self.n_deaths = 0  # since it last answered
        self.is_avoided = False
        self.busy = BusyClock()


class JudgePool:
    """Judges candidates on the actors of a run. The same work is judged once, however it is written.

    A candidate whose actor dies, or the zygote that its child was forked from, is tried once more, on another or a
    restarted one, and is then a crash with a reason.
    Where candidate after candidate ends so, the machine is broken, not the candidates.
    """

    def __init__(
        self,
        *,
        preparers: ActorPool,
        evaluators: ActorPool,
        archive: Any,
        report: EvaluatorReport,
        precision: PrecisionClass,
        pre_rank: float = 0.0,
    ) -> None:
        """`pre_rank`: see `PreRanker`."""
        self._pre_ranker = PreRanker(pre_rank)
        self._preparers = preparers
        self._evaluators = evaluators
        self._archive = archive
        self._report = report
        self._hardware_id = report.hardware.hardware_id
        self._versions = report.versions
        self._precision = precision
        self._n_crashes: Counter[str] = Counter()  # in a row, by method
        self._answered_at: defaultdict[str, float] = defaultdict(float)  # by method
        self._verdicts = KnownVerdicts()  # of this run
        self._has_earlier: bool | None = None  # whether other runs judged this problem here; None: nobody asked yet
        self._in_progress: dict[str, asyncio.Future[Verdict]] = {}  # by program id or fingerprint

    def remember(self, verdicts: Sequence[Verdict]) -> None:
        """Verdicts of this run that are in the archive already (resume), as far as they would be the same here."""
        latest = {v.program_id: v for v in verdicts if not v.duplicate_of and self._holds_here(v)}
        self._verdicts.update(latest.values())

    async def judge(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        """One verdict for each candidate, in order."""
        return list(await asyncio.gather(*(self._judge(candidate) for candidate in candidates)))

    async def judge_again(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        """One new verdict for each candidate, whatever is known of its program."""
        return list(await asyncio.gather(*(self._anew(candidate) for candidate in candidates)))

    async def _anew(self, candidate: Candidate) -> Verdict:
        prepared = await self._with_retry(self._preparers, "prepare", candidate, candidate, self._report)
        if isinstance(prepared, Verdict):
            return prepared
        return _as_verdict(await self._with_retry(self._evaluators, "evaluate", candidate, prepared))

    async def _judge(self, candidate: Candidate) -> Verdict:
        known = self._verdicts.on_program(candidate.program_id)
        if known is None and self._verdicts.is_forgotten(candidate.program_id):
            known = await self._ask_archive("known_program", candidate, candidate.program_id)
        if known is not None:
            return repeat(known, candidate)
        verdict = await self._once(candidate.program_id, candidate, lambda: self._prepare_and_evaluate(candidate))
        self._verdicts.add(verdict)
        return verdict

    async def _prepare_and_evaluate(self, candidate: Candidate) -> Verdict:
        prepared = await self._with_retry(self._preparers, "prepare", candidate, candidate, self._report)
        if isinstance(prepared, Verdict):
            return prepared
        if prepared.verdict is not None:
            return _as_verdict(prepared.verdict)
        objection = self._pre_ranker.objection(candidate, prepared.modelled_us)
        known = await self._known(candidate, prepared.fingerprint)
        if known is not None:
            return repeat(known, candidate)
        if objection:
            return self._passed_over(candidate, objection)

        async def evaluate() -> Verdict:
            return _as_verdict(await self._with_retry(self._evaluators, "evaluate", candidate, prepared))

        return await self._once(prepared.fingerprint or candidate.program_id + "!", candidate, evaluate)

    async def _known(self, candidate: Candidate, fingerprint: str) -> Verdict | None:
        """An earlier verdict on the same work, here and under the same versions.

        What a run starts from is judged again in every run, and so is what another run refused: a refusal may have
        had a passing cause. A program that was made from scratch is held to more than others were.
        """
        lineage = candidate.lineage
        if not fingerprint or lineage.operator == SEED or lineage.is_from_scratch:
            return None
        verdict = self._verdicts.on_work(fingerprint)
        if verdict is None and await self._archive_knows_more(candidate):
            verdict = await self._ask_archive("known_fingerprint", candidate, fingerprint)
        if verdict is None or not self._holds_here(verdict) or not self._has_this_baseline(verdict):
            return None
        return verdict if verdict.is_correct or verdict.run_id == candidate.run_id else None

    async def _archive_knows_more(self, candidate: Candidate) -> bool:
        """Whether the archive may have a verdict on this problem that is not known here: else it is not asked."""
        if self._has_earlier is None:
            asked = (candidate.problem_id, self._hardware_id, candidate.run_id)
            self._has_earlier = await answer(self._archive.has_other_runs.remote(*asked))
        return self._has_earlier or self._verdicts.has_forgotten

    async def _ask_archive(self, method: str, candidate: Candidate, value: str) -> Verdict | None:
        asked = (candidate.problem_id, self._hardware_id, self._precision, value, self._report.baseline.kind)
        verdict: Verdict | None = await answer(getattr(self._archive, method).remote(*asked))
        return verdict

    def _has_this_baseline(self, verdict: Verdict) -> bool:
        """A modelled baseline is a first program's or the reference's, and never wavers; a measured one does."""
        latency = verdict.latency
        if latency is None or latency.kind is LatencyKind.MEASURED:
            return True
        return latency.baseline_us == self._report.baseline.device_us

    def _holds_here(self, verdict: Verdict) -> bool:
        return verdict.hardware_id == self._hardware_id and verdict.versions == self._versions

    async def _once(self, key: str, candidate: Candidate, judge: Callable[[], Awaitable[Verdict]]) -> Verdict:
        """Let only the first of several equal candidates be judged; the others wait for its verdict."""
        running = self._in_progress.get(key)
        if running is not None:
            return repeat(await asyncio.shield(running), candidate)
        future: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._in_progress[key] = future
        try:
            verdict = await judge()
        except BaseException as error:
            future.set_exception(error)
            future.exception()  # somebody may wait for it or nobody: both are fine
            raise
        else:
            future.set_result(verdict)
            return verdict
        finally:
            del self._in_progress[key]

    async def _with_retry(self, pool: ActorPool, method: str, candidate: Candidate, *arguments: Any) -> Any:
        """The answer of an actor, or the verdict of a crash.

        Raises:
            ClusterError: too many candidates in a row killed every actor that they met, or no actor is left that
                judges as those did that the run began with.
        """
        reason = ""
        n_trials, since = 0, time.monotonic()
        while n_trials < N_TRIALS:
            try:
                result = await pool.call(method, *arguments, objection=self._objection)
            except UnfitError as error:
                if not len(pool):
                    raise ClusterError(f"nobody is left to judge: {error}", "go on with: evolve resume") from None
            except ZygoteEndedError as error:
                reason = error.message
                n_trials += 1
            except ActorDied as error:
                reason = why_it_died(error)
                n_trials += was_reached(error)
                if not was_reached(error):
                    await self._wait(method, since, reason)
            else:
                self._n_crashes[method], self._answered_at[method] = 0, time.monotonic()
                return result
        self._n_crashes[method] += 1
        if self._n_crashes[method] >= MAX_CRASHES:
            raise ClusterError(f"the judging processes keep dying: {reason}", "look for the cause with: evolve doctor")
        return self._crash(candidate, reason)

    def _objection(self, answered: object) -> str:
        """Why whoever answered so may not judge in this run: Ray may start an actor again on another kind of node."""
        if not isinstance(answered, Verdict) or self._holds_here(answered):
            return ""
        here, there = self._versions | {"GPU": self._hardware_id}, answered.versions | {"GPU": answered.hardware_id}
        differing = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
        found = ", ".join(f"{name} {there.get(name, 'none')} instead of {here.get(name, 'none')}" for name in differing)
        return f"it came back where others cannot be compared with it, and is not used any more: {found}"

    async def _wait(self, method: str, since: float, reason: str) -> None:
        """A while, where nodes went away: whoever waits for one has not seen the candidate.

        Raises:
            ClusterError: nobody has answered for `PATIENCE_S`.
        """
        if time.monotonic() - max(since, self._answered_at[method]) > PATIENCE_S:
            hint = "bring nodes with GPUs back, and go on with: evolve resume"
            raise ClusterError(f"nobody has judged for {PATIENCE_S / 60:.0f} minutes: {reason}", hint)
        await asyncio.sleep(NOBODY_S)

    def _crash(self, candidate: Candidate, reason: str) -> Verdict:
        return self._unmeasured(candidate, Outcome.FAILED, Gate.STATIC, f"the judging process died twice: {reason}")

    def _passed_over(self, candidate: Candidate, reason: str) -> Verdict:
        return self._unmeasured(candidate, Outcome.UNSUPPORTED, Gate.SPEED, reason)

    def _unmeasured(self, candidate: Candidate, outcome: Outcome, gate: Gate, reason: str) -> Verdict:
        return Verdict(
            candidate_id=candidate.candidate_id,
            run_id=candidate.run_id,
            problem_id=candidate.problem_id,
            program_id=candidate.program_id,
            hardware_id=self._hardware_id,
            outcome=outcome,
            gates=(GateResult(gate=gate, passed=False, reason=reason),),
            precision=self._precision,
            versions=self._versions,
        )


def repeat(known: Verdict, candidate: Candidate) -> Verdict:
    """The verdict of an equal program, given to another candidate; it says whose it is and cost nothing."""
    return known.model_copy(
        update={
            "candidate_id": candidate.candidate_id,
            "run_id": candidate.run_id,
            "program_id": candidate.program_id,
            "duplicate_of": known.duplicate_of or known.program_id,
            "seconds": {},
        }
    )


def _as_verdict(value: object) -> Verdict:
    if not isinstance(value, Verdict):
        raise TypeError(f"expected a Verdict, got {type(value).__name__}")
    return value
