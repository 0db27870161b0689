"""Islands in other processes: thin shells of Ray around `Island`. Arguments and answers are plain records."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import ray

from db.records import Candidate, EntryPoint, Evaluation, PrecisionClass, Verdict
from islands.dialogues import Brief, DialogueSettings, DialoguesState, Question
from islands.grid import AddStatus
from islands.knowledge import PriorKnowledge
from islands.llm.exchange import Outcome
from islands.reflection import Findings, Taught
from islands.seed import Seed
from islands.settings import IslandSettings
from islands.summary import IslandSummary

GC_THRESHOLDS = (50_000, 20, 100)


class Call(NamedTuple):
    """A method of an island, and what it is called with."""

    island_id: int
    method: str
    arguments: tuple[Any, ...]


class HostedIsland:
    """One island with what it is made of. Ask for several candidates in one call."""

    def __init__(
        self,
        *,
        island_id: int,
        run_id: str,
        problem_id: str,
        entry_point: EntryPoint,
        strategy: str = "map-elites",
        rng_seed: int = 0,
        settings: IslandSettings | None = None,
        precision: PrecisionClass = PrecisionClass.REFERENCE,
        prior: PriorKnowledge | None = None,
    ) -> None:
        from islands.island import Island, island_rng  # with all operators: whoever calls an island has no use for them
        from islands.operators import default_operators
        from islands.strategies import make_strategy

        self._island = Island(
            island_id=island_id,
            run_id=run_id,
            problem_id=problem_id,
            entry_point=entry_point,
            operators=default_operators(precision),
            strategy=make_strategy(strategy),
            rng=island_rng(rng_seed, island_id),
            settings=settings or IslandSettings(),
            precision=precision,
            prior=prior,
        )

    def seed(self, seeds: Sequence[Seed]) -> list[Candidate]:
        return self._island.seed(seeds)

    def ask(self, n: int) -> list[Candidate]:
        return self._island.ask(n)

    def talk(self, brief: Brief, settings: DialogueSettings, taught: Taught | None = None) -> None:
        self._island.talk(brief, settings, taught)

    def questions(self, n: int) -> list[Question]:
        return self._island.questions(n)

    def answered(self, dialogue_id: str, outcome: Outcome) -> Candidate | None:
        return self._island.answered(dialogue_id, outcome)

    def dump_dialogues(self) -> DialoguesState:
        """Where conversations with language models stand; none without `talk`."""
        return self._island.dialogues.dump() if self._island.dialogues else DialoguesState()

    def restore_dialogues(self, state: DialoguesState) -> None:
        """Takes conversations up again, after `talk` and before `restore`."""
        if self._island.dialogues:
            self._island.dialogues.restore(state)

    def judge_question(self, program: Evaluation) -> Question | None:
        return self._island.judge_question(program)

    def reflect_question(self) -> Question | None:
        return self._island.reflect_question()

    def consider(self, program: Evaluation) -> None:
        self._island.consider(program)

    def findings(self) -> Findings:
        return self._island.findings()

    def hear(self, findings: Findings) -> None:
        self._island.hear(findings)

    def tell(self, verdicts: Sequence[Verdict]) -> list[AddStatus]:
        return self._island.tell(verdicts)

    def reprofile(self, verdicts: Sequence[Verdict]) -> int:
        return self._island.reprofile(verdicts)

    def restore(self, evaluations: Sequence[Evaluation], migrants: Sequence[Evaluation] = ()) -> None:
        self._island.restore(evaluations, migrants)

    def readmit(self, candidates: Sequence[Candidate]) -> None:
        self._island.readmit(candidates)

    def emigrate(self, n: int | None = None) -> list[Evaluation]:
        """The next `n` migrants; without `n`, those of the settings if `migration_interval` tells have passed."""
        return self._island.due_migrants() if n is None else self._island.emigrate(n)

    def immigrate(self, migrants: Sequence[Evaluation]) -> int:
        return self._island.immigrate(migrants)

    def elites(self, n: int | None = None) -> list[Evaluation]:
        return self._island.elites(n)

    def reseed(self, migrants: Sequence[Evaluation]) -> int:
        return self._island.reseed(migrants)

    def is_exhausted(self) -> bool:
        return self._island.is_exhausted

    def summary(self) -> IslandSummary:
        return self._island.summary()


@ray.remote
class IslandActor(HostedIsland):
    """One island in a process of its own. Calls run one at a time, in the order in which they arrive."""


@ray.remote
class IslandsActor:
    """Several islands in one process: a process costs a hundred megabytes and seconds of a core, an island little.

    Calls run one at a time, in the order in which they arrive, whichever island they are for.
    """

    def __init__(self, islands: Sequence[Mapping[str, Any]]) -> None:
        """`islands` are the arguments of a `HostedIsland` each."""
        # taken-apart programs are many small objects that live long: looking at them again and again costs a fifth
        gc.set_threshold(*GC_THRESHOLDS)
        self._islands = {made_of["island_id"]: HostedIsland(**made_of) for made_of in islands}

    def call(self, *calls: Call) -> list[Any]:
        """Methods of islands, with their arguments; the answers in order."""
        return [getattr(self._islands[one.island_id], one.method)(*one.arguments) for one in calls]
