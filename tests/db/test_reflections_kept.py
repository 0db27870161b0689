"""What reflection and the judge leave in the archive: rewritten or kept, in order, and readable beside a writer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
import pytest
import ray
from archive_records import evaluation, filled, problem, run
from pydantic import ValidationError

from db.actor import ArchiveActor
from db.archive import ProgramArchive
from db.errors import ArchiveError
from db.live import ArchiveServer, LiveArchive, open_for_reading
from db.migrations import load_steps, migrate
from db.opinions import Concern, ProgramOpinion
from db.profile import Bottleneck, KernelKind
from db.reflections import EVERYTHING, Explanation, LearntTechnique, Lesson, Reflection, Wanted


def lessons(run_id: str, island: int, texts: Sequence[str], at: float = 100.0) -> tuple[Lesson, ...]:
    return tuple(
        Lesson(run_id=run_id, island=island, position=k, text=text, created_at=at) for k, text in enumerate(texts)
    )


def explained(n: int, *, run_id: str = "r1", at: float = 100.0, **said: object) -> Explanation:
    values: dict[str, object] = {"diagnosis_was_right": True, "fix_worked": None, "cause": f"cause {n}", **said}
    name = f"{run_id}-0-{n:06d}"
    return Explanation(candidate_id=name, run_id=run_id, island=0, model="openai/x", created_at=at, **values)  # type: ignore[arg-type]


def learnt(name: str, *, run_id: str = "r1", at: float = 100.0, changes: str = "What it does.") -> LearntTechnique:
    return LearntTechnique(
        run_id=run_id,
        name=name,
        changes=changes,
        instruction="Do it.",
        addresses=(Bottleneck.SPILLS, Bottleneck.LAUNCHES),
        kinds=(KernelKind.ROW,),
        preconditions=("a loop",),
        risks=("barriers", "registers"),
        model="openai/x",
        created_at=at,
    )


def reflection(run_id: str = "r1", island: int = 0, **parts: object) -> Reflection:
    return Reflection(run_id=run_id, island=island, **parts)  # type: ignore[arg-type]


def opinion(program_id: str, *concerns: Concern, run_id: str = "r1", at: float = 100.0) -> ProgramOpinion:
    return ProgramOpinion(
        program_id=program_id, run_id=run_id, concerns=concerns, advice="add it", model="openai/x", created_at=at
    )


FAKED = Concern(kind="faked", line=3, what="returns zeros")
LEFT_OUT = Concern(kind="left_out", line=0, what="no bias")


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[ProgramArchive]:
    """Runs `r1` on softmax and `r2` on another problem."""
    other = problem("matmul")
    with filled(tmp_path / "a.duckdb", [evaluation(1)]) as archive:
        archive.add_problem(other)
        archive.add_run(run("r2", of=other))
        yield archive


def texts(archive: ProgramArchive, wanted: Wanted = EVERYTHING) -> list[str]:
    return [lesson.text for lesson in archive.lessons(wanted)]


def test_the_memory_of_an_island_is_rewritten_and_others_are_left_alone(archive: ProgramArchive) -> None:
    archive.add_reflection(reflection(island=0, lessons=lessons("r1", 0, ["one", "two", "three"], at=1.0)))
    archive.add_reflection(reflection(island=1, lessons=lessons("r1", 1, ["other"], at=2.0)))
    archive.add_reflection(reflection(island=0, lessons=lessons("r1", 0, ["two, better", "three"], at=3.0)))
    assert texts(archive) == ["three", "two, better", "other"]
    assert archive.lessons()[0] == lessons("r1", 0, ["two, better", "three"], at=3.0)[1]
    archive.add_reflection(reflection(island=0))
    assert texts(archive) == ["other"]


def test_explanations_and_techniques_are_kept_as_they_came_first(archive: ProgramArchive) -> None:
    first = reflection(explanations=(explained(1), explained(2, fix_worked=False)), techniques=(learnt("halve_tiles"),))
    archive.add_reflection(first)
    archive.add_reflection(first)  # sent again
    again = (explained(2, cause="no"), explained(3, diagnosis_was_right=None, avoid="BLOCK 8", try_next="BLOCK 32"))
    archive.add_reflection(reflection(explanations=again, techniques=(learnt("halve_tiles", changes="no"),)))
    assert archive.explanations() == [again[1], explained(2, fix_worked=False), explained(1)]
    assert archive.learnt_techniques() == [learnt("halve_tiles")]


def test_the_newest_come_first_and_those_on_the_same_problem_before_all(archive: ProgramArchive) -> None:
    archive.add_reflection(reflection("r1", lessons=lessons("r1", 0, ["old", "newer"], at=1.0)))
    archive.add_reflection(reflection("r2", lessons=lessons("r2", 0, ["foreign"], at=2.0)))
    archive.add_reflection(reflection("gone", lessons=lessons("gone", 0, ["of nobody"], at=3.0)))
    assert texts(archive) == ["of nobody", "foreign", "newer", "old"]
    assert texts(archive, Wanted(first="softmax")) == ["newer", "old", "of nobody", "foreign"]
    assert texts(archive, Wanted(first="matmul", limit=2)) == ["foreign", "of nobody"]
    assert texts(archive, Wanted(first=problem().problem_id, until_s=3.0, limit=3)) == ["newer", "old", "foreign"]
    assert texts(archive, Wanted(run_id="r2")) == ["foreign"]


def test_what_was_learnt_later_is_not_known_at_the_start(archive: ProgramArchive) -> None:
    parts = {"explanations": (explained(1, at=5.0),), "techniques": (learnt("a", at=5.0), learnt("b", at=4.0))}
    archive.add_reflection(reflection(**parts))
    early = Wanted(until_s=5.0)
    assert archive.explanations(early) == []
    assert [one.name for one in archive.learnt_techniques(early)] == ["b"]


def test_a_learnt_technique_reads_like_one_of_the_catalogue() -> None:
    entry = learnt("halve_tiles").as_entry()
    assert (entry.name, entry.learnt_by, entry.applied_by.structural) == ("halve_tiles", "r1", "")
    assert entry.applied_by.instruction == "Do it." and "r1" in entry.source
    assert entry.addresses == (Bottleneck.SPILLS, Bottleneck.LAUNCHES) and entry.risks == ("barriers", "registers")
    with pytest.raises(ValidationError):
        learnt("Not a name")


def test_opinions_come_back_whole_also_those_that_find_nothing(archive: ProgramArchive) -> None:
    two, none = opinion("p1", FAKED, LEFT_OUT, at=1.0), opinion("p2", at=2.0)
    archive.add_opinions([two, none])
    archive.add_opinions([opinion("p1", at=9.0), opinion("p1", FAKED, run_id="r2", at=3.0)])
    archive.add_opinions([])
    assert archive.opinions(run_id="r1") == [none, two]
    assert archive.opinions("p1") == [opinion("p1", FAKED, run_id="r2", at=3.0), two]
    assert archive.opinions("p1", "r1") == [two] and archive.opinions("p3") == []


def test_an_archive_of_an_earlier_version_gets_the_tables(tmp_path: Path) -> None:
    path = tmp_path / "old.duckdb"
    with duckdb.connect(str(path)) as connection:
        migrate(connection, load_steps()[:3])
    with open_for_reading(path) as reader:
        assert (reader.lessons(), reader.explanations(), reader.learnt_techniques(), reader.opinions()) == ([],) * 4


def test_an_archive_that_is_only_read_takes_none(tmp_path: Path) -> None:
    filled(tmp_path / "a.duckdb", [evaluation(1)]).close()
    with ProgramArchive.open(tmp_path / "a.duckdb", read_only=True) as archive:
        with pytest.raises(ArchiveError):
            archive.add_reflection(reflection(lessons=lessons("r1", 0, ["one"])))
        with pytest.raises(ArchiveError):
            archive.add_opinions([opinion("p1")])


def test_a_file_that_was_closed_has_everything(tmp_path: Path) -> None:
    with filled(tmp_path / "a.duckdb", [evaluation(1)]) as archive:
        archive.add_reflection(reflection(explanations=(explained(1),), techniques=(learnt("a"),)))
        archive.add_opinions([opinion("p1", FAKED)])
    with ProgramArchive.open(tmp_path / "a.duckdb", read_only=True) as archive:
        assert archive.explanations() == [explained(1)] and archive.learnt_techniques() == [learnt("a")]
        assert archive.opinions() == [opinion("p1", FAKED)]


def test_other_processes_read_them_through_the_owner(archive: ProgramArchive, tmp_path: Path) -> None:
    everything = reflection(lessons=lessons("r1", 0, ["one"]), explanations=(explained(1),), techniques=(learnt("a"),))
    archive.add_reflection(everything)
    archive.add_opinions([opinion("p1", FAKED)])
    server = ArchiveServer(archive)
    try:
        live = LiveArchive(archive.path)
        assert tuple(live.lessons(Wanted(first="softmax"))) == everything.lessons
        assert tuple(live.explanations()) == everything.explanations
        assert tuple(live.learnt_techniques()) == everything.techniques
        assert live.opinions("p1") == [opinion("p1", FAKED)]
    finally:
        server.close()
    files = {file.stem: file.read_text() for file in archive.export(tmp_path / "out", "jsonl", run_id="r1")}
    assert "returns zeros" in files["opinions"] and "cause 1" in files["explanations"] and "one" in files["lessons"]


@pytest.mark.usefixtures("ray_session")
def test_the_actor_stores_and_reads_them(tmp_path: Path) -> None:
    actor = ArchiveActor.remote(str(tmp_path.resolve() / "a.duckdb"))  # type: ignore[attr-defined]
    try:
        everything = reflection(
            lessons=lessons("r1", 0, ["one"]), explanations=(explained(1),), techniques=(learnt("a"),)
        )
        stored = [actor.add_reflection.remote(everything), actor.add_opinions.remote([opinion("p1", LEFT_OUT)])]
        ray.get(stored, timeout=60)
        asked = [actor.lessons, actor.explanations, actor.learnt_techniques, actor.opinions]
        found = ray.get([method.remote() for method in asked], timeout=60)
        assert found[:3] == [list(everything.lessons), list(everything.explanations), list(everything.techniques)]
        assert found[3] == [opinion("p1", LEFT_OUT)]
    finally:
        ray.kill(actor)
