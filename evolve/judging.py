"""From a candidate to its verdict: prepare on a CPU, ask the archive, evaluate on a device."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from db.records import Candidate, Gate, GateResult, Outcome, PrecisionClass, Verdict
from evaluators.report import EvaluatorReport
from evolve.cluster import ActorDied, answer


class Judge(Protocol):
    """Answers candidates with verdicts, in the order of the candidates."""

    async def judge(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        """Equal work may be answered with an earlier verdict."""
        ...

    async def judge_again(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        """Everything is judged anew."""
        ...


class ActorPool:
    """Actors of one kind; a call goes to the one with the fewest calls in progress."""

    def __init__(self, actors: Sequence[Any]) -> None:
        self._actors = list(actors)
        self._load = [0] * len(self._actors)

    def __len__(self) -> int:
        return len(self._actors)

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call a method on the least loaded actor. Raises what the actor raises, or ActorDied."""
        index = min(range(len(self._actors)), key=self._load.__getitem__)
        self._load[index] += 1
        try:
            return await answer(getattr(self._actors[index], method).remote(*arguments))
        finally:
            self._load[index] -= 1


class JudgePool:
    """Judges candidates on the actors of a run. The same work is judged once, however it is written.

    A candidate whose actor dies is tried once more on a restarted one, and is then a crash with a reason.
    """

    def __init__(
        self,
        *,
        preparers: ActorPool,
        evaluators: ActorPool,
        archive: Any,
        report: EvaluatorReport,
        precision: PrecisionClass,
    ) -> None:
        self._preparers = preparers
        self._evaluators = evaluators
        self._archive = archive
        self._report = report
        self._hardware_id = report.hardware.hardware_id
        self._versions = report.versions
        self._precision = precision
        self._programs: dict[str, Verdict] = {}  # of this run, by program id
        self._in_progress: dict[str, asyncio.Future[Verdict]] = {}  # by program id or fingerprint

    def remember(self, verdicts: Sequence[Verdict]) -> None:
        """Verdicts of this run that are in the archive already (resume)."""
        self._programs.update({v.program_id: v for v in verdicts if not v.duplicate_of})

    async def judge(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        """One verdict for each candidate, in order."""
        return list(await asyncio.gather(*(self._judge(candidate) for candidate in candidates)))

    async def judge_again(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        """One new verdict for each candidate, whatever is known of its program."""
        return [await self._anew(candidate) for candidate in candidates]

    async def _anew(self, candidate: Candidate) -> Verdict:
        prepared = await self._with_retry(self._preparers, "prepare", candidate, candidate, self._report)
        if isinstance(prepared, Verdict):
            return prepared
        return _as_verdict(await self._with_retry(self._evaluators, "evaluate", candidate, prepared))

    async def _judge(self, candidate: Candidate) -> Verdict:
        known = self._programs.get(candidate.program_id)
        if known is not None:
            return repeat(known, candidate)
        verdict = await self._once(candidate.program_id, candidate, lambda: self._prepare_and_evaluate(candidate))
        self._programs.setdefault(candidate.program_id, verdict)
        return verdict

    async def _prepare_and_evaluate(self, candidate: Candidate) -> Verdict:
        prepared = await self._with_retry(self._preparers, "prepare", candidate, candidate, self._report)
        if isinstance(prepared, Verdict):
            return prepared
        if prepared.verdict is not None:
            return _as_verdict(prepared.verdict)
        known = await self._known(candidate.problem_id, prepared.fingerprint)
        if known is not None:
            return repeat(known, candidate)

        async def evaluate() -> Verdict:
            return _as_verdict(await self._with_retry(self._evaluators, "evaluate", candidate, prepared))

        return await self._once(prepared.fingerprint or candidate.program_id + "!", candidate, evaluate)

    async def _known(self, problem_id: str, fingerprint: str) -> Verdict | None:
        """An earlier verdict on the same work, here and under the same versions."""
        if not fingerprint:
            return None
        verdict: Verdict | None = await answer(
            self._archive.known_fingerprint.remote(problem_id, self._hardware_id, self._precision, fingerprint)
        )
        return verdict if verdict is not None and verdict.versions == self._versions else None

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
        for is_last in (False, True):
            try:
                return await pool.call(method, *arguments)
            except ActorDied as error:
                if is_last:
                    return self._crash(candidate, str(error).splitlines()[0])
        raise AssertionError("unreachable")

    def _crash(self, candidate: Candidate, reason: str) -> Verdict:
        gate = GateResult(gate=Gate.STATIC, passed=False, reason=f"the judging process died twice: {reason}")
        return Verdict(
            candidate_id=candidate.candidate_id,
            run_id=candidate.run_id,
            problem_id=candidate.problem_id,
            program_id=candidate.program_id,
            hardware_id=self._hardware_id,
            outcome=Outcome.FAILED,
            gates=(gate,),
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
