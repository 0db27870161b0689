"""`evolve run` from the command to its results: real processes, a real archive, judged without a GPU."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.evolving import Ended, Started, evolve, rows

from db.archive import ProgramArchive
from db.errors import ClusterError
from db.live import open_for_reading
from db.records import Evaluation, Outcome, RunStatus
from evolve.config import load_config
from evolve.events import Event, Judged, Migrated, RunEnded, RunResult, RunStarted, Ticked
from evolve.output import write_results
from evolve.run import resume_search, run_search

pytestmark = pytest.mark.slow

N_EVALUATIONS = 40
N_KILLED = 8
ENDLESS = ("--set", "stop_at_roofline=1")  # the seed runs at the roof, as far as the model sees
RUN = ("run", "fused_add_rms_norm", "--islands", "2", "--device", "cpu", *ENDLESS, "--evaluations")
IDS = "SELECT candidate_id FROM evaluations"


def candidate_ids(archive: Path) -> list[str]:
    return [row["candidate_id"] for row in rows(IDS, archive=archive)]


class Interrupted(NamedTuple):
    """What was asked while a run went on, and how Ctrl-C ended it."""

    archive: Path
    asked: dict[str, Ended]
    second_run: Ended
    known_before: list[str]
    code: int
    printed: str


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Interrupted:
    folder = tmp_path_factory.mktemp("interrupted")
    archive = folder / "run.duckdb"
    questions = {
        "elites": ("elites", "--json"),
        "best": ("best", "fused_add_rms_norm"),
        "query": ("query", "SELECT outcome, count(*) AS n FROM evaluations GROUP BY ALL", "--json"),
    }
    with (
        Started(*RUN, str(N_EVALUATIONS), "--archive", archive, "--out", "results", cwd=folder) as run,
        ThreadPoolExecutor() as pool,
    ):
        run.wait_for("new best")
        asking = {n: pool.submit(evolve, *q, "--archive", archive, cwd=folder) for n, q in questions.items()}
        second_run = pool.submit(evolve, *RUN, "1", "--archive", archive, cwd=folder)
        asked = {name: answer.result() for name, answer in asking.items()}
        known_before = candidate_ids(archive)
        second_run.result()
        run.interrupt()
        return Interrupted(archive, asked, second_run.result(), known_before, run.wait(), run.printed)


@pytest.fixture(scope="module")
def resumed(interrupted: Interrupted) -> Ended:
    return evolve("resume", "--archive", interrupted.archive, cwd=interrupted.archive.parent)


def test_other_processes_ask_a_live_archive(interrupted: Interrupted) -> None:
    assert {name: ended.code for name, ended in interrupted.asked.items()} == dict.fromkeys(interrupted.asked, 0)
    elites = json.loads(interrupted.asked["elites"].out)
    assert elites and elites[0]["problem"] == "fused_add_rms_norm" and elites[0]["modelled_us"] > 0
    assert "class ModelNew" in interrupted.asked["best"].out
    assert sum(row["n"] for row in json.loads(interrupted.asked["query"].out)) >= 1


def test_a_second_run_is_told_who_holds_the_archive(interrupted: Interrupted) -> None:
    code, _, err = interrupted.second_run
    assert code == 2
    assert "is held by" in err and "PID" in err and "--archive FILE" in err and "Traceback" not in err
    assert interrupted.second_run.complaint == [line for line in err.splitlines() if line.startswith(("error", "hint"))]


def test_ctrl_c_ends_in_order_and_says_how_to_resume(interrupted: Interrupted) -> None:
    assert interrupted.code == 130, interrupted.printed
    assert "interrupted: finishing what is being judged" in interrupted.printed
    assert "ended by  interrupted" in interrupted.printed and "Traceback" not in interrupted.printed
    run_id = interrupted.known_before[0].rsplit("-", 2)[0]
    assert f"evolve resume {run_id} --archive {interrupted.archive}" in interrupted.printed


def test_resume_finishes_the_run(interrupted: Interrupted, resumed: Ended) -> None:
    assert resumed.code == 0, resumed.err
    assert "resumed run" in resumed.out and "ended by  evaluations" in resumed.out
    assert re.search(rf"lineage   evolve lineage \w{{12}} --archive {re.escape(str(interrupted.archive))}", resumed.out)
    ids = candidate_ids(interrupted.archive)
    assert len(ids) == len(set(ids)) == N_EVALUATIONS
    assert set(interrupted.known_before) <= set(ids)
    (run,) = rows("SELECT status, stop_reason FROM runs", archive=interrupted.archive)
    assert run == {"status": "finished", "stop_reason": "evaluations"}


def test_results_are_on_disk(interrupted: Interrupted, resumed: Ended) -> None:
    folder = interrupted.archive.parent / "results"
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["judged"] == N_EVALUATIONS and summary["latency_kind"] == "modelled" and summary["speedup"] >= 1
    report = (folder / "report.html").read_text()
    assert "<html" in report
    assert summary["isolation"].startswith(("namespaces", "subreaper"))
    assert f'<th scope="row">isolation</th><td>{summary["isolation"]}</td>' in report
    module = load(folder / "best.py")
    assert isinstance(module.ModelNew, type)
    assert summary["best_program"] in (folder / "best.py").read_text()


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("best", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_killed_run_is_resumed_without_losing_anything(tmp_path: Path) -> None:
    archive = tmp_path / "killed.duckdb"
    with Started(*RUN, str(N_KILLED), "--archive", archive, cwd=tmp_path) as run:
        run.wait_for("new best")
        known_before = candidate_ids(archive)
        run.kill()
    ended = evolve("resume", "--archive", archive, "--quiet", cwd=tmp_path)  # its actors may hold the archive still
    assert ended.code == 0, ended.err
    ids = candidate_ids(archive)
    assert known_before and set(known_before) <= set(ids)
    assert len(ids) == len(set(ids)) == N_KILLED
    programs = rows("SELECT program_id FROM evaluations WHERE island = 0", archive=archive)
    assert len({row["program_id"] for row in programs}) == len(programs)


# ---------------------------------------------------------------------------------- in this process, on one Ray for all


class Search(NamedTuple):
    """A search that ran here: how it ended, what it said on its way, what it kept."""

    result: RunResult
    events: list[Event]
    evaluations: list[Evaluation]


def search(problem: str, archive: Path, **options: Any) -> Search:
    events: list[Event] = []
    out = str(archive.with_suffix(""))
    config = load_config(problem, options={"archive": str(archive), "out": out, "device": "cpu", **options})
    result = run_search(config, on_event=events.append)
    reader = open_for_reading(archive)
    try:
        return Search(result, events, reader.evaluations(result.run.run_id))
    finally:
        reader.close()


KERNEL = """
import torch
import triton
import triton.language as tl

