"""What an island was taught: rewritten, bounded, shared, and handed on once."""

from __future__ import annotations

from support.colony import candidate
from support.landscape import correct

from db.opinions import Concern, ProgramOpinion
from db.profile import Bottleneck, BottleneckReport, KernelKind, PerformanceState
from db.records import Evaluation
from db.reflections import LearntTechnique
from db.techniques import load_catalogue
from islands.llm.opinions import Concern as ReadConcern
from islands.llm.opinions import ConcernKind, Opinion
from islands.llm.reflections import Action, Explanation, MemoryEdit, NewTechnique, Reflection
from islands.reflection import N_ADVICE, N_LESSONS, N_TECHNIQUES, N_TO_JUDGE, Findings, Reflections, Taught


def append(*texts: str) -> tuple[MemoryEdit, ...]:
    return tuple(MemoryEdit(Action.APPEND, text) for text in texts)


def new_technique(name: str = "halve_tiles", **more: object) -> NewTechnique:
    return NewTechnique(name, "Halves them.", "Halve. Verify.", (Bottleneck.SPILLS,), **more)  # type: ignore[arg-type]


def report(primary: Bottleneck, secondary: Bottleneck | None = None) -> BottleneckReport:
    state = PerformanceState(primary=primary, secondary=secondary, kernel_kind=KernelKind.ROW)
    return BottleneckReport(tier="memory_bound", source="compiled", state=state, limit="it is slow")  # type: ignore[arg-type]


def program(source: str) -> Evaluation:
    made = candidate(source)
    return Evaluation(candidate=made, verdict=correct(made, 10.0))


def test_an_answer_becomes_records_of_its_run_and_island() -> None:
    reflections = Reflections("r7", 3)
    why = Explanation(2, True, False, "barriers", avoid="16 warps", try_next="4 warps")
    reflections.learn(Reflection(append("a", "b"), (why,), (new_technique(),)), ("c-1", "c-2"), "openai/x")
    (found,) = reflections.take_findings().reflections
    assert (found.run_id, found.island) == ("r7", 3)
    assert [(one.position, one.text, one.run_id, one.island) for one in found.lessons] == [
        (0, "a", "r7", 3),
        (1, "b", "r7", 3),
    ]
    (explained,) = found.explanations
    assert explained.candidate_id == "c-2" and explained.cause == "barriers" and explained.model == "openai/x"
    assert (explained.diagnosis_was_right, explained.fix_worked) == (True, False)
    assert [one.name for one in found.techniques] == ["halve_tiles"] and found.techniques[0].run_id == "r7"
    taught = reflections.taught
    assert (taught.lessons, taught.avoid, taught.advice) == (("a", "b"), ("16 warps",), ("4 warps",))
    assert reflections.take_findings() == Findings()


def test_the_memory_is_rewritten_and_never_grows_without_bound() -> None:
    reflections = Reflections(taught=Taught(lessons=("first", "second")))
    edits = (MemoryEdit(Action.REPLACE, "second, better", 2), *append("third"))
    reflections.learn(Reflection(edits), (), "m")
    assert reflections.taught.lessons == ("first", "second, better", "third")
    for n in range(50):
        why = tuple(Explanation(k + 1, None, None, "c", f"avoid {n}.{k}", f"try {n}.{k}") for k in range(3))
        new = (new_technique(f"t{n}"),)
        reflections.learn(Reflection(append(*(f"{n}.{k}" for k in range(3))), why, new), ("a", "b", "c"), "m")
    taught = reflections.taught
    assert len(taught.lessons) == N_LESSONS and taught.lessons[-1] == "49.2"
    assert len(taught.avoid) == len(taught.advice) == N_ADVICE and taught.avoid[-1] == "avoid 49.2"
    assert len(taught.techniques) == N_TECHNIQUES and taught.techniques[-1].name == "t49"
    assert [one.position for one in reflections.take_findings().reflections[-1].lessons] == list(range(N_LESSONS))


def test_what_an_island_found_is_found_again_from_its_findings() -> None:
    before = Taught(lessons=("first",), avoid=("a",))
    reflections = Reflections("r", 0, before)
    reflections.begin(("r-0-000004",))
    why = (Explanation(1, None, None, "c", avoid="b", try_next="d"),)
    reflections.learn(Reflection(append("second"), why, (new_technique(),)), ("r-0-000004",), "m")
    reflections.opine("p", Opinion((), "fine"), "m")
    assert before.having_found(reflections.take_findings()) == reflections.taught


