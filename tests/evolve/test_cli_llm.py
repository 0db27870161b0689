"""`evolve llm` as a shell sees it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.runs import make_problem, make_run

from db.archive import ProgramArchive
from db.errors import NotFoundError
from db.llm_calls import LlmCall
from db.llm_questions import LlmQuestion, QuestionStatus
from evolve.cli.main import main
from evolve.llm import sum_of
from evolve.run import resume_search
from islands.llm.exchange import Message, Request
from islands.llm.models import read_model


def call(n: int, operator: str, cost_usd: float | None, outcome: str = "answered") -> LlmCall:
    return LlmCall(
        call_id=f"c{n}",
        run_id="r1a2b3c4",
        island=n,
        operator=operator,
        model="openai/gpt-4o" if cost_usd is not None else "ollama/qwen",
        prompt_hash="0123456789abcdef",
        n_tokens_in=1000,
        n_tokens_out=500,
        cost_usd=cost_usd,
        seconds=4.0,
        outcome=outcome,
        reason="" if outcome == "answered" else "no answer within 4 s",
        created_at=1_700_000_000.0 + n,
    )


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "a.duckdb"
    problem = make_problem()
    with ProgramArchive.open(path) as archive:
        archive.add_problem(problem)
        archive.add_run(make_run(problem))
        archive.add_llm_calls(
            [call(0, "mutate", 0.5), call(1, "mutate", 0.25), call(2, "plan", 0.125, "timeout"), call(3, "plan", None)]
        )
    return path


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


def test_calls_are_summed_for_each_model_and_operator(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "llm", "--archive", str(archive)).splitlines()
    assert [line.split()[0] for line in lines] == ["model", "openai/gpt-4o", "openai/gpt-4o", "ollama/qwen", "all"]
    assert "$0.7500" in lines[1] and "$0.1250" in lines[2] and "$" not in lines[3] and "$0.8750" in lines[4]


def test_sums_are_json(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(printed(capsys, "llm", "--json", "--run", "r1a2b3c4", "--archive", str(archive)))
    assert [(row["operator"], row["n_calls"], row["n_answered"], row["cost_usd"]) for row in rows] == [
        ("mutate", 2, 2, 0.75),
        ("plan", 1, 0, 0.125),
        ("plan", 1, 1, None),
    ]


def test_every_call_is_listed(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "llm", "calls", "--archive", str(archive)).splitlines()
    assert len(lines) == 5 and "2023-11-14 22:13:20" in lines[1] and "no answer within 4 s" in lines[3]
    rows = json.loads(printed(capsys, "llm", "calls", "--limit", "2", "--json", "--archive", str(archive)))
    assert [row["call_id"] for row in rows] == ["c2", "c3"]


def test_a_run_that_is_not_there_is_a_message(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no run 'nothing'" in printed(capsys, "llm", "--run", "nothing", "--archive", str(archive), code=2)


def test_an_archive_without_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ProgramArchive.open(tmp_path / "a.duckdb").close()
    assert printed(capsys, "llm", "--archive", str(tmp_path / "a.duckdb")) == ""
    assert json.loads(printed(capsys, "llm", "--json", "--archive", str(tmp_path / "a.duckdb"))) == []
    assert sum_of([]) is None


def question(n: int, status: QuestionStatus = QuestionStatus.WAITING) -> LlmQuestion:
    asked = Request(messages=(Message(role="user", content=f"faster {n}"),), operator="mutate")
    return LlmQuestion(
        question_id=f"r1a2b3c4-q{n:05d}",
        run_id="r1a2b3c4",
        island=0,
        dialogue_id=f"0-{n:05d}",
        operator="mutate",
        model="ollama/qwen",
        prompt_hash=asked.prompt_hash,
        status=status,
        request=asked.model_dump(mode="json", round_trip=True),
        spec=read_model("ollama/qwen,unpriced").model_dump(mode="json"),
    )


@pytest.fixture
def waiting(archive: Path) -> Path:
    with ProgramArchive.open(archive) as owner:
        owner.exchange("r1a2b3c4", [], [question(0), question(1), question(2, QuestionStatus.CLOSED)], {})
    return archive


def test_questions_that_wait_are_printed_or_written(waiting: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "llm", "export", "--archive", str(waiting)).splitlines()
    assert [json.loads(line)["custom_id"] for line in lines] == ["r1a2b3c4-q00000", "r1a2b3c4-q00001"]
    file = waiting.parent / "new" / "prompts.jsonl"
    assert printed(capsys, "llm", "export", "r1a2b3c4", "-o", str(file), "--archive", str(waiting)) == ""
    assert file.read_text().splitlines() == lines


def test_what_to_type_next_names_the_archive(waiting: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["llm", "export", "-o", str(waiting.parent / "prompts.jsonl"), "--archive", str(waiting)])
    assert f"evolve llm import r1a2b3c4 ANSWERS --archive {waiting}" in capsys.readouterr().err


def test_a_run_that_waits_is_not_resumed_but_answered(waiting: Path) -> None:
    with pytest.raises(NotFoundError, match="no unfinished run") as caught:
        resume_search(str(waiting))
    assert "evolve llm import r1a2b3c4" in caught.value.hint


@pytest.mark.parametrize(
    ("arguments", "complaint", "hint"),
    [
        (["export", "nothing"], "no run 'nothing'", "it holds: r1a2b3c4"),
        (["export", "--model", "openai/x"], "nothing waits for openai/x", "questions wait for ollama/qwen"),
        (["export", "-o", "/proc/no/prompts.jsonl"], "cannot write /proc/no/prompts.jsonl", "name another file"),
        (["import", "nothing", "answers.jsonl"], "no run 'nothing'", "it holds: r1a2b3c4"),
        (["import", "absent.jsonl"], "cannot read absent.jsonl: No such file or directory", "give the file of answers"),
        (["import", "a", "b", "c"], "expected a run and a file, got 3 names", "evolve llm import RUN ANSWERS"),
        (["import", "/dev/null"], "answers none of the 2 questions of run r1a2b3c4 that wait", "it is empty"),
    ],
    ids=range(7),
)
def test_what_can_be_mended_is_a_line_and_a_hint(
    waiting: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str, hint: str
) -> None:
    said = printed(capsys, "llm", *arguments, "--archive", str(waiting), code=2).splitlines()
    assert len(said) == 2 and complaint in said[0] and hint in said[1]


def test_lines_of_no_use_are_told_with_their_numbers(waiting: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = waiting.parent / "answers.jsonl"
    late = {"custom_id": "r1a2b3c4-q00001", "error": {"message": "too late"}}
    file.write_text(f'no json\n{{"custom_id": "q9"}}\n{json.dumps(late)}\n')
    said = printed(capsys, "llm", "import", str(file), "--archive", str(waiting), code=2)
    for told in ("line 1: no JSON", "line 2: nobody asked 'q9'", "line 3: r1a2b3c4-q00001: server: too late"):
        assert told in said
    with ProgramArchive.open(waiting) as owner:
        assert len(owner.llm_calls()) == 4 and owner.llm_questions("r1a2b3c4")[0].answer is None


def test_nothing_waits(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["export"], ["import", "x.jsonl"]):
        said = printed(capsys, "llm", *command, "--archive", str(archive), code=2)
        assert "waits for answers" in said and "llm.mode=exchange" in said
        said = printed(capsys, "llm", command[0], "r1a2b3c4", *command[1:], "--archive", str(archive), code=2)
        assert "no question of run r1a2b3c4 waits for an answer" in said