n_rows = 2048
n_cols = 1024


@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2.0, mask=at < n)


def kernel_function(x):
    y = torch.empty_like(x)
    n = x.numel()
    double_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
    return y
"""
INPUTS = """

def get_inputs():
    return [torch.randn(n_rows, n_cols)]
"""
MODELS = """

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2.0


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return kernel_function(x)


def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def finished(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Search]:
    """A search for a standalone Triton file."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "double.py").write_text(KERNEL + INPUTS)
    settings = {"migration_interval": 3}
    sizes = {"n_rows": 256}
    archive = folder / "first.duckdb"
    return archive, search(str(folder / "double.py"), archive, islands=2, evaluations=12, search=settings, shapes=sizes)


def test_events_come_in_order(finished: tuple[Path, Search]) -> None:
    events = finished[1].events
    assert isinstance(events[0], RunStarted) and isinstance(events[-1], RunEnded)
    assert any(isinstance(event, Ticked) for event in events)
    assert any(isinstance(event, Migrated) for event in events)
    told = [event.evaluation for event in events if isinstance(event, Judged)]
    assert sorted(e.candidate.candidate_id for e in told) == sorted(
        e.candidate.candidate_id for e in finished[1].evaluations
    )


def test_what_was_expected_is_kept_and_becomes_knowledge(finished: tuple[Path, Search]) -> None:
    archive, (result, _, evaluations) = finished
    made = [e.candidate.lineage for e in evaluations if e.candidate.lineage.parents]
    assert made and all(lineage.state and (lineage.predicted_octaves or 0) > 0 for lineage in made)
    told = [island.knowledge.n_attempts for island in result.progress.islands if island.knowledge]
    assert sum(told) == len(made)
    with open_for_reading(archive) as reader:
        found = reader.knowledge()
    assert {one.state for one in found} == {lineage.state for lineage in made}
    assert sum(one.n_predicted for one in found) == sum(one.n_tried for one in found)


def test_a_standalone_triton_file_is_searched(finished: tuple[Path, Search]) -> None:
    result = finished[1].result
    assert result.best is not None and "def kernel_function" in Path(result.best_path).read_text()
    assert result.problem.full.sizes == {"n_rows": 256, "n_cols": 1024}


def test_every_candidate_has_a_verdict_with_a_reason(finished: tuple[Path, Search]) -> None:
    _, (result, _, evaluations) = finished
    assert len(evaluations) == 12 and result.progress.n_judged == 12 and result.progress.evaluations_left == 0
    assert result.run.status is RunStatus.FINISHED and result.run.stop_reason == "evaluations"
    assert {e.candidate.island for e in evaluations} == {0, 1}
    assert all(e.verdict.reason or e.verdict.outcome is Outcome.CORRECT for e in evaluations)
    seeds = [e for e in evaluations if e.candidate.lineage.operator == "seed"]
    assert len(seeds) == 2 and seeds[1].verdict.duplicate_of == seeds[0].verdict.program_id


def test_a_run_is_not_resumed_on_another_gpu(finished: tuple[Path, Search], tmp_path: Path) -> None:
    """Nor does it matter that the caller has a loop of its own, as a notebook has."""
    archive = Path(shutil.copy(finished[0], tmp_path / "elsewhere.duckdb"))
    run = finished[1].result.run
    other = run.hardware.model_copy(update={"name": "H200", "target": "h200"})
    with contextlib.closing(ProgramArchive.open(archive)) as opened:
        opened.update_run(run.model_copy(update={"hardware": other, "status": RunStatus.INTERRUPTED}))

    async def from_a_notebook() -> None:
        resume_search(str(archive))

    with pytest.raises(ClusterError, match=r"began on H200, and here is .*H100") as caught:
        asyncio.run(from_a_notebook())
    assert "--seed-from" in caught.value.hint


def test_a_report_that_fails_costs_nothing_else(finished: tuple[Path, Search], tmp_path: Path) -> None:
    written = write_results(finished[1].result, tmp_path / "gone.duckdb", tmp_path / "out")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["run"] == written.run.run_id and not written.report_path and "gone.duckdb" in written.report_error


def test_what_does_not_beat_the_baseline_says_so(finished: tuple[Path, Search], tmp_path: Path) -> None:
    archive, (result, _, _) = finished
    for beats in (True, False):
        told = result.model_copy(update={"replaces_baseline": beats})
        best = Path(write_results(told, archive, tmp_path / str(beats)).best_path).read_text()
        assert best.startswith("# DOES NOT BEAT THE BASELINE") is not beats
        compile(best, "best.py", "exec")


def test_elites_of_an_earlier_archive_are_judged_again(finished: tuple[Path, Search], tmp_path: Path) -> None:
    earlier, first = finished
    later = search(
        str(earlier.parent / "double.py"),
        tmp_path / "later.duckdb",
        islands=1,
        evaluations=4,
        seed_from=[str(earlier)],
        n_seeds=2,
        shapes={"n_rows": 256},
        strategy="greedy",
    )
    seeded = [e for e in later.evaluations if e.candidate.lineage.seeded_from == str(earlier)]
    known = {e.verdict.program_id for e in first.evaluations if e.verdict.is_correct}
    assert seeded and {e.verdict.program_id for e in seeded} <= known
    assert all(e.verdict.seconds for e in seeded if not e.verdict.duplicate_of)  # somebody worked for it here
    best_before, best_now = first.result.best, later.result.best
    assert best_before is not None and best_before.verdict.latency is not None
    assert best_now is not None and best_now.verdict.latency is not None
    assert best_now.verdict.latency.device_us <= best_before.verdict.latency.device_us


def test_a_file_with_its_own_seed_is_searched(ray_session: None, tmp_path: Path) -> None:
    """KernelBench style: `Model`, and beside it a `ModelNew` to start from."""
    file = tmp_path / "double_model.py"
    file.write_text(KERNEL + INPUTS + MODELS)
    result, _, evaluations = search(
        str(file), tmp_path / "model.duckdb", islands=1, evaluations=4, strategy="best-of-n"
    )
    assert result.best is not None and len(evaluations) == 4
    best = Path(result.best_path).read_text()
    assert "class ModelNew" in best and "class Model(" not in best and "get_inputs" not in best
    seed = evaluations[0].verdict.program_id
    assert all(e.candidate.lineage.parents == (seed,) for e in evaluations[1:])
