"""The commands that ask an archive, on a real one, as `main` runs them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.runs import Knobs, fill_archive, make_problem, make_run, one_evaluation

from db.archive import ProgramArchive
from db.records import Evaluation, LatencyKind
from evolve.cli.main import main

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Evaluation]]:
    """An archive with a measured and a modelled run of the same problem."""
    path = tmp_path_factory.mktemp("cli") / "evolve.duckdb"
    _, _, measured = fill_archive(path, n=80)
    _, _, modelled = fill_archive(path, n=60, kind=LatencyKind.MODELLED, run_id="m0de11ed")
    return path, [*measured, *modelled]


@pytest.fixture
def call(filled: tuple[Path, list[Evaluation]], capsys: pytest.CaptureFixture[str]) -> Call:
    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([*arguments, "--archive", str(filled[0])])
        printed = capsys.readouterr()
        return int(end.value.code or 0), printed.out, printed.err

    return run


def fastest(evaluations: list[Evaluation], kind: LatencyKind) -> Evaluation:
    own = [e for e in evaluations if e.verdict.latency and e.verdict.latency.kind is kind]
    return min(own, key=lambda e: e.verdict.latency.device_us if e.verdict.latency else 0)


def test_elites_never_mix_measured_and_modelled(call: Call) -> None:
    code, out, _ = call("elites")
    assert code == 0
    tables = [table.splitlines() for table in ("softmax on" + part for part in out.split("softmax on")[1:])]
    assert len(tables) == 2
    for title, header, *_ in tables:
        kind, other = ("measured", "modelled") if ", measured, " in title else ("modelled", "measured")
        assert f"{kind} us" in header and f"{kind} speed-up" in header and other not in title + header


def test_elites_as_json_hold_the_best_of_each_kind(call: Call, filled: tuple[Path, list[Evaluation]]) -> None:
    code, out, _ = call("elites", "--json", "--problem", "softmax")
    rows: list[dict[str, Any]] = json.loads(out)
    assert code == 0 and all(("measured_us" in row) != ("modelled_us" in row) for row in rows)
    for kind in LatencyKind:
        best = fastest(filled[1], kind).verdict.latency
        assert best is not None
        assert min(row[f"{kind}_us"] for row in rows if row["latency_kind"] == kind) == pytest.approx(best.device_us)
    cells = [(row["latency_kind"], row["tier"], row["bin"]) for row in rows]
    assert len(cells) == len(set(cells))


def test_elites_can_be_narrowed(call: Call) -> None:
    rows = json.loads(call("elites", "--json", "--kind", "modelled", "--run", "m0de11ed", "--limit", "2")[1])
    assert len(rows) == 2 and {row["latency_kind"] for row in rows} == {"modelled"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("elites", "--problem", "softmaxx"), "softmax"),
        (("best", "softmx"), "softmax"),
        (("best", "softmax", "--hardware", "a100"), "evolve run"),
        (("show", "zzzz"), "evolve elites"),
        (("diff", "", "zz"), "evolve elites"),
        (("lineage", "zzzz"), "evolve elites"),
        (("report", "nope"), ""),
        (("query", "SELEC 1"), ""),
        (("query", "DROP TABLE runs"), ""),
    ],
)
def test_what_is_not_there_is_one_line_and_a_hint(arguments: tuple[str, ...], expected: str, call: Call) -> None:
    code, out, err = call(*arguments)
    assert code == 2 and out == ""
    lines = err.splitlines()
    assert len(lines) == 2 and lines[0].startswith("error: ") and lines[1].startswith("hint: ")
    assert expected in err


@pytest.mark.parametrize("command", [["elites"], ["best", "softmax"], ["query", "SELECT 1"], ["report"], ["resume"]])
def test_a_missing_archive_is_mendable_and_is_not_made(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "none.duckdb"
    with pytest.raises(SystemExit) as end:
        main([*command, "--archive", str(path)])
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert not path.exists()


def test_best_prints_the_source_and_its_claim_apart(call: Call, filled: tuple[Path, list[Evaluation]]) -> None:
    code, out, err = call("best", "softmax")
    best = fastest(filled[1], LatencyKind.MEASURED)
    assert code == 0
    assert out.strip() == best.candidate.source.strip()
    assert best.candidate.program_id in err and "us measured" in err and "over compile" in err


def test_best_is_written_to_a_file(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "new" / "fast.py"
    code, out, err = call("best", "softmax", "-o", str(path), "--kind", "modelled")
    assert code == 0 and out == "" and "us modelled" in err
    compile(path.read_text(), str(path), "exec")
    assert "class ModelNew" in path.read_text()


def test_best_says_where_else_there_is_a_program(call: Call) -> None:
    code, _, err = call("best", "softmax", "--hardware", "nvidia-l4", "--kind", "measured")
    assert code == 2 and "(nvidia-l4, measured, reference precision)" in err
    assert "measured, reference precision" in err.splitlines()[1] and "modelled" in err.splitlines()[1]


def test_best_of_one_shape_cannot_be_autotuned(call: Call) -> None:
    code, _, err = call("best", "softmax", "--autotune")
    assert code == 2 and "one shape only: batch=4096 dim=65536" in err


def test_best_of_several_shapes_is_autotuned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "evolve.duckdb"
    archive = ProgramArchive.open(path)
    for n, knobs in enumerate((Knobs(block=8192, warps=16), Knobs(block=1024, warps=4))):
        problem = make_problem(dim=65536 >> n)
        run = make_run(problem, run_id=f"run{n}")
        archive.add_problem(problem)
        archive.add_run(run)
        archive.insert([one_evaluation(problem, run, 0, 50.0 + n, source=knobs.source())])
    archive.close()
    with pytest.raises(SystemExit) as end:
        main(["best", "softmax", "--autotune", "--archive", str(path)])
    printed = capsys.readouterr()
    assert not end.value.code, printed.err
    assert 'triton.Config({"BLOCK": 8192}, num_warps=16)' in printed.out
    assert 'triton.Config({"BLOCK": 1024}, num_warps=4)' in printed.out
    assert "dim=65536" in printed.err and "dim=32768" in printed.err


def test_best_to_a_place_that_cannot_be_written(call: Call, tmp_path: Path) -> None:
    code, _, err = call("best", "softmax", "-o", str(tmp_path))
    assert code == 2 and "cannot write" in err


def test_show_tells_the_whole_story_of_a_program(call: Call, filled: tuple[Path, list[Evaluation]]) -> None:
    best = fastest(filled[1], LatencyKind.MEASURED)
    code, out, _ = call("show", best.candidate.program_id[:10])
    assert code == 0
    for part in (
        "program " + best.candidate.program_id,
        "correctness",
        "passed",
        best.candidate.candidate_id,
        "@triton.jit",
    ):
        assert part in out
    assert "@triton.jit" not in call("show", best.candidate.program_id, "--no-source")[1]


def test_show_as_json_is_the_record(call: Call, filled: tuple[Path, list[Evaluation]]) -> None:
    from evolve.queries import ProgramStory

    best = fastest(filled[1], LatencyKind.MEASURED)
    story = ProgramStory.model_validate_json(call("show", best.candidate.program_id, "--json")[1])
    assert story.program.source == best.candidate.source
    proposed = [e for e in filled[1] if e.candidate.program_id == best.candidate.program_id]
    assert len(story.appearances) == len(proposed)


def test_show_begins_with_the_verdict_that_was_judged(call: Call, filled: tuple[Path, list[Evaluation]]) -> None:
    names = [e.candidate.program_id for e in filled[1] if e.verdict.duplicate_of]
    story = json.loads(call("show", names[0], "--json")[1])
    copies = [bool(appearance["verdict"]["duplicate_of"]) for appearance in story["appearances"]]
    assert True in copies and copies == sorted(copies)


def test_show_of_a_refused_program_says_why(call: Call, filled: tuple[Path, list[Evaluation]]) -> None:
    failed = next(e for e in filled[1] if not e.verdict.is_correct)
    out = call("show", failed.candidate.program_id, "--no-source")[1]
    assert failed.verdict.reason in out and "refused" in out


def test_diff_shows_what_changed(call: Call, filled: tuple[Path, list[Evaluation]]) -> None:
    seed, best = filled[1][0], fastest(filled[1], LatencyKind.MEASURED)
    code, out, _ = call("diff", seed.candidate.program_id, best.candidate.program_id, "--context", "0")
    assert code == 0
    assert any(line.startswith("-    ") for line in out.splitlines())
    assert all(line[0] in "+-@" for line in out.splitlines())


def test_diff_of_equal_programs_is_a_negative_answer(call: Call, filled: tuple[Path, list[Evaluation]]) -> None:
    name = filled[1][0].candidate.program_id
    assert call("diff", name, name)[0] == 1


def test_lineage_begins_at_the_seed_and_ends_at_the_program(call: Call, filled: tuple[Path, list[Evaluation]]) -> None:
    best = fastest(filled[1], LatencyKind.MEASURED)
    rows = json.loads(call("lineage", best.candidate.program_id, "--json")[1])
    assert rows[0]["operator"] == "seed" and rows[-1]["program"] == best.candidate.program_id
    out = call("lineage", best.candidate.program_id)[1]
    assert len(out.splitlines()) == len(rows) + 1 and "measured us" in out.splitlines()[0]


def test_query_prints_a_table_and_json(call: Call, filled: tuple[Path, list[Evaluation]]) -> None:
    sql = "SELECT run_id, count(*) AS n, max(speedup) AS best, NULL AS nothing FROM evaluations GROUP BY ALL ORDER BY n"
    code, out, err = call("query", sql)
    assert code == 0 and out.splitlines()[0].split() == ["run_id", "n", "best", "nothing"] and "2 rows" in err
    rows = json.loads(call("query", sql, "--json")[1])
    assert [row["n"] for row in rows] == [60, 80]


def test_query_can_have_two_columns_of_one_name(call: Call) -> None:
    assert call("query", "SELECT 1 AS a, 2 AS a")[1].splitlines()[1].split() == ["1", "2"]


def test_export_writes_what_other_tools_read(call: Call, tmp_path: Path) -> None:
    code, out, _ = call("export", str(tmp_path / "x"), "--format", "jsonl", "--run", "m0de11ed")
    assert code == 0
    assert {Path(line).name for line in out.splitlines()} >= {"runs.jsonl", "evaluations.jsonl", "programs.jsonl"}
    rows = [json.loads(line) for line in (tmp_path / "x" / "evaluations.jsonl").read_text().splitlines()]
    assert len(rows) == 60 and {row["run_id"] for row in rows} == {"m0de11ed"}


def test_the_name_of_a_file_says_its_format(call: Call, tmp_path: Path) -> None:
    assert call("export", str(tmp_path / "all.jsonl"))[0] == 0
    assert len([json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]) == 140
    code, _, err = call("export", str(tmp_path / "all.csv"))
    assert code == 2 and "no format is called csv" in err and ".parquet or .jsonl" in err
    assert not (tmp_path / "all.csv").exists()


def test_a_report_that_cannot_be_written_is_no_fault_of_evolve(call: Call, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    code, _, err = call("report", "--out", str(tmp_path / "taken"))
    assert code == 2 and "cannot write to" in err and "--out DIR" in err


def test_report_of_the_latest_run_is_written(call: Call, tmp_path: Path) -> None:
    code, out, _ = call("report", "--out", str(tmp_path))
    path = Path(out.strip())
    assert code == 0 and path == tmp_path / "report.html"
    assert "modelled, not measured" in path.read_text()


def test_plain_tables_are_read_by_scripts(call: Call) -> None:
    out = call("query", "SELECT island, count(*) AS n FROM evaluations GROUP BY 1 ORDER BY 1")[1]
    rows = list(csv.reader(out.splitlines(), delimiter=" ", skipinitialspace=True))
    assert rows[0] == ["island", "n"] and sum(int(n) for _, n in rows[1:]) == 140
