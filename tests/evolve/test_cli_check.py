"""`evolve check` and `evolve problems` on the built-in suite, judged for real on the CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evaluators.problems import mutants, suite_problem
from evolve.cli.main import main

SMALL = ("--device", "cpu", "--shape", "n_rows=8", "--shape", "n_cols=2048")


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    printed = capsys.readouterr()
    return int(end.value.code or 0), printed.out, printed.err


@pytest.mark.slow
def test_a_correct_program_passes_and_may_still_not_win(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "seed.py"
    file.write_text(suite_problem("softmax").seeds[0])
    code, out, err = call(capsys, "check", str(file), "--problem", "softmax", *SMALL, "--must-win")
    assert "correct: 1.00x over seed" in out and "us modelled" in out, err
    assert "speed        refused" in out and "may not replace the baseline" in out
    assert code == 1


@pytest.mark.slow
def test_a_wrong_program_is_a_negative_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mutant.py"
    file.write_text(mutants(suite_problem("softmax"))["zeros"])
    code, out, err = call(capsys, "check", str(file), "-p", "softmax", *SMALL, "--json")
    assert code == 1, err
    answer = json.loads(out)
    assert answer["is_correct"] is False
    refusals = [gate for gate in answer["gates"] if gate["answer"] == "refused"]
    assert [gate["gate"] for gate in refusals] == ["correctness"] and refusals[0]["reason"]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("check", "no-such-file.py", "-p", "softmax"), "give a file"),
        (("check", __file__, "-p", "sofmax"), "softmax"),
        (("check", __file__, "-p", "softmax", "--shape", "n_rowz=8"), "n_rows"),
        (("check", __file__, "-p", "softmax", "--target", "h1000", "--device", "cpu"), "h100"),
        (("problems", "show", "sofmax"), "softmax"),
        (("run", "sofmax"), "softmax"),
        (("run", "softmax", "--time", "soon"), "10m"),
        (("run", "softmax", "--set", "islandz=3"), "islands"),
        (("run", "softmax", "--preset", "nope"), "preset"),
        (("run", "softmax", "--config", "no-such.yaml"), "--config"),
    ],
)
def test_what_can_be_mended_ends_with_2_and_a_hint(
    arguments: tuple[str, ...],
    hint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = call(capsys, *arguments)
    lines = err.splitlines()
    assert code == 2 and len(lines) == 2 and hint in lines[1], err
    assert not list(tmp_path.iterdir())


def test_problems_are_listed_with_their_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["name"]: row for row in json.loads(call(capsys, "problems", "list", "--json")[1])}
    assert len(rows) == 15
    assert rows["softmax"]["full"] == {"n_rows": 4096, "n_cols": 65536} and rows["softmax"]["n_seeds"] == 1
    assert all(row["about"] for row in rows.values())
    assert "n_rows=4096 n_cols=65536" in call(capsys, "problems", "list")[1]


def test_a_problem_is_shown_at_other_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    out = call(capsys, "problems", "show", "softmax", "--shape", "n_rows=64")[1]
    assert "n_rows=64" in out and "class Model" in out
    assert "@triton.jit" in call(capsys, "problems", "show", "softmax", "--seed")[1]
