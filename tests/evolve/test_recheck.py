"""What an archive claims, judged again: true claims hold, inflated ones and cheats do not, and what cannot be judged is
said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.runs import make_run, one_evaluation

from db.archive import ProgramArchive
from db.errors import ArchiveError, NotFoundError, UntrustedError
from db.records import CONFIRM, LatencyKind, Problem
from evaluators.hardware import load_hardware
from evaluators.problems import load_problem
from evaluators.settings import EvaluatorSettings
from evolve.cli.main import main
from evolve.queries import reading
from evolve.recheck import RecheckReport, _settings_of, recheck


@pytest.fixture(scope="module")
def problem() -> Problem:
    return load_problem("swiglu")


@pytest.fixture(scope="module")
def archive(problem: Problem, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A modelled run whose claims are one true, one inflated and one of a cheat, and a measured one."""
    path = tmp_path_factory.mktemp("recheck") / "evolve.duckdb"
    modelled = make_run(problem, kind=LatencyKind.MODELLED, run_id="m0de11ed").model_copy(
        update={"hardware": load_hardware("h100")}
    )
    measured = make_run(problem, run_id="mea5ured")
    seed = problem.seeds[0]
    slow = seed.replace("BLOCK = 1024", "BLOCK = 32")
    cheat = seed.replace("gate / (1.0 + tl.exp(-gate)) * up", "gate * up")
    found = [
        one_evaluation(problem, modelled, 0, 30.0, source=seed, baseline_us=100.0),
        one_evaluation(problem, modelled, 1, 100.0, source=seed, baseline_us=100.0, operator=CONFIRM),
        one_evaluation(problem, modelled, 2, 50.0, source=slow, baseline_us=100.0),
        one_evaluation(problem, modelled, 3, 20.0, source=cheat, baseline_us=100.0),
        one_evaluation(problem, modelled, 4, None, source="VALUE = 4"),
        one_evaluation(problem, modelled, 5, 500.0, source=seed.replace("BLOCK = 1024", "BLOCK = 64")),
        one_evaluation(problem, measured, 6, 90.0, source=seed, baseline_us=100.0),
    ]
    with ProgramArchive.open(path) as opened:
        opened.add_problem(problem)
        for run in (modelled, measured):
            opened.add_run(run)
        opened.insert(found)
    return path


@pytest.fixture(scope="module")
def report(archive: Path) -> RecheckReport:
    with reading(archive) as reader:
        return recheck(reader, top=3, device="cpu")


def test_the_fastest_are_judged_again_by_their_last_claim(report: RecheckReport) -> None:
    assert [one.claimed_speedup for one in report.rechecked] == [5.0, 2.0, 1.0]
    assert all(one.latency_kind is LatencyKind.MODELLED for one in report.rechecked)


def test_a_true_claim_holds_an_inflated_one_and_a_cheat_do_not(report: RecheckReport) -> None:
    cheat, inflated, true = report.rechecked
    assert not cheat.holds and cheat.speedup is None and "outside the tolerance" in cheat.verdict.reason
    assert not inflated.holds and inflated.speedup is not None and inflated.speedup < 1.9
    assert true.holds and true.speedup == 1.0
    assert report.n_held == 1 and report.share_held == pytest.approx(1 / 3)


def test_what_was_measured_elsewhere_is_left_and_said(report: RecheckReport) -> None:
    (left,) = report.skipped
    assert (left.n_programs, left.latency_kind) == (1, LatencyKind.MEASURED)
    assert left.reason == "measured: judge it again on a machine with nvidia-h200"


def test_an_unknown_problem_is_an_error(archive: Path) -> None:
    with reading(archive) as reader, pytest.raises(NotFoundError):
        recheck(reader, problem="nothing", device="cpu")


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["recheck", *arguments])
    printed = capsys.readouterr()
    return int(end.value.code or 0), printed.out, printed.err


def test_the_command_prints_what_it_left(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_command(capsys, str(archive), "--hardware", "nvidia-h200", "--device", "cpu", "--json")
    assert code == 0 and json.loads(out)["n_rechecked"] == 0
    code, out, err = run_command(capsys, str(archive), "--hardware", "nvidia-h200", "--device", "cpu")
    assert code == 0 and "1 of swiglu on nvidia-h200 not judged again" in err and "nothing was judged again" in err


def test_the_command_ends_with_1_when_a_claim_does_not_hold(
    report: RecheckReport, archive: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evolve.cli.recheck.judge_again", lambda *_, **__: report)  # judged above
    code, out, _ = run_command(capsys, str(archive))
    assert code == 1 and "1 of 3 (33%) speed-ups hold within 5%" in out and "5.00x" in out
    code, out, _ = run_command(capsys, str(archive), "--json")
    rows = json.loads(out)["programs"]
    assert code == 1 and [row["holds"] for row in rows] == [False, False, True]


def test_a_reference_that_is_not_built_in_is_not_run_unless_trusted(problem: Problem, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    other = problem.model_copy(update={"source": problem.source + f"\nopen({str(marker)!r}, 'w')\n"})
    run = make_run(other, kind=LatencyKind.MODELLED).model_copy(update={"hardware": load_hardware("h100")})
    with ProgramArchive.open(tmp_path / "evolve.duckdb") as opened:
        opened.add_problem(other)
        opened.add_run(run)
        opened.insert([one_evaluation(other, run, 0, 30.0, source=problem.seeds[0])])
        with pytest.raises(UntrustedError, match="swiglu"):
            recheck(opened, device="cpu")
    assert not marker.exists()


def test_the_settings_are_those_of_the_run_on_secret_inputs_of_now(problem: Problem, tmp_path: Path) -> None:
    config = {"judging": {"baselines": ["eager"], "secret_seed": 3}}
    run = make_run(problem).model_copy(update={"config": config})
    found = one_evaluation(problem, run, 0, 30.0)
    with ProgramArchive.open(tmp_path / "evolve.duckdb") as opened:
        opened.add_run(run)
        assert _settings_of(opened, found) == EvaluatorSettings(baselines=("eager",))
        opened.update_run(run.model_copy(update={"config": {"judging": {"baselines": []}}}))
        with pytest.raises(ArchiveError, match="no such settings"):
            _settings_of(opened, found)
