"""What models that looked back left in archives: what a run starts from, and what people are shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.runs import make_problem, make_run, one_evaluation

from db.archive import ProgramArchive
from db.opinions import Concern, ProgramOpinion
from db.profile import Bottleneck
from db.records import Evaluation, Problem
from db.reflections import Explanation, LearntTechnique, Lesson, Reflection
from evolve.cli.main import main
from evolve.config import load_config
from evolve.reflections import Left, collect_taught, continued
from evolve.reports.build import build_report
from evolve.techniques import technique, techniques
from islands.reflection import N_LESSONS, Taught

NOW_S = 2_000_000_000.0
SOFTMAX, MATMUL = make_problem("softmax"), make_problem("matmul", dim=128)


def reflection(
    run_id: str, *lessons: str, island: int = 0, at: float = 1.0, learnt: str = "", avoid: str = "", retry: str = ""
) -> Reflection:
    candidate_id = f"{run_id}-{island}-{round(at):06d}"
    whose: dict[str, Any] = {"run_id": run_id, "island": island, "created_at": at}
    technique = {"changes": f"by {run_id}", "instruction": "Do it.", "addresses": (Bottleneck.SPILLS,)}
    return Reflection(
        run_id=run_id,
        island=island,
        lessons=tuple(Lesson(position=k, text=text, **whose) for k, text in enumerate(lessons)),
        explanations=(
            Explanation(
                candidate_id=candidate_id, cause="barriers", fix_worked=False, avoid=avoid, try_next=retry, **whose
            ),
        ),
        techniques=(LearntTechnique(run_id=run_id, name=learnt, created_at=at, **technique),) if learnt else (),
    )


def opinion(program_id: str, run_id: str, what: str) -> ProgramOpinion:
    concern = Concern(kind="left_out", line=3, what=what)
    return ProgramOpinion(
        program_id=program_id, run_id=run_id, concerns=(concern,), advice="add <it>", model="openai/x", created_at=1.0
    )


def make_archive(path: Path, *runs: tuple[str, Problem]) -> ProgramArchive:
    archive = ProgramArchive.open(path)
    for run_id, problem in runs:
        archive.add_problem(problem)
        archive.add_run(make_run(problem, run_id=run_id))
    return archive


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Evaluation]:
    """A run on softmax that was taught, a later one on matmul, and the program of the first."""
    path = tmp_path_factory.mktemp("taught") / "a.duckdb"
    with make_archive(path, ("soft", SOFTMAX), ("mat", MATMUL)) as archive:
        judged = one_evaluation(SOFTMAX, make_run(SOFTMAX, run_id="soft"), 0, 50.0)
        archive.insert([judged])
        archive.add_reflection(
            reflection("soft", "old", "warps", at=1.0, learnt="halve", avoid="16 warps", retry="exp2")
        )
        archive.add_reflection(reflection("soft", "warps", "rows", island=1, at=2.0, avoid="2 warps"))
        archive.add_reflection(reflection("mat", "tiles", at=3.0, learnt="swap", avoid="split_k", retry="8 warps"))
        archive.add_reflection(reflection("mat", "late", island=1, at=9.0, learnt="halve"))
        archive.add_opinions([opinion(judged.verdict.program_id, "soft", "the <bias>"), opinion("other", "mat", "x")])
    return path, judged


def taught(archive: Path, problem: Problem = SOFTMAX, at_s: float = NOW_S, **options: Any) -> Taught:
    return collect_taught(load_config("softmax", options={"archive": str(archive), **options}), problem, at_s)


# ----------------------------------------------------------------------------------------------- what a run starts from


def test_lessons_of_the_same_problem_stand_last_where_the_newest_stand(filled: tuple[Path, Evaluation]) -> None:
    assert taught(filled[0]).lessons == ("tiles", "late", "old", "warps", "rows")
    assert taught(filled[0], MATMUL).lessons == ("old", "warps", "rows", "tiles", "late")


def test_advice_and_opinions_do_not_leave_their_problem(filled: tuple[Path, Evaluation]) -> None:
    path, judged = filled
    found = taught(path)
    assert (found.avoid, found.advice) == (("16 warps", "2 warps"), ("exp2",))
    assert [one.program_id for one in found.opinions] == [judged.verdict.program_id]


def test_of_techniques_with_one_name_that_of_the_same_problem_counts(filled: tuple[Path, Evaluation]) -> None:
    assert [(one.name, one.run_id) for one in taught(filled[0]).techniques] == [("swap", "mat"), ("halve", "soft")]
    assert [(one.name, one.run_id) for one in taught(filled[0], MATMUL).techniques] == [
        ("swap", "mat"),
        ("halve", "mat"),
    ]


def test_a_run_knows_what_was_known_at_its_start(filled: tuple[Path, Evaluation]) -> None:
    before = taught(filled[0], at_s=3.0)
    assert before.lessons == ("old", "warps", "rows") and [one.name for one in before.techniques] == ["halve"]


def test_nothing_is_known_without_knowledge_or_from_a_file(filled: tuple[Path, Evaluation], tmp_path: Path) -> None:
    assert taught(filled[0], knowledge="none") == Taught()
    assert taught(filled[0], knowledge=str(tmp_path / "k.json")) == Taught()


def test_archives_that_a_run_is_seeded_from_teach_too(filled: tuple[Path, Evaluation], tmp_path: Path) -> None:
    own = tmp_path / "own.duckdb"
    with make_archive(own, ("mine", SOFTMAX)) as archive:
        archive.add_reflection(reflection("mine", "mine", at=1.5))
    found = taught(own, seed_from=[str(filled[0]), str(filled[0])])
    assert found.lessons == ("tiles", "late", "old", "mine", "warps", "rows")
    assert found.avoid == ("16 warps", "2 warps") and found.opinions == ()  # people find opinions in their own archive


def test_what_a_run_starts_with_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    with make_archive(path, ("r", SOFTMAX)) as archive:
        for island in range(20):
            texts = [f"{island}.{k}" for k in range(8)]
            archive.add_reflection(reflection("r", *texts, island=island, at=float(island)))
    assert taught(path).lessons == tuple(f"19.{k}" for k in range(N_LESSONS))


def test_an_island_of_a_resumed_run_goes_on_with_what_it_was_taught() -> None:
    prior = Taught(lessons=("before",), avoid=("a",))
    first = reflection("r", "one", "two", at=1.0, learnt="halve", avoid="b", retry="c")
    newest_first = Left(tuple(reversed(first.lessons)), first.explanations, first.techniques, (opinion("p", "r", "x"),))
    here, there = (continued(prior, island, newest_first) for island in (0, 1))
    assert (here.lessons, here.avoid, here.advice, here.seen) == (("one", "two"), ("a", "b"), ("c",), "r-0-000001")
    assert (there.lessons, there.avoid, there.seen) == (("before",), ("a",), "")
    for one in (here, there):
        assert [t.name for t in one.techniques] == ["halve"] and one.opinion_on("p") is not None


# ----------------------------------------------------------------------------------------------------------- for people


@pytest.fixture
def call(filled: tuple[Path, Evaluation], capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(*arguments: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as end:
            main([*arguments, "--archive", str(filled[0])])
        said = capsys.readouterr()
        assert end.value.code == code, said.err
        return said.out + said.err

    return run


def test_lessons_and_explanations_are_listed(call: Callable[..., str]) -> None:
    text = call("knowledge", "lessons")
    assert text.index("late") < text.index("rows") < text.index("old") and "soft-0-000001" in text
    assert "barriers" in text and "16 warps" in text and "exp2" in text
    found = json.loads(call("knowledge", "lessons", "--run", "mat", "--limit", "1", "--json"))
    assert [one["text"] for one in found["lessons"]] == ["late"]
    (explained,) = found["explanations"]
    assert explained["candidate_id"] == "mat-1-000009" and explained["fix_worked"] is False
    assert "no run 'nobody'" in call("knowledge", "lessons", "--run", "nobody", code=2)


def test_an_archive_that_was_taught_nothing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_archive(tmp_path / "a.duckdb", ("r", SOFTMAX)).close()
    with pytest.raises(SystemExit) as end:
        main(["knowledge", "lessons", "--archive", str(tmp_path / "a.duckdb")])
    assert end.value.code == 0 and "no language model looked back yet" in capsys.readouterr().err


def test_learnt_techniques_are_listed_with_their_run(call: Callable[..., str], filled: tuple[Path, Evaluation]) -> None:
    text = call("techniques")
    (line,) = [line for line in text.splitlines() if line.startswith("swap ")]
    assert line.endswith("mat") and "language model" in line and "learnt by" in text.splitlines()[0]
    whole = json.loads(call("techniques", "swap", "--json"))
    assert whole["learnt_by"] == "mat" and whole["applied_by"]["instruction"] == "Do it."
    with ProgramArchive.open(filled[0], read_only=True) as archive:
        assert technique("Halve", archive).learnt_by == "mat"  # the newest of its name
        assert [one.name for one in techniques(archive) if one.learnt_by] == ["halve", "swap"]
    assert not any(one.learnt_by for one in techniques())


def test_a_program_is_shown_with_the_opinion_on_it(call: Callable[..., str], filled: tuple[Path, Evaluation]) -> None:
    program_id = filled[1].verdict.program_id
    text = call("show", program_id)
    assert "opinion of openai/x (advice, no gate):" in text and "left out, line 3: the <bias>" in text
    assert json.loads(call("show", program_id, "--json"))["opinions"][0]["concerns"][0]["what"] == "the <bias>"


def test_a_report_shows_the_opinion_beside_the_best_program(filled: tuple[Path, Evaluation]) -> None:
    with ProgramArchive.open(filled[0], read_only=True) as archive:
        page, other = build_report(archive, "soft"), build_report(archive, "mat")
    assert "What a judge model thinks of it" in page and "the &lt;bias&gt;" in page and "add &lt;it&gt;" in page
    assert "<bias>" not in page and "judge model" not in other
