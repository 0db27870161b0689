"""`evolve llm` as a shell sees it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.runs import make_problem, make_run

from db.archive import ProgramArchive
from db.llm_calls import LlmCall
from evolve.cli.main import main
from evolve.llm import sum_of


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