def test_what_is_said_again_is_kept_once_and_counts_as_new() -> None:
    reflections = Reflections(taught=Taught(avoid=("a", "b")))
    why = (Explanation(1, None, None, "c", avoid="a"), Explanation(2, None, None, "c", avoid=""))
    reflections.learn(Reflection((), why), ("x", "y"), "m")
    assert reflections.taught.avoid == ("b", "a")


def test_other_islands_hear_of_techniques_and_opinions_but_keep_their_memory() -> None:
    here, there = Reflections("r", 0), Reflections("r", 1, Taught(lessons=("mine",)))
    here.learn(Reflection(append("theirs"), (), (new_technique(), new_technique("num_warps"))), (), "m")
    here.opine("p1", Opinion((ReadConcern(ConcernKind.FAKED, 3, "zeros"),), "compute it"), "m")
    there.hear(here.take_findings())
    assert there.taught.lessons == ("mine",)
    assert [one.name for one in there.taught.techniques] == ["halve_tiles"]  # the catalogue has the other
    opinion = there.taught.opinion_on("p1")
    assert opinion is not None and opinion.concerns == (Concern(kind="faked", line=3, what="zeros"),)
    assert there.take_findings() == Findings()  # they are not its own


def test_a_technique_is_shown_where_it_addresses_what_limits_a_program() -> None:
    reflections = Reflections()
    new = (new_technique(), new_technique("for_matmul", kinds=(KernelKind.MATMUL,)))
    reflections.learn(Reflection((), (), new), (), "m")
    taught = reflections.taught

    def names(of: BottleneckReport | None) -> list[str]:
        return [entry.name for entry in taught.techniques_for(of)]

    assert names(report(Bottleneck.SPILLS)) == names(report(Bottleneck.LAUNCHES, Bottleneck.SPILLS)) == ["halve_tiles"]
    assert names(report(Bottleneck.LAUNCHES)) == names(None) == []
    known = [entry.name for entry in reflections.known_techniques]
    assert known == [*load_catalogue(), "halve_tiles", "for_matmul"]


def test_the_first_technique_of_a_name_counts_and_the_last_opinion_on_a_program() -> None:
    first, second = (
        LearntTechnique(run_id=run, name="a", changes="c", instruction="i", addresses=(Bottleneck.SPILLS,))
        for run in ("r1", "r2")
    )
    old, new = (ProgramOpinion(program_id="p", run_id=run) for run in ("r1", "r2"))
    taught = Taught().beside((first, second), (old,)).beside((second,), (new,))
    assert taught.techniques == (first,) and taught.opinions == (new,)


def test_attempts_count_until_a_reflection_is_about_them() -> None:
    reflections = Reflections()
    for n in (2, 3, 5):
        reflections.judged(f"r-0-{n:06d}")
    assert reflections.n_new == 3
    reflections.begin(("r-0-000002", "r-0-000005", "r-0-000003"))
    assert reflections.n_new == 0
    reflections.judged("r-0-000004")  # its verdict came late
    for n in (4, 5, 10):
        reflections.judged(f"r-0-{n:06d}", is_recalled=True)
    assert reflections.n_new == 2


def test_the_program_that_came_last_is_judged_first_and_none_twice() -> None:
    reflections = Reflections()
    programs = [program(f"X = {n}\n") for n in range(N_TO_JUDGE + 2)]
    for one in programs:
        reflections.consider(one)
    assert reflections.next_to_judge() == programs[-1]
    reflections.opine(programs[-1].verdict.program_id, Opinion((), ""), "m")
    reflections.consider(programs[-1])
    waiting = [reflections.next_to_judge() for _ in range(N_TO_JUDGE - 1)]
    assert waiting == list(reversed(programs[2:-1])) and not reflections.has_to_judge


def test_it_goes_on_from_what_was_dumped() -> None:
    before = Reflections("r", 1, Taught(lessons=("a",), avoid=("b",)))
    before.judged("r-1-000001")
    before.consider(program("X = 1\n"))
    state = before.dump()
    after = Reflections("r", 1)
    after.restore(type(state).model_validate_json(state.model_dump_json()))
    assert after.dump() == state and after.taught == before.taught and after.has_to_judge and after.n_new == 1
