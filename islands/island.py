"""The island: a grid of elites that asks operators for candidates and is told their verdicts."""

from __future__ import annotations

import math
import random
from collections import Counter, deque
from collections.abc import Iterable, Sequence

from db.hashing import program_id_of
from db.records import SEED, Candidate, EntryPoint, Evaluation, Lineage, PrecisionClass, Verdict
from islands.dialogues import Brief, Dialogues, DialogueSettings, Question, Written
from islands.grid import AddStatus, EliteGrid, GridKey, Occupant
from islands.knowledge import PriorKnowledge, Standing
from islands.llm.exchange import Outcome
from islands.operators.base import Operator, Proposal
from islands.operators.recipe import FollowRecipe
from islands.reflection import Findings, Taught
from islands.seed import Seed
from islands.settings import IslandSettings
from islands.strategies.base import Draw, Expectation, Stock, Strategy, Trial
from islands.summary import CellSummary, IslandSummary, TechniqueCount


def island_rng(rng_seed: int, island_id: int) -> random.Random:
    """The generator of one island of a run: the same on every machine, whatever PYTHONHASHSEED is."""
    return random.Random(f"{rng_seed}/{island_id}")


class Island:
    """Asks and tells, tied by candidate id, so that verdicts may come late and in any order.

    The same generator and the same calls in the same order give the same candidates. No program is asked twice. Failed
    programs never become parents; correct ones do, however slow.
    """

    def __init__(
        self,
        *,
        island_id: int,
        run_id: str,
        problem_id: str,
        entry_point: EntryPoint,
        operators: Sequence[Operator],
        strategy: Strategy,
        rng: random.Random,
        settings: IslandSettings,
        precision: PrecisionClass = PrecisionClass.REFERENCE,
        prior: PriorKnowledge | None = None,
    ) -> None:
        """`prior` is what earlier runs learnt, for a strategy that cares."""
        self.island_id = island_id
        self._run_id = run_id
        self._problem_id = problem_id
        self._entry_point = entry_point
        self._strategy = strategy
        self._rng = rng
        self._settings = settings
        self._precision = precision
        if prior is not None and prior.recipes:
            operators = [*operators, FollowRecipe(operators, prior.recipes)]
        strategy.start(operators, settings, prior)

        self._grid: EliteGrid | None = None  # made by the first verdict that has the run's precision
        self._strays: list[Occupant] = []  # correct, of another precision: parents while there is no grid
        self._founders: list[Occupant] = []
        self._in_flight: dict[str, Candidate] = {}
        self._known: set[str] = set()  # program ids that were asked here or came with migrants
        self._sent: set[str] = set()  # program ids that left with migrants
        self._standings: dict[str, Standing] = {}  # by program id, of every correct program seen
        self._next_number = 0
        self._n_told = 0
        self._n_told_at_migration = 0
        self._came_back_empty = False
        self._tried: Counter[str] = Counter()
        self._passed: Counter[str] = Counter()
        self._improved: Counter[str] = Counter()
        self._progress = _Progress(settings.stagnation_margin)
        self._dialogues: Dialogues | None = None
        self._dialogue_rng = random.Random()
        self._unjudged: deque[Candidate] = deque()  # written by models in an earlier sitting

    # ------------------------------------------------------------------------------------------------- ask and tell

    def seed(self, seeds: Sequence[Seed]) -> list[Candidate]:
        """Candidates for the programs to start from, each once; they count as asked."""
        asked = []
        for seed in seeds:
            program_id = program_id_of(seed.source, self._entry_point)
            if program_id not in self._known:
                lineage = Lineage(operator=SEED, seeded_from=seed.origin)
                asked.append(self._admit(seed.source, program_id, lineage))
        return asked

    def ask(self, n: int) -> list[Candidate]:
        """At most `n` candidates that were never asked here, and no more than may be in flight.

        Empty while nothing correct is known, while the strategy waits for verdicts, or when nothing new applies.
        """
        n_free = self._settings.in_flight - len(self._in_flight) if self._settings.in_flight else n
        self._strategy.begin_batch()
        asked = [self._unjudged.popleft() for _ in range(min(n, len(self._unjudged)))]
        while len(asked) < min(n, n_free) and (candidate := self._ask_one()):
            asked.append(candidate)
        self._came_back_empty = not asked and n_free > 0
        return asked

    def talk(self, brief: Brief, settings: DialogueSettings, taught: Taught | None = None) -> None:
        """From now on `questions` has questions for language models. Before `restore`, which says what came of them.

        `taught` is what reflection and the judge taught before.
        """
        self._dialogues = Dialogues(brief, settings, self.island_id, self._strategy.knowledge, taught)
        self._dialogue_rng = _branch(self._rng)

    def questions(self, n: int) -> list[Question]:
        """At most `n` questions for language models; empty without `talk`, and while nothing correct is known."""
        return self._dialogues.ask(n, self._stock().elites, self._dialogue_rng) if self._dialogues else []

    def answered(self, dialogue_id: str, outcome: Outcome) -> Candidate | None:
        """The candidate that an answer makes; None where there is none, or its program was asked before."""
        assert self._dialogues is not None
        written = self._dialogues.answered(dialogue_id, outcome)
        return self._take_up(self._dialogues, written) if written else None

    def judge_question(self, program: Evaluation) -> Question | None:
        """The next question in a conversation about a program that needs an opinion, whatever else is asked."""
        if self._dialogues is None:
            return None
        self.consider(program)
        return self._dialogues.ask_judge(self._dialogue_rng)

    def reflect_question(self) -> Question | None:
        """The next question about attempts that nobody looked back at, at the end of a run."""
        return self._dialogues.ask_reflection(self._dialogue_rng) if self._dialogues else None

    def consider(self, program: Evaluation) -> None:
        """Wants an opinion on a program: the next question is about it."""
        if self._dialogues is not None:
            self._dialogues.notebook.reflections.consider(program)

    def findings(self) -> Findings:
        """What reflection and the judge found since the last time."""
        return self._dialogues.notebook.reflections.take_findings() if self._dialogues else Findings()

    def hear(self, findings: Findings) -> None:
        """Takes in what other islands found."""
        if self._dialogues is not None:
            self._dialogues.notebook.reflections.hear(findings)

    @property
    def dialogues(self) -> Dialogues | None:
        """Conversations with language models; None without `talk`."""
        return self._dialogues

    def tell(self, verdicts: Sequence[Verdict]) -> list[AddStatus]:
        """Takes verdicts in, in any order. One status for each; a candidate id that is not in flight is REJECTED."""
        return [self._tell_one(verdict) for verdict in verdicts]

    def reprofile(self, verdicts: Sequence[Verdict]) -> int:
        """Takes in what counters said later of programs of the grid: they move to the cells of their tiers.

        How many still hold a cell.
        """
        n_held = sum(self._grid.revise(verdict) for verdict in verdicts) if self._grid else 0
        if self._dialogues is not None:
            for verdict in verdicts:
                self._dialogues.revised(verdict)
        self._progress.note(self._grid.best if self._grid else None)
        return n_held

    def restore(self, evaluations: Sequence[Evaluation], migrants: Sequence[Evaluation] = ()) -> None:
        """Takes in what an archive holds of this island, in the order of insertion. For resuming, before any ask.

        What was in flight when the run ended may be proposed again, under a new id. `migrants` are programs of other
        islands that some of these were made from: what a child gained is known only beside its parent.
        """
        for migrant in migrants:
            self._note_standing(Occupant(migrant.candidate, migrant.verdict))
        for evaluation in evaluations:
            self._await_again(evaluation.candidate, evaluation.verdict.program_id)
            self._tell_one(evaluation.verdict)
        self._rng.seed(f"{self._rng.getrandbits(64)}/{self._next_number}")
        self._resume_dialogues()

    def readmit(self, candidates: Sequence[Candidate]) -> None:
        """Takes back candidates that are still on their way, where the island's process died. After `restore`."""
        for candidate in candidates:
            self._await_again(candidate, candidate.program_id)

    def _await_again(self, candidate: Candidate, program_id: str) -> None:
        """Whoever asked for a candidate, it is in flight from here on, and no other gets its number."""
        self._in_flight[candidate.candidate_id] = candidate
        self._known.add(program_id)
        self._next_number = max(self._next_number, _number_of(candidate.candidate_id) + 1)
        lineage = candidate.lineage
        if lineage.operator != SEED and not lineage.model:
            self._strategy.asked(candidate.candidate_id, lineage.operator, lineage.parents)

    def _resume_dialogues(self) -> None:
        self._dialogue_rng = _branch(self._rng)
        if self._dialogues is not None:
            taken_up = [self._take_up(self._dialogues, written) for written in self._dialogues.resume()]
            self._unjudged.extend(candidate for candidate in taken_up if candidate)

    def _take_up(self, dialogues: Dialogues, written: Written) -> Candidate | None:
        """The candidate that a source of a model is; None for a program that was asked before."""
        program_id = program_id_of(written.source, self._entry_point)
        if program_id in self._known:
            dialogues.declined(written.dialogue_id)
            return None
        candidate = self._admit(written.source, program_id, written.lineage)
        dialogues.admitted(written.dialogue_id, candidate.candidate_id)
        return candidate

    def _ask_one(self) -> Candidate | None:
        stock = self._stock()
        if not stock.elites:
            return None
        for _ in range(self._settings.max_attempts):
            draw = self._strategy.draw(stock, self._rng)
            if draw is None:
                return None
            if candidate := self._follow(draw):
                return candidate
        return None

    def _follow(self, draw: Draw) -> Candidate | None:
        """Makes a candidate of a draw, or tells the strategy that nothing new came of it."""
        proposal = self._strategy.propose(draw, self._is_new, self._rng)
        program_id = program_id_of(proposal.source, self._entry_point) if proposal else ""
        is_known = program_id in self._known
        if proposal is None or is_known or not self._strategy.accepts(draw, proposal, self._rng):
            self._strategy.wasted(draw, applies=proposal is not None)
            return None
        candidate = self._admit(proposal.source, program_id, _lineage_of(draw, proposal, self._strategy.expects(draw)))
        self._strategy.asked(candidate.candidate_id, draw.arm, draw.parent_ids)
        return candidate

    def _is_new(self, proposal: Proposal) -> bool:
        return program_id_of(proposal.source, self._entry_point) not in self._known

    def _admit(self, source: str, program_id: str, lineage: Lineage) -> Candidate:
        candidate = Candidate(
            candidate_id=f"{self._run_id}-{self.island_id}-{self._next_number:06d}",
            run_id=self._run_id,
            problem_id=self._problem_id,
            island=self.island_id,
            source=source,
            entry_point=self._entry_point,
            lineage=lineage,
        )
        assert candidate.program_id == program_id  # asked here, so that whoever gets the candidate need not parse it
        self._next_number += 1
        self._known.add(program_id)
        self._in_flight[candidate.candidate_id] = candidate
        return candidate

    def _tell_one(self, verdict: Verdict) -> AddStatus:
        candidate = self._in_flight.pop(verdict.candidate_id, None)
        if candidate is None:
            return AddStatus.REJECTED
        self._n_told += 1
        lineage = candidate.lineage
        occupant = Occupant(candidate, verdict) if verdict.is_correct else None
        status = self._add(occupant) if occupant else AddStatus.REJECTED
        child = occupant if occupant and self._may_breed(occupant) else None
        if child and not lineage.parents:
            self._founders.append(child)
        trial = self._trial(candidate, verdict, child, status)
        self._strategy.told(trial)
        self._count(lineage, verdict, trial)
        self._progress.told(self._grid.best if self._grid else None)
        if self._dialogues is not None:
            self._dialogues.told(verdict.candidate_id, verdict, lineage)
        return status

    def _trial(self, candidate: Candidate, verdict: Verdict, child: Occupant | None, status: AddStatus) -> Trial:
        lineage = candidate.lineage
        known = [self._standings[parent] for parent in lineage.parents if parent in self._standings]
        return Trial(
            candidate_id=candidate.candidate_id,
            arm=f"{lineage.model} {lineage.operator}".strip(),  # a model's crossover is not the structural one
            parents=lineage.parents,
            parent_us=min((standing.latency_us for standing in known if standing.latency_us), default=None),
            child=child,
            status=status,
            detail=lineage.detail,
            expected=Expectation(lineage.state, lineage.predicted_octaves),
            before=self._standings.get(lineage.parents[0]) if lineage.parents else None,
            after=Standing.of(verdict, lineage.technique),
        )

    # ------------------------------------------------------------------------------------------- migration, reseeding

    def elites(self, n: int | None = None) -> list[Evaluation]:
        """The fastest programs of the grid, at most `n`."""
        return [elite.as_evaluation() for elite in self._elites()[:n]]

    def emigrate(self, n: int) -> list[Evaluation]:
        """The fastest elites that have not left from here before, at most `n`. They stay here too."""
        leaving = [elite for elite in self._elites() if elite.program_id not in self._sent][:n]
        self._sent.update(elite.program_id for elite in leaving)
        return [elite.as_evaluation() for elite in leaving]

    def due_migrants(self) -> list[Evaluation]:
        """`migration_size` emigrants when `migration_interval` verdicts came in since the last time, else none."""
        if self._n_told - self._n_told_at_migration < self._settings.migration_interval:
            return []
        self._n_told_at_migration = self._n_told
        return self.emigrate(self._settings.migration_size)

    def immigrate(self, migrants: Sequence[Evaluation]) -> int:
        """Offers migrants to the grid under their own ids; how many entered.

        A program that was asked here, or came before, is passed over, so that one program cannot multiply; so is one
        whose latency is not comparable.
        """
        return sum(self._settle(migrant) > AddStatus.REJECTED for migrant in self._newcomers(migrants))

    def reseed(self, migrants: Sequence[Evaluation]) -> int:
        """Empties the grid and starts again from the migrants, known or not; how many entered.

        What was asked stays known and what the operators earned is kept. Without any migrant nothing is done.
        """
        fit = [migrant for migrant in migrants if self._is_comparable(migrant.verdict)]
        if not fit:
            return 0
        self._grid = EliteGrid(GridKey.of(fit[0].verdict))
        n_entered = sum(self._settle(migrant) > AddStatus.REJECTED for migrant in fit)
        self._progress = _Progress(self._settings.stagnation_margin)
        self._progress.told(self._grid.best)
        return n_entered

    def _newcomers(self, migrants: Iterable[Evaluation]) -> Iterable[Evaluation]:
        for migrant in migrants:
            if migrant.verdict.program_id not in self._known and self._is_comparable(migrant.verdict):
                yield migrant

    def _settle(self, migrant: Evaluation) -> AddStatus:
        self._known.add(migrant.verdict.program_id)
        self._came_back_empty = False
        return self._add(Occupant(migrant.candidate, migrant.verdict))

    # --------------------------------------------------------------------------------------------------- what it knows

    @property
    def is_stagnant(self) -> bool:
        """Whether the last `stagnation_window` verdicts improved neither best latency nor roofline efficiency."""
        return self._progress.n_idle >= self._settings.stagnation_window

    @property
    def is_exhausted(self) -> bool:
        """Whether the last ask found nothing new and no verdict is out that could change that; migrants still can."""
        return self._came_back_empty and not self._in_flight

    @property
    def is_finished(self) -> bool:
        """Whether the strategy has run its course. Verdicts that are still out may be told."""
        return self._strategy.is_finished()

    def summary(self) -> IslandSummary:
        """Counts, the best program, the cells and the techniques, for progress and reports."""
        best = self._grid.best if self._grid else None
        return IslandSummary(
            island=self.island_id,
            n_asked=self._n_told + len(self._in_flight),
            n_told=self._n_told,
            n_in_flight=len(self._in_flight),
            best_latency_us=best.latency_us if best else None,
            best_speedup=best.speedup if best else None,
            coverage=self._grid.coverage if self._grid else 0.0,
            qd_score=self._grid.qd_score if self._grid else 0.0,
            n_idle=self._progress.n_idle,
            is_stagnant=self.is_stagnant,
            is_finished=self.is_finished,
            cells=self._cell_summaries(),
            knowledge=self._strategy.summary(),
            techniques={name: self._technique_count(name) for name in sorted(self._tried)},
        )

    def _cell_summaries(self) -> tuple[CellSummary, ...]:
        return tuple(
            CellSummary(
                tier=cell.tier,
                latency_bin=cell.latency_bin,
                latency_us=elite.latency_us,
                speedup=elite.speedup,
                program_id=elite.program_id,
            )
            for cell, elite in (self._grid.cells() if self._grid else {}).items()
        )

    def _technique_count(self, name: str) -> TechniqueCount:
        return TechniqueCount(tried=self._tried[name], passed=self._passed[name], improved=self._improved[name])

    def _elites(self) -> list[Occupant]:
        return self._grid.elites() if self._grid else []

    def _stock(self) -> Stock:
        elites = self._elites() or sorted(self._strays, key=lambda occupant: occupant.rank)
        founders = [founder for founder in self._founders if self._may_breed(founder)]
        return Stock(elites, founders, len(self._in_flight))

    def _may_breed(self, occupant: Occupant) -> bool:
        return self._grid is None or self._grid.accepts(occupant.verdict)

    def _is_comparable(self, verdict: Verdict) -> bool:
        if not verdict.is_correct or verdict.problem_id != self._problem_id or verdict.precision != self._precision:
            return False
        return self._grid is None or self._grid.accepts(verdict)

    def _add(self, occupant: Occupant) -> AddStatus:
        """Offers a correct program to the grid, which the first comparable one makes."""
        self._note_standing(occupant)
        if not self._is_comparable(occupant.verdict):
            if self._grid is None:
                self._strays.append(occupant)
            return AddStatus.REJECTED
        if self._grid is None:
            self._grid = EliteGrid(GridKey.of(occupant.verdict))
            self._strays.clear()
        return self._grid.add(occupant)

    def _note_standing(self, occupant: Occupant) -> None:
        technique = occupant.candidate.lineage.technique
        self._standings[occupant.program_id] = Standing.of(occupant.verdict, technique)
        if self._dialogues is not None:
            self._dialogues.seen(occupant)

    def _count(self, lineage: Lineage, verdict: Verdict, trial: Trial) -> None:
        name = lineage.technique or lineage.operator
        self._tried[name] += 1
        self._passed[name] += verdict.is_correct
        self._improved[name] += trial.gain > -math.log2(1 - self._settings.stagnation_margin)


