"""The loop. Steady state: every island keeps a few chains going; nothing waits for a generation to end."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import uuid
from collections.abc import Sequence
from typing import Any

from db.errors import SeedError
from db.records import CONFIRM, Candidate, Evaluation, Lineage, Verdict
from evolve.allowance import Allowance
from evolve.budget import Budget
from evolve.cluster import answer
from evolve.correspondence import Client, Correspondence, OnAnswer
from evolve.counters import N_LAST, CounterQueue, as_counted, is_counted
from evolve.events import Judged, Migrated, ModelsSilent, OnEvent, Progress, Ticked
from evolve.founding import Founding
from evolve.judging import Judge
from evolve.ordered import FirstTold, OrderedLoop, Talk
from evolve.progress import ProgressMeter
from evolve.stopping import NO_FIRST_PROGRAM, ROOFLINE, STAGNATION, Patience, is_at_roofline
from islands.dialogues import Question
from islands.grid import AddStatus
from islands.llm.exchange import Completion, Outcome
from islands.migration import Topology
from islands.seed import Seed
from islands.summary import IslandSummary

TICK_S = 0.5
TICK_SHARE = 0.1  # of the time that looking at all islands may take
IDLE_S = 0.05  # pause of a chain whose island waits for verdicts before it proposes more, or that waits for others
N_CONFIRM_ROUNDS = 3
LOOK_EVERY = 8  # verdicts of each island between two looks at all of them, in a search that goes in order
MOST_IN_VAIN = 64  # answers of models that brought no candidate, with nothing to judge between them
N_RESEEDED = 4  # elites that a stagnant island starts again from


class Search:
    """Islands, a judge and the archive, driven until the budget is spent."""

    def __init__(
        self,
        *,
        islands: Sequence[Any],
        judge: Judge,
        archive: Any,
        budget: Budget,
        meter: ProgressMeter,
        topology: Topology,
        rng: random.Random,
        on_event: OnEvent,
        chains_per_island: int,
        batch: int,
        stop_when_stagnant: bool,
        counters: CounterQueue | None = None,
        stop_at_roofline: float = 1.0,
        patience: Patience | None = None,
        window: int = 0,
    ) -> None:
        """
        Args:
            patience: with language models, where there is no program to start from.
            window: candidates in flight of a search that goes in order; 0 for one that takes things as they come.
        """
        self._islands = list(islands)
        self._judge = judge
        self._archive = archive
        self._budget = budget
        self._meter = meter
        self._topology = topology
        self._rng = rng
        self._on_event = on_event
        self._chains_per_island = chains_per_island
        self._batch = batch
        self._stop_when_stagnant = stop_when_stagnant
        self._counters = counters
        self._stop_at_roofline = stop_at_roofline
        self._founding = Founding(self._islands, budget, self._settle, on_event, patience)
        self._correspondence: Correspondence | None = None
        self._chains = asyncio.TaskGroup()
        self._going: set[asyncio.Task[None]] = set()
        self._window = window
        self._first_told = FirstTold() if window else None
        self._talk: Talk | None = None
        self._allowance = Allowance()
        self._n_kept = 0
        self._n_under_way = 0  # candidates that were asked and are not kept yet
        self._n_in_vain = 0

    async def restore(self, judged: Sequence[Evaluation], elapsed_s: float) -> None:
        """Take up what earlier sittings of this run judged. `elapsed_s` is the wall-clock that they spent."""
        judged = [e for e in judged if e.candidate.lineage.operator != CONFIRM]
        self._budget.resume(len(judged), elapsed_s)
        for evaluation in judged:
            self._meter.count(evaluation, is_new=False)
        for index, island in enumerate(self._islands):
            own = [e for e in judged if e.candidate.island == index]
            await answer(island.restore.remote(own, _parents_abroad(own, judged)))
        await self._offer_elites()
        if judged:  # whoever watches must know what was the best before
            self._on_event(Ticked(progress=await self.look()))

    async def _offer_elites(self) -> None:
        """An earlier sitting may have ended before their counters were read."""
        if self._counters is not None:
            for island in self._islands:
                for elite in await answer(island.elites.remote()):
                    self._counters.offer(elite)

    async def seed(self, seeds: Sequence[Seed]) -> None:
        """Judge the first programs on the first island, and give them to all.

        Without any, islands start from what a language model writes.

        Raises:
            SeedError: there are some, and none is correct.
        """
        if not seeds:
            return await self._founding.take_up(self._meter.best, await self.summaries())
        for index, island in enumerate(self._islands):
            candidates = await answer(island.seed.remote(list(seeds)))
            self._budget.spend(len(candidates))
            if candidates:  # a resumed run has them already
                await self._settle(index, candidates)
            if self._meter.best is None and self._meter.first is not None:
                raise _no_seed_works(self._meter.first)
        return self._founding.skip()

    def correspond(self, client: Client, n_per_island: int, on_answer: OnAnswer) -> Correspondence:
        """From now on language models answer the questions of the islands, beside everything else."""

        async def hear(question: Question, outcome: Outcome, candidate: Candidate | None) -> None:
            self._founding.hear(outcome, candidate)
            self._hear(outcome, candidate)
            await on_answer(question, outcome, candidate)

        def fall_silent(reason: str) -> None:
            self._on_event(ModelsSilent(reason=reason, ends_run=self._meter.best is None))

        self._talk = Talk(client, n_per_island, hear, fall_silent, self._may_ask)
        self._correspondence = Correspondence(
            client,
            self._islands,
            self._budget,
            n_per_island=n_per_island,
            settle=self._settle_and_migrate,
            on_answer=hear,
            on_silence=fall_silent,
            may_ask=lambda: self._may_ask() or self._allowance.is_needed,
        )
        return self._correspondence

    def _hear(self, outcome: Outcome, candidate: Candidate | None) -> None:
        """End a search that has nothing left but models which bring nothing: they would be asked for ever."""
        if self._n_under_way or candidate is not None or self._meter.best is None:
            self._n_in_vain = 0
            return
        self._n_in_vain += isinstance(outcome, Completion) or outcome.is_final
        if self._stop_when_stagnant and self._n_in_vain >= MOST_IN_VAIN:
            self._budget.stop(STAGNATION)

    async def run(self) -> None:
        """All chains of all islands, or one turn after the other, until the budget ends the run."""
        beside = [asyncio.create_task(self._tick())]
        if self._counters is not None:
            beside.append(asyncio.create_task(self._counters.run()))
        try:
            await (self._run_in_order() if self._window else self._run_chains())
        finally:
            for task in beside:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        if self._meter.best is None:
            self._budget.stop(NO_FIRST_PROGRAM)

    async def _run_chains(self) -> None:
        async with self._chains:
            self._begin_chains(self._chains_per_island)
            if self._correspondence is not None:
                self._chains.create_task(self._correspondence.run())

    async def _run_in_order(self) -> None:
        loop = OrderedLoop(
            self._islands,
            self._budget,
            window=self._window,
            judge=self._judge_one,
            take_in=self._take_in,
            talk=self._talk,
        )
        await loop.run()

    async def _judge_one(self, candidate: Candidate) -> Verdict:
        return (await self._judge_all([candidate]))[0]

    async def _take_in(self, index: int, candidate: Candidate, verdict: Verdict) -> None:
        await self._founding.look_at(await self._keep(index, [candidate], [verdict]))
        await self._migrate(index)
        self._n_kept += 1
        if self._n_kept % (LOOK_EVERY * len(self._islands)) == 0:
            await self._look_after(await self.look())

    def widen(self, chains_per_island: int) -> None:
        """Keep at least so many chains of every island going, because evaluators came that would have nothing to do."""
        if self._going:
            self._begin_chains(chains_per_island - self._chains_per_island)
        self._chains_per_island = max(self._chains_per_island, chains_per_island)

    def _begin_chains(self, n_per_island: int) -> None:
        for _ in range(n_per_island):
            for index in range(len(self._islands)):
                chain = self._chains.create_task(self._chain(index))
                self._going.add(chain)
                chain.add_done_callback(self._going.discard)

    async def _chain(self, index: int) -> None:
        await self._founded()
        island = self._islands[index]
        while not self._budget.is_over():
            held = self._budget.hold(self._batch)
            candidates = await answer(island.ask.remote(held)) if held else []
            self._budget.use(len(candidates), held)
            if candidates:
                await self._settle_and_migrate(index, candidates)
            elif held and not self._may_hear_more and await answer(island.is_exhausted.remote()):
                return
            else:
                await asyncio.sleep(IDLE_S)

    async def _founded(self) -> None:
        """Wait for programs to start from, as long as language models may bring one: an empty island has no say."""
        while not self._founding.is_over and self._correspondence is not None and not self._correspondence.has_ended:
            await asyncio.sleep(IDLE_S)

    def _may_ask(self) -> bool:
        """Whether models may be asked, because they waste little, or because there is nothing without them."""
        return self._allowance.is_open or not self._founding.is_over

    @property
    def _may_hear_more(self) -> bool:
        """Whether a model may still bring what an island cannot think of."""
        return self._correspondence is not None and self._correspondence.may_bring_more

    async def settle(self, index: int, candidates: Sequence[Candidate]) -> None:
        """Judge candidates of an island that no chain asked for, whatever is left of the budget."""
        await self._settle_and_migrate(index, candidates)

    async def _settle_and_migrate(self, index: int, candidates: Sequence[Candidate]) -> None:
        evaluations = await self._settle(index, candidates)
        await self._founding.look_at(evaluations)
        await self._migrate(index)

    async def _settle(self, index: int, candidates: Sequence[Candidate]) -> list[Evaluation]:
        """Judge, keep, tell: an island hears of a verdict only after it is durable."""
        return await self._keep(index, candidates, await self._judge_all(candidates))

    async def _judge_all(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        if self._first_told is not None:
            self._first_told.asked(candidates)
        self._n_under_way += len(candidates)
        return await self._judge.judge(candidates)

    async def _keep(self, index: int, candidates: Sequence[Candidate], verdicts: Sequence[Verdict]) -> list[Evaluation]:
        if self._first_told is not None:
            verdicts = [self._first_told.named(verdict) for verdict in verdicts]
        evaluations = [Evaluation(candidate=c, verdict=v) for c, v in zip(candidates, verdicts, strict=True)]
        await answer(self._archive.insert.remote(evaluations))
        statuses = await answer(self._islands[index].tell.remote(verdicts))
        self._n_under_way -= len(candidates)
        self._n_in_vain = 0
        self._allowance.told(evaluations)
        for evaluation, status in zip(evaluations, statuses, strict=True):
            self._meter.count(evaluation)
            self._on_event(Judged(evaluation=evaluation, status=status.name.lower()))
            if self._counters is not None and status > AddStatus.REJECTED:
                self._counters.offer(evaluation)
        self._look_at_the_roof()
        return evaluations

    async def recell(self, verdicts: Sequence[Verdict]) -> None:
        """Take in what counters said of programs that were judged before: the archive first, then every island that
        may hold them, migrants included. Why there are none is for the archive alone."""
        await answer(self._archive.reprofile.remote(verdicts))
        if counted := [verdict for verdict in verdicts if is_counted(verdict)]:
            await asyncio.gather(*(answer(island.reprofile.remote(counted)) for island in self._islands))
        self._meter.revise(verdicts)
        self._look_at_the_roof()

    def _look_at_the_roof(self) -> None:
        best = self._meter.best
        if best is not None and self._stop_at_roofline < 1 and is_at_roofline(best.verdict, self._stop_at_roofline):
            self._budget.stop(ROOFLINE)

    async def _migrate(self, index: int) -> None:
        """Send what the island offers, if it is time; the topology says to whom."""
        migrants = await answer(self._islands[index].emigrate.remote())
        if not migrants:
            return
        for target in self._topology.targets(index, len(self._islands), self._rng):
            n_migrants = await answer(self._islands[target].immigrate.remote(migrants))
            self._on_event(Migrated(source=index, target=target, n_migrants=n_migrants))

    async def confirm(self, n: int) -> None:
        """Judge the fastest programs once more, with fresh timings: a winner may have been lucky.

        The fastest of them is the result. Where none passes again, the next `n` are tried. What counters said of them
        stays true.
        """
        await self._read_last(self._meter.fastest()[:n])
        fastest = self._meter.fastest()
        earlier = [evaluation.verdict for evaluation in fastest]
        for index in range(N_CONFIRM_ROUNDS):
            chosen = fastest[index * n : (index + 1) * n]
            candidates = [self._second_look(evaluation) for evaluation in chosen]
            verdicts = [as_counted(v, earlier) for v in await self._judge.judge_again(candidates)]
            evaluations = [Evaluation(candidate=c, verdict=v) for c, v in zip(candidates, verdicts, strict=True)]
            await answer(self._archive.insert.remote(evaluations))
            if self._meter.confirm(evaluations):
                return

    async def _read_last(self, winners: Sequence[Evaluation]) -> None:
        """Counters of would-be winners and of what the first of them was made from: people look at these."""
        if self._counters is not None and winners:
            await self._counters.read_last([*winners, *await self._ancestors(winners[0])])

    async def _ancestors(self, evaluation: Evaluation) -> list[Evaluation]:
        """The nearest along first parents, as the archive has them now, as far as this run judged them."""
        found: dict[str, Evaluation] = {evaluation.candidate.program_id: evaluation}
        while len(found) <= N_LAST and (parents := evaluation.candidate.lineage.parents) and parents[0] not in found:
            known: list[Evaluation] = await answer(self._archive.evaluations_of.remote(parents[0]))
            own = [e for e in known if e.candidate.run_id == evaluation.candidate.run_id and e.verdict.is_correct]
            first = next((e for e in own if e.candidate.lineage.operator != CONFIRM), None)
            if first is None:
                break
            evaluation = found[parents[0]] = first
        return list(found.values())[1:]

    def _second_look(self, evaluation: Evaluation) -> Candidate:
        candidate = evaluation.candidate
        lineage = Lineage(operator=CONFIRM, parents=(candidate.program_id,))
        name = f"{candidate.run_id}-{CONFIRM}-{uuid.uuid4().hex[:6]}"
        return candidate.model_copy(update={"candidate_id": name, "lineage": lineage})

    async def look(self) -> Progress:
        """Where the run stands now."""
        return self._meter.look(await self.summaries())

    async def summaries(self) -> list[IslandSummary]:
        """One summary for each island."""
        return list(await asyncio.gather(*(answer(island.summary.remote()) for island in self._islands)))

    async def _tick(self) -> None:
        pause_s = TICK_S
        while True:
            await asyncio.sleep(pause_s)
            began = time.monotonic()
            progress = await self.look()
            pause_s = max(TICK_S, (time.monotonic() - began) / TICK_SHARE)
            self._on_event(Ticked(progress=progress))
            self._founding.check_patience()
            if not self._window:
                await self._look_after(progress)

    async def _look_after(self, progress: Progress) -> None:
        """End a search that stands still, or help an island that does."""
        has_begun = progress.best is not None
        if self._stop_when_stagnant and has_begun and all(island.is_stagnant for island in progress.islands):
            self._budget.stop(STAGNATION)
        await self.rescue(progress.islands)

    async def rescue(self, islands: Sequence[IslandSummary]) -> None:
        """Start islands that stand still again, from elites of the fastest one that does not, where it is faster."""
        moving = [(i.best_latency_us, i.island) for i in islands if i.best_latency_us is not None and not i.is_stagnant]
        if not moving:
            return
        best_us, donor = min(moving)
        for island in islands:
            if island.is_stagnant and (island.best_latency_us is None or best_us < island.best_latency_us):
                elites = await answer(self._islands[donor].elites.remote(N_RESEEDED))
                n_migrants = await answer(self._islands[island.island].reseed.remote(elites))
                self._on_event(Migrated(source=donor, target=island.island, n_migrants=n_migrants))


def _parents_abroad(own: Sequence[Evaluation], judged: Sequence[Evaluation]) -> list[Evaluation]:
    """The correct programs of other islands that came as migrants and bred, each once."""
    wanted = {parent for e in own for parent in e.candidate.lineage.parents} - {e.verdict.program_id for e in own}
    found = {e.verdict.program_id: e for e in reversed(judged) if e.verdict.program_id in wanted}
    return [e for e in found.values() if e.verdict.is_correct]


def _no_seed_works(evaluation: Evaluation) -> SeedError:
    verdict = evaluation.verdict
    gate = next((result.gate.value for result in verdict.gates if not result.passed), verdict.outcome.value)
    return SeedError(
        f"no first program passed: {gate}: {verdict.reason}",
        "see every gate's answer with: evolve check FILE --problem PROBLEM",
    )
