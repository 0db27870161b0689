"""The loop on real islands, a real archive and actors that judge: what is asked, kept, told, sent and judged twice."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import ray
from support.llm_clients import client_of, spec
from support.llm_server import Asked, LlmServer, Reply, answer, failing
from support.parents import kernel_sources
from support.runs import make_hardware, make_problem
from support.workers import MadeUpEvaluator, MadeUpPreparer, make_candidate, make_report, make_verdict

from db.actor import ArchiveActor
from db.errors import SeedError
from db.measures import Tier
from db.profile import Profile
from db.records import Candidate, EntryPoint, Evaluation, Lineage, PrecisionClass, Verdict
from evolve import correspondence
from evolve.budget import Budget
from evolve.config import CounterSettings
from evolve.counters import CounterQueue, revised
from evolve.events import Event, Judged, Migrated, ModelsSilent, NoAnswer, Ticked
from evolve.judging import ActorPool, JudgePool
from evolve.progress import ProgressMeter
from evolve.search import CONFIRM, MOST_IN_VAIN, Search
from evolve.stopping import NO_FIRST_PROGRAM, STAGNATION, Patience
from islands.actor import IslandActor
from islands.dialogues import Brief, DialogueSettings
from islands.llm.budget import Limits, LlmBudget
from islands.llm.client import LlmClient, LlmSettings
from islands.llm.exchange import Outcome
from islands.migration import make_topology
from islands.seed import Seed
from islands.settings import IslandSettings

KERNEL = kernel_sources()["row_softmax"]
LIMIT_S = 120.0


@pytest.fixture(scope="module")
def judges(ray_session: None) -> Iterator[tuple[ActorPool, ActorPool]]:
    actors = [MadeUpPreparer.remote(), MadeUpEvaluator.remote()]
    yield ActorPool(actors[:1]), ActorPool(actors[1:])
    for actor in actors:
        ray.kill(actor)


@dataclass
class Stage:
    """One search with everything that it touches; `play` runs steps of it in one event loop."""

    search: Search
    budget: Budget
    meter: ProgressMeter
    archive: Any
    islands: list[Any]
    events: list[Event] = field(default_factory=list)

    def play(self, *steps: Callable[[], Awaitable[object]]) -> None:
        async def played() -> None:
            for step in steps:
                await step()

        asyncio.run(asyncio.wait_for(played(), LIMIT_S))

    def kept(self) -> list[Evaluation]:
        """What is in the archive, in the order in which it came there."""
        return list(ray.get(self.archive.evaluations.remote("run"), timeout=60))

    def count(self, kind: type[Event]) -> int:
        return sum(isinstance(event, kind) for event in self.events)


StageMaker = Callable[..., Stage]


@pytest.fixture
def stage(judges: tuple[ActorPool, ActorPool], tmp_path: Path) -> Iterator[StageMaker]:
    started: list[Any] = []

    def make(
        n_islands: int = 1,
        evaluations: int = 8,
        strategy: str = "map-elites",
        topology: str = "ring",
        batch: int = 1,
        chains: int = 2,
        patience: Patience | None = None,
        window: int = 0,
        counters: CounterQueue | None = None,
        **settings: Any,
    ) -> Stage:
        islands = [_island(index, strategy, IslandSettings(**settings)) for index in range(n_islands)]
        archive = ArchiveActor.remote(str(tmp_path / "archive.duckdb"))  # type: ignore[attr-defined]
        started.extend([*islands, archive])
        budget = Budget(evaluations)
        meter = ProgressMeter(budget)
        events: list[Event] = []
        judge = JudgePool(
            preparers=judges[0],
            evaluators=judges[1],
            archive=archive,
            report=make_report(),
            precision=PrecisionClass.REFERENCE,
        )
        search = Search(
            islands=islands,
            judge=judge,
            archive=archive,
            budget=budget,
            meter=meter,
            topology=make_topology(topology),
            rng=random.Random(0),
            on_event=events.append,
            chains_per_island=chains,
            batch=batch,
            stop_when_stagnant=True,
            patience=patience,
            window=window,
            counters=counters,
        )
        return Stage(search, budget, meter, archive, islands, events)

    yield make
    for actor in started:
        ray.kill(actor)


def _island(index: int, strategy: str, settings: IslandSettings) -> Any:
    return IslandActor.options(num_cpus=0).remote(  # type: ignore[attr-defined]
        island_id=index,
        run_id="run",
        problem_id="problem",
        entry_point=EntryPoint.MODEL,
        strategy=strategy,
        settings=settings,
    )


def seed(**says: object) -> Seed:
    """A program of no kernel, which no technique applies to; its judges do what it says."""
    return Seed(source="\n".join(f"{name} = {value}" for name, value in says.items()), origin="file")


@pytest.mark.parametrize("strategy", ["map-elites", "best-of-n", "greedy", "beam"])
def test_every_strategy_spends_its_budget(stage: StageMaker, strategy: str) -> None:
    play = stage(n_islands=2, evaluations=11, strategy=strategy, batch=2, in_flight=2, migration_interval=3)
    play.play(lambda: play.search.seed([Seed(source=KERNEL)]), play.search.run)
    kept = play.kept()
    ids = [e.candidate.candidate_id for e in kept]
    assert len(ids) == len(set(ids)) == play.count(Judged) == 11
    assert play.budget.stop_reason == "evaluations"
    assert {e.candidate.island for e in kept} == {0, 1}
    assert all(e.candidate.lineage.parents for e in kept if e.candidate.lineage.operator != "seed")
    assert play.meter.best is not None
    assert play.meter.best.verdict.latency == min(
        (e.verdict.latency for e in kept if e.verdict.latency), key=lambda latency: latency.device_us
    )


def test_all_islands_start_from_seeds_that_are_judged_once(stage: StageMaker) -> None:
    play = stage(n_islands=2)
    play.play(lambda: play.search.seed([seed(us=80.0), seed(us=90.0, wrong=1)]))
    kept = play.kept()
    assert [(e.candidate.island, bool(e.verdict.duplicate_of)) for e in kept] == [
        (0, False),
        (0, False),
        (1, True),
        (1, True),
    ]
    assert all(e.candidate.lineage.seeded_from == "file" for e in kept)
    assert play.budget.evaluations_left == 8 - 4


def test_seeds_of_which_none_works_end_the_run_and_are_kept(stage: StageMaker) -> None:
    play = stage(n_islands=2)
    with pytest.raises(SeedError, match="correctness: it differs from the reference"):
        play.play(lambda: play.search.seed([seed(us=1.0, wrong=1), seed(us=2.0, refused="no kernel")]))
    assert len(play.kept()) == 2


def test_a_run_with_nothing_to_propose_ends(stage: StageMaker) -> None:
    play = stage(evaluations=50)
    play.play(lambda: play.search.seed([seed(us=80.0)]), play.search.run)
    assert len(play.kept()) == 1 and play.budget.stop_reason == ""


def test_elites_reach_the_next_island(stage: StageMaker, tmp_path: Path) -> None:
    """Island 0 was left with a program that no other island could make of its own."""
    play = stage(n_islands=2, evaluations=12, migration_interval=2)
    best = make_candidate(0, tmp_path, us=1.0)
    planted = Evaluation(candidate=best, verdict=make_verdict(best))
    play.play(
        lambda: play.search.restore([planted], elapsed_s=0.0),
        lambda: play.search.seed([Seed(source=KERNEL)]),
        play.search.run,
    )
    migrations = [(e.source, e.target) for e in play.events if isinstance(e, Migrated) and e.n_migrants]
    assert (0, 1) in migrations and all(source != target for source, target in migrations)
    assert ray.get(play.islands[1].summary.remote(), timeout=60).best_latency_us == 1.0


def test_winners_are_judged_again_and_a_lucky_one_loses(stage: StageMaker) -> None:
    play = stage()
    first = [seed(us=50.0, lucky=1), seed(us=60.0), seed(us=70.0), seed(us=80.0)]
    play.play(lambda: play.search.seed(first))
    assert play.meter.best is not None and play.meter.best.verdict.latency is not None
    assert play.meter.best.verdict.latency.device_us == 50.0
    play.play(lambda: play.search.confirm(2))
    looks = [e for e in play.kept() if e.candidate.lineage.operator == CONFIRM]
    assert [e.verdict.is_correct for e in looks] == [False, True]
    assert [e.candidate.lineage.parents[0] for e in looks] == [e.candidate.program_id for e in looks]
    assert play.meter.best is not None and play.meter.best.verdict.latency is not None
    assert play.meter.best.verdict.latency.device_us == 60.0 and play.meter.best.candidate.candidate_id in {
        e.candidate.candidate_id for e in looks
    }


def test_a_winner_that_is_judged_again_keeps_what_counters_said_of_it(stage: StageMaker) -> None:
    play = stage()
    play.play(lambda: play.search.seed([seed(us=50.0, work="A"), seed(us=60.0, work="B")]))
    counted, other = play.meter.fastest()
    profile = Profile(source="ncu", memory_sol_pct=91.0, dram_pct=91.0, duration_us=50.0)
    verdict = revised(counted, profile, make_hardware())
    play.play(lambda: play.search.recell([verdict]), lambda: play.search.confirm(2))
    kept = {e.verdict.program_id: e.verdict for e in play.kept() if e.candidate.lineage.operator == CONFIRM}
    again = kept[counted.verdict.program_id]
    assert again.candidate_id != verdict.candidate_id and again.is_correct
    assert (again.profile, again.tier, again.bottleneck) == (profile, verdict.tier, verdict.bottleneck)
    assert again.tier is Tier.NEAR_OPTIMAL and again.bottleneck is not None
    assert play.meter.best is not None and play.meter.best.verdict == again
    assert kept[other.verdict.program_id].profile == other.verdict.profile  # which nobody read counters of


def test_the_archive_is_told_why_a_program_has_no_counters_and_islands_are_not(stage: StageMaker) -> None:
    play = stage()
    play.play(lambda: play.search.seed([seed(us=50.0)]))
    (first,) = play.meter.fastest()
    verdict = revised(first, Profile(source="compiled", note="nobody may read them; do that"), make_hardware())
    play.play(lambda: play.search.recell([verdict]))
    (kept,) = play.kept()
    assert kept.verdict.profile is not None and kept.verdict.profile.note == "nobody may read them"
    (elite,) = ray.get(play.islands[0].elites.remote(1), timeout=60)
    assert elite.verdict == first.verdict


@ray.remote(num_cpus=0)
class Reader:
    """Reads counters of whatever it is given."""

    def profile(self, candidates: Sequence[Candidate], provisional: Sequence[Profile]) -> list[Profile]:
        return [Profile(source="ncu", memory_sol_pct=91.0, duration_us=50.0, gpu_s=0.5) for _ in candidates]


def test_the_winner_and_what_it_was_made_from_have_counters_in_the_end(stage: StageMaker) -> None:
    now = [0.0]
    reader = Reader.remote()  # type: ignore[attr-defined]

    async def recell(read: list[tuple[Evaluation, Profile]]) -> list[Verdict]:
        verdicts = [revised(evaluation, profile, make_hardware()) for evaluation, profile in read]
        await play.search.recell(verdicts)
        return verdicts

    queue = CounterQueue(ActorPool([reader]), CounterSettings(), recell, clock=lambda: now[0])
    play = stage(counters=queue)
    texts = [f"us = {us}\nwork = {us}" for us in (80.0, 70.0, 60.0, 50.0)]
    made = [
        Candidate.model_validate({**_BLANK, "candidate_id": f"run-0-{n}", "source": t}) for n, t in enumerate(texts)
    ]
    for n, parent in ((3, 1), (1, 0)):  # the one in between is nobody's parent
        lineage = Lineage(operator="retune", parents=(made[parent].program_id,))
        made[n] = made[n].model_copy(update={"lineage": lineage})
    play.play(lambda: play.search.settle(0, made))
    now[0] = 100.0
    play.play(lambda: play.search.confirm(1))
    ray.kill(reader)
    sources = [e.verdict.profile.source for e in play.kept() if e.verdict.profile]
    assert sources == ["ncu", "ncu", "compiled", "ncu", "ncu"]  # the last is the second judgement
    assert play.meter.best is not None and play.meter.best.verdict.tier is Tier.NEAR_OPTIMAL
    assert queue.report.n_read == 3


_BLANK = {
    "run_id": "run",
    "problem_id": "problem",
    "island": 0,
    "entry_point": EntryPoint.MODEL,
    "lineage": Lineage(operator="retune"),
}


def test_where_no_winner_passes_again_the_next_are_tried(stage: StageMaker) -> None:
    play = stage()
    first = [seed(us=50.0, lucky=1), seed(us=60.0, lucky=1), seed(us=70.0), seed(us=80.0)]
    play.play(lambda: play.search.seed(first), lambda: play.search.confirm(2))
    looks = [e for e in play.kept() if e.candidate.lineage.operator == CONFIRM]
    assert [e.verdict.is_correct for e in looks] == [False, False, True, True]
    assert play.meter.best is not None and play.meter.best.verdict.latency is not None
    assert play.meter.best.verdict.latency.device_us == 70.0


def test_a_resumed_search_goes_on_where_it_was(stage: StageMaker) -> None:
    earlier = stage(evaluations=6)
    earlier.play(lambda: earlier.search.seed([Seed(source=KERNEL)]), earlier.search.run)
    earlier.play(lambda: earlier.search.confirm(1))
    judged = earlier.kept()
    ray.get(earlier.archive.close.remote(), timeout=60)
    later = stage(evaluations=10)
    later.play(
        lambda: later.search.restore(judged, elapsed_s=7.0),
        lambda: later.search.seed([Seed(source=KERNEL)]),
        later.search.run,
    )
    programs = [e for e in later.kept() if e.candidate.lineage.operator != CONFIRM]
    assert len(programs) == len({e.candidate.candidate_id for e in programs}) == 10
    assert len({e.candidate.program_id for e in programs}) == 10  # nothing is asked a second time
    assert later.count(Judged) == 4 and 7.0 <= later.budget.elapsed_s < 7.0 + LIMIT_S


def test_a_resumed_search_offers_elites_whose_counters_nobody_read(
    stage: StageMaker, judges: tuple[ActorPool, ActorPool]
) -> None:
    earlier = stage()
    earlier.play(lambda: earlier.search.seed([seed(us=50.0, work="A"), seed(us=60.0, work="B")]))
    counted = earlier.meter.fastest()[0]
    verdict = revised(counted, Profile(source="ncu", memory_sol_pct=91.0, duration_us=50.0), make_hardware())
    earlier.play(lambda: earlier.search.recell([verdict]))
    judged = earlier.kept()
    ray.get(earlier.archive.close.remote(), timeout=60)

    async def recell(_: list[tuple[Evaluation, Profile]]) -> list[Verdict]:
        raise NotImplementedError

    queue = CounterQueue(judges[1], CounterSettings(), recell)
    later = stage(n_islands=1, counters=queue)
    later.play(lambda: later.search.restore(judged, elapsed_s=7.0))
    assert len(judged) == 2 and queue.report.n_offered == 1


def test_a_resumed_island_learns_what_children_of_migrants_gained(stage: StageMaker, tmp_path: Path) -> None:
    play = stage(n_islands=2)
    parent = make_candidate(0, tmp_path, us=80.0)
    lineage = Lineage(operator="num_warps", technique="num_warps", parents=(parent.program_id,))
    child = make_candidate(1, tmp_path, us=40.0).model_copy(update={"island": 1, "lineage": lineage})
    judged = [Evaluation(candidate=c, verdict=make_verdict(c)) for c in (parent, child)]
    play.play(lambda: play.search.restore(judged, elapsed_s=0.0))
    told = ray.get(play.islands[1].summary.remote(), timeout=60)
    assert told.knowledge.n_attempts == 1 and told.techniques["num_warps"].improved == 1


def test_ticks_tell_where_a_run_stands_and_stagnation_ends_it(stage: StageMaker) -> None:
    play = stage(evaluations=500, stagnation_window=3, stagnation_margin=0.9)
    play.play(lambda: play.search.seed([Seed(source=KERNEL)]), play.search.run)
    assert play.budget.stop_reason == "stagnation" and play.count(Ticked) >= 1
    assert len(play.kept()) < 500


def test_a_stagnant_island_starts_again_from_a_faster_one(stage: StageMaker, tmp_path: Path) -> None:
    play = stage(n_islands=2, evaluations=500, chains=1, stagnation_window=3, stagnation_margin=0.9, migration_size=0)
    fast = make_candidate(0, tmp_path, us=1.0)
    slow = make_candidate(1, tmp_path, us=90.0).model_copy(update={"island": 1})
    judged = [Evaluation(candidate=c, verdict=make_verdict(c)) for c in (fast, slow)]
    play.play(lambda: play.search.restore(judged, elapsed_s=0.0))
    moving, still = ray.get([island.summary.remote() for island in play.islands], timeout=60)
    play.play(lambda: play.search.rescue([moving, still]))
    assert play.count(Migrated) == 0  # nobody stands still
    play.play(lambda: play.search.rescue([moving, still.model_copy(update={"is_stagnant": True})]))
    assert ray.get(play.islands[1].summary.remote(), timeout=60).best_latency_us == 1.0
    play.play(lambda: play.search.rescue([moving.model_copy(update={"is_stagnant": True}), still]))
    assert play.count(Migrated) == 1  # the one that moves is slower: its elites would be no help


@dataclass
class Model:
    """A model at a server of the test, that says so much and costs no more than that may."""

    client: LlmClient
    server: LlmServer

    @property
    def asked(self) -> list[Asked]:
        return self.server.asked


ModelMaker = Callable[..., Model]


@pytest.fixture
def model() -> Iterator[ModelMaker]:
    """Makes models whose budget is as many calls as they have answers; `outages` come before any."""
    with contextlib.ExitStack() as servers:

        def make(answers: Sequence[str | Reply], *, takes_s: float = 0.0, outages: int = 0) -> Model:
            said = [one if isinstance(one, Reply) else answer(one, delay_s=takes_s) for one in answers]
            replies = [failing(500, "out of order")] * outages + said
            server = servers.enter_context(LlmServer(replies))
            once, budget = LlmSettings(n_tries=1), LlmBudget(Limits(n_calls=len(replies)))
            client = client_of(spec(server.api_base), settings=once, budget=budget)
            asyncio.run(client.prepare())  # imports, which take longer than a search here
            return Model(client, server)

        yield make


def talk(
    play: Stage, model: Model, n_per_island: int = 1, seeds: tuple[str, ...] = ("x = 1",)
) -> list[tuple[Outcome, Any]]:
    """Lets the islands talk to a client; what came of each answer."""
    problem = make_problem().model_copy(update={"seeds": seeds})
    brief = Brief(problem=problem, hardware=make_report().hardware, triton_version="3.6.0")
    for island in play.islands:
        settings = DialogueSettings(in_flight=n_per_island, operators=("mutate",), reflect_every=0)
        ray.get(island.talk.remote(brief, settings))
    heard: list[tuple[Outcome, Any]] = []

    async def note(question: Any, outcome: Outcome, candidate: Any) -> None:
        heard.append((outcome, candidate))

    play.search.correspond(model.client, n_per_island, note)
    return heard


def program(number: int) -> str:
    return f"```python\n# us = {number}\nus = {number}\n\n\nclass ModelNew:\n    pass\n```\n"


def test_what_models_write_is_judged_kept_and_told(stage: StageMaker, model: ModelMaker) -> None:
    play = stage(evaluations=9)
    scripted = model([program(30), "no code at all", program(20)])
    heard = talk(play, scripted)
    play.play(lambda: play.search.seed([seed(us=40)]), play.search.run)
    written = [e for e in play.kept() if e.candidate.lineage.operator == "mutate"]
    assert [e.verdict.latency.device_us for e in written if e.verdict.latency] == [30.0, 20.0]
    assert all(e.candidate.lineage.model == "openai/scripted" and e.candidate.lineage.prompt_hash for e in written)
    assert [c is not None for _, c in heard][:3] == [True, False, True]
    assert "could not be used" in scripted.asked[2].body["messages"][-1]["content"]
    assert len(play.kept()) == 3 and play.meter.best is not None


def test_models_that_fall_silent_do_not_end_the_search_and_are_told(stage: StageMaker, model: ModelMaker) -> None:
    play = stage(evaluations=9)
    talk(play, model([]))
    play.play(lambda: play.search.seed([Seed(source=KERNEL)]), play.search.run)
    silences = [event.reason for event in play.events if isinstance(event, ModelsSilent)]
    assert ["budget of language models is used up" in one for one in silences] == [True] and len(play.kept()) == 9


@pytest.mark.parametrize("window", [0, 2], ids=["as they come", "in order"])
def test_an_answer_that_is_paid_for_is_judged_though_the_money_is_spent(
    stage: StageMaker, model: ModelMaker, window: int
) -> None:
    play = stage(n_islands=2, evaluations=20, window=window)
    scripted = model([answer(program(30), delay_s=0.8), failing(401)])
    talk(play, scripted)
    play.play(lambda: play.search.seed([seed(us=40)]), play.search.run)
    assert [e.candidate.lineage.operator for e in play.kept()] == ["seed", "seed", "mutate"]
    assert len(scripted.asked) == 2 and play.count(ModelsSilent) == 1


def test_an_outage_is_waited_for(stage: StageMaker, model: ModelMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(correspondence, "PAUSE_S", 0.3)
    play = stage(evaluations=20)
    scripted = model([program(30), program(20)], outages=1)
    talk(play, scripted)
    play.play(lambda: play.search.seed([seed(us=40)]), play.search.run)
    assert [e.candidate.lineage.operator for e in play.kept()] == ["seed", "mutate", "mutate"]
    assert len(scripted.asked) == 3 and play.count(ModelsSilent) == 1  # when its calls are used up


def test_a_run_does_not_wait_for_an_answer_when_it_is_over(stage: StageMaker, model: ModelMaker) -> None:
    play = stage(evaluations=5)
    talk(play, model([program(30)], takes_s=600.0))
    play.play(lambda: play.search.seed([Seed(source=KERNEL)]), play.search.run)
    assert len(play.kept()) == 5


def test_models_keep_a_search_going_that_has_nothing_new_to_propose(stage: StageMaker, model: ModelMaker) -> None:
    play = stage(evaluations=4)
    talk(play, model([program(30), program(20)], takes_s=0.3))
    play.play(lambda: play.search.seed([seed(us=40)]), play.search.run)
    assert [e.candidate.lineage.operator for e in play.kept()] == ["seed", "mutate", "mutate"]


def test_models_that_bring_nothing_are_not_asked_for_ever(stage: StageMaker, model: ModelMaker) -> None:
    play = stage(evaluations=4)
    scripted = model([program(30)] + 400 * ["no code at all"])
    talk(play, scripted)
    play.play(lambda: play.search.seed([seed(us=40)]), play.search.run)
    assert [e.candidate.lineage.operator for e in play.kept()] == ["seed", "mutate"]
    assert play.budget.stop_reason == STAGNATION
    assert MOST_IN_VAIN < len(scripted.asked) < MOST_IN_VAIN + 10


def test_what_islands_hold_and_do_not_use_is_left_to_models(stage: StageMaker, model: ModelMaker) -> None:
    play = stage(evaluations=7, chains=8, batch=8)  # each chain asks for all that is left, and gets nothing
    talk(play, model([program(number) for number in range(30, 40)], takes_s=0.05))
    play.play(lambda: play.search.seed([seed(us=40)]), play.search.run)
    assert [e.candidate.lineage.operator for e in play.kept()] == ["seed"] + 6 * ["mutate"]
    assert play.budget.stop_reason == "evaluations"


# ------------------------------------------------------------------------------------------------- without a program


def kernel(**says: object) -> str:
    """An answer with a program that techniques apply to; its judges do what it says."""
    lines = "\n".join(f"{name} = {value}" for name, value in says.items())
    return f"```python\n{KERNEL}\n{lines}\n```\n"


def begin(play: Stage, model: Model) -> None:
    """A run of a problem without a program, to its end."""
    talk(play, model, seeds=())
    play.play(lambda: play.search.seed([]), play.search.run)


def test_the_first_program_that_is_right_is_given_to_every_island(stage: StageMaker, model: ModelMaker) -> None:
    play = stage(n_islands=3, evaluations=20, migration_interval=1000)
    scripted = model(["no code at all", kernel(us=70, wrong=1), kernel(us=60), kernel(us=50)], takes_s=0.1)
    begin(play, scripted)
    kept = play.kept()
    first = next(e for e in kept if e.verdict.is_correct)
    assert first.candidate.lineage.model == "openai/scripted" and first.candidate.lineage.parents == ()
    copies = [e for e in kept if e.candidate.lineage.operator == "seed"]
    assert {e.candidate.island for e in copies} == {0, 1, 2} - {first.candidate.island}
    for copy in copies:
        assert copy.verdict.duplicate_of == copy.candidate.program_id == first.candidate.program_id
        assert copy.candidate.lineage.seeded_from == f"program {first.candidate.program_id}"
    rewritten = [e for e in kept if e.candidate.lineage.parents]
    assert {e.candidate.island for e in rewritten} == {0, 1, 2}
    assert len(kept) == 20 and play.budget.stop_reason == "evaluations"


def test_a_run_whose_models_never_write_a_right_program_is_given_up(stage: StageMaker, model: ModelMaker) -> None:
    play = stage(n_islands=2, evaluations=500, patience=Patience(9, 600.0), stagnation_window=2)
    wrong = [kernel(us=number, wrong=1) for number in range(1, 6)]
    scripted = model([*wrong, *["I cannot help with kernels"] * 100], takes_s=0.2)
    begin(play, scripted)
    assert play.budget.stop_reason == NO_FIRST_PROGRAM and play.meter.best is None
    assert len(play.kept()) == 5 and 9 <= len(scripted.asked) <= 11
    assert play.budget.evaluations_left == 500 - 5  # islands that have nothing were not even asked


def test_models_that_fall_silent_before_a_first_program_end_the_run(stage: StageMaker, model: ModelMaker) -> None:
    play = stage()
    begin(play, model([]))
    assert [event.ends_run for event in play.events if isinstance(event, ModelsSilent)] == [True]
    assert play.budget.stop_reason == NO_FIRST_PROGRAM and play.kept() == []


def test_an_outage_before_a_first_program_is_told_once_and_waited_for(
    stage: StageMaker, model: ModelMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(correspondence, "PAUSE_S", 0.3)
    play = stage(evaluations=3, patience=Patience(1, 600.0))
    begin(play, model([kernel(us=60)], outages=2))
    assert ["out of order" in event.reason for event in play.events if isinstance(event, NoAnswer)] == [True]
    assert len(play.kept()) == 3 and play.meter.best is not None


def test_failures_before_the_first_program_are_no_stagnation(stage: StageMaker, model: ModelMaker) -> None:
    play = stage(evaluations=9, stagnation_window=2)
    wrong = [kernel(us=number, wrong=1) for number in range(1, 6)]
    begin(play, model([*wrong, kernel(us=60)], takes_s=0.3))
    assert play.meter.best is not None and play.count(Ticked) >= 2
    assert [e.verdict.is_correct for e in play.kept()][:6] == [False] * 5 + [True]


def test_a_resumed_search_gives_its_first_program_to_islands_that_have_none(stage: StageMaker, tmp_path: Path) -> None:
    play = stage(n_islands=2)
    lineage = Lineage(operator="synthesize", model="openai/scripted")
    failed, first = (make_candidate(n, tmp_path, us=80.0 + n).model_copy(update={"lineage": lineage}) for n in (0, 1))
    judged = [
        Evaluation(candidate=failed, verdict=make_verdict(failed, "wrong")),
        Evaluation(candidate=first, verdict=make_verdict(first)),
    ]
    play.play(lambda: play.search.restore(judged[:1], elapsed_s=0.0), lambda: play.search.seed([]))
    assert play.kept() == []  # no seed has failed: models may go on
    ray.get(play.archive.close.remote(), timeout=60)
    play = stage(n_islands=2)
    play.play(lambda: play.search.restore(judged, elapsed_s=0.0), lambda: play.search.seed([]))
    (copy,) = play.kept()
    assert copy.candidate.island == 1 and copy.candidate.program_id == first.program_id