class _Progress:
    """Counts the verdicts since best latency or roofline efficiency last improved by the margin."""

    def __init__(self, margin: float) -> None:
        self._margin = margin
        self._latency_us = math.inf
        self._efficiency = 0.0
        self.n_idle = 0

    def told(self, best: Occupant | None) -> None:
        """One more verdict came in."""
        self.n_idle += 1
        self.note(best)

    def note(self, best: Occupant | None) -> None:
        """Looks at the best program: a better one ends the idleness."""
        if best is None:
            return
        efficiency = best.verdict.profile.roofline_efficiency if best.verdict.profile else 0.0
        faster = best.latency_us <= self._latency_us * (1 - self._margin)
        if faster or efficiency > self._efficiency * (1 + self._margin):
            self._latency_us, self._efficiency = best.latency_us, max(efficiency, self._efficiency)
            self.n_idle = 0


def _lineage_of(draw: Draw, proposal: Proposal, expected: Expectation) -> Lineage:
    return Lineage(
        operator=draw.operator.name,
        technique=proposal.technique,
        parents=draw.parent_ids,
        detail=proposal.detail,
        state=expected.state,
        predicted_octaves=expected.octaves,
    )


def _branch(rng: random.Random) -> random.Random:
    """A generator of its own; the first one stays as it is, so that models do not change what structural draws are."""
    copied = random.Random()
    copied.setstate(rng.getstate())
    return random.Random(f"{copied.getrandbits(64)}/dialogues")


def _number_of(candidate_id: str) -> int:
    return int(candidate_id.rsplit("-", 1)[-1])
