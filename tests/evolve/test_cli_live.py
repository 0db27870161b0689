"""What watches a run: lines without a terminal, panels in one."""

from __future__ import annotations

import pytest
from rich.console import Console
from support.runs import make_evaluations, make_problem, make_run

from db.measures import MeasureSpace, Tier
from db.records import Evaluation, LatencyKind
from evolve.budget import Budget
from evolve.cli import panels
from evolve.cli.live import LineView, progress_line
from evolve.events import Judged, Progress, RunStarted, Ticked
from evolve.progress import ProgressMeter
from islands.summary import CellSummary, IslandSummary

PROBLEM = make_problem()


def started(kind: LatencyKind) -> RunStarted:
    run = make_run(PROBLEM, kind=kind)
    return RunStarted(
        run=run, problem=PROBLEM, baseline_name="compile", baselines_us={"compile": 781.6, "eager": 1054.0}
    )


def evaluations(kind: LatencyKind) -> list[Evaluation]:
    return make_evaluations(PROBLEM, make_run(PROBLEM, kind=kind), n=60)


def progress_of(judged: list[Evaluation]) -> Progress:
    budget = Budget(240, 300.0)
    budget.take(len(judged))
    meter = ProgressMeter(budget)
    for evaluation in judged:
        meter.count(evaluation)
    return meter.look([island_of(judged, index) for index in range(4)])


def island_of(judged: list[Evaluation], index: int) -> IslandSummary:
    cells = []
    for e in judged:
        latency, tier = e.verdict.latency, e.verdict.tier
        if e.candidate.island == index and latency is not None and tier is not None:
            latency_bin = MeasureSpace().latency_bin_of(latency.device_us)
            cells.append(
                CellSummary(
                    tier=tier,
                    latency_bin=latency_bin,
                    latency_us=latency.device_us,
                    speedup=latency.speedup,
                    program_id=e.candidate.program_id,
                )
            )
    return IslandSummary(island=index, n_told=15, best_speedup=max(c.speedup for c in cells), cells=tuple(cells))


def drawn(renderable: object, width: int = 100) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(renderable)
    return console.export_text()


@pytest.mark.parametrize("kind", list(LatencyKind))
def test_lines_tell_each_new_best_and_where_the_run_stands(
    kind: LatencyKind, capsys: pytest.CaptureFixture[str]
) -> None:
    view = LineView(every_s=0.0)
    judged = evaluations(kind)
    view(started(kind))
    for evaluation in judged:
        view(Judged(evaluation=evaluation, status="new"))
    view(Ticked(progress=progress_of(judged)))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("started run r1a2b3c4: softmax on ") and f"781.6 us {kind}" in lines[0]
    bests = [float(line.split()[2].rstrip("x,")) for line in lines if line.startswith("new best: ")]
    assert len(bests) > 2 and bests == sorted(bests)
    assert "60 judged of 240" in lines[-1] and f"best {bests[-1]:.2f}x {kind}" in lines[-1]


def test_lines_come_every_few_seconds_only(capsys: pytest.CaptureFixture[str]) -> None:
    view = LineView(every_s=1000.0)
    view(Ticked(progress=Progress()))
    assert capsys.readouterr().out == ""


def test_layers_that_the_sandbox_lacks_are_told_at_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    whole = started(LatencyKind.MODELLED)
    LineView()(whole)
    assert len(capsys.readouterr().out.splitlines()) == 1
    lacking = whole.model_copy(update={"isolation": "subreaper", "missing": ("own processes", "sockets")})
    LineView()(lacking)
    told = "sandbox without own processes, sockets"
    assert capsys.readouterr().out.splitlines()[1:] == [f"{told}: `evolve doctor` says what to do"]
    assert told in drawn(panels.header(lacking)) and "sandbox" not in drawn(panels.header(whole))


def test_a_line_without_a_best_has_none() -> None:
    assert "best" not in progress_line(Progress(n_judged=3), LatencyKind.MEASURED)


@pytest.mark.parametrize("width", [60, 100, 200])
def test_the_view_fits_its_terminal(width: int) -> None:
    judged = evaluations(LatencyKind.MODELLED)
    view = panels.dashboard(started(LatencyKind.MODELLED), progress_of(judged), ["1.42x" * 50], width=width, height=50)
    lines = drawn(view, width).splitlines()
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "modelled" in text and "measured" not in text
    assert "near optimal" in text and "correctness" in text


@pytest.mark.parametrize("n_islands", [1, 4, 8, 40])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 24), (120, 30), (160, 50)])
def test_the_view_is_no_higher_than_its_terminal(width: int, height: int, n_islands: int) -> None:
    judged = evaluations(LatencyKind.MODELLED)
    islands = tuple(island_of(judged, index % 4) for index in range(n_islands))
    progress = progress_of(judged).model_copy(update={"islands": islands})
    news = [f"1.{k}2x, 508.3 us modelled, tile_size on island 0" for k in range(6)]
    view = panels.dashboard(started(LatencyKind.MODELLED), progress, news, width=width, height=height)
    lines = drawn(view, width).splitlines()
    assert len(lines) < height
    assert news[-1] in "\n".join(lines)


def test_a_resumed_run_calls_nothing_new_that_was_known(capsys: pytest.CaptureFixture[str]) -> None:
    view = LineView(every_s=1000.0)
    judged = evaluations(LatencyKind.MODELLED)
    view(started(LatencyKind.MODELLED))
    view(Ticked(progress=progress_of(judged)))
    for evaluation in judged:
        view(Judged(evaluation=evaluation, status="new"))
    assert "new best" not in capsys.readouterr().out


def test_the_view_before_anything_is_correct() -> None:
    progress = Progress(islands=(IslandSummary(island=0),))
    view = panels.dashboard(started(LatencyKind.MEASURED), progress, [], width=80, height=24)
    assert "nothing correct yet" in drawn(view) and "grid: empty" in drawn(view)


def test_the_heat_map_puts_a_cell_where_it_belongs() -> None:
    cells = [
        CellSummary(tier=Tier.COMPUTE_BOUND, latency_bin=40, latency_us=32.0, speedup=2.0, program_id="a"),
        CellSummary(tier=Tier.MEMORY_BOUND, latency_bin=42, latency_us=38.1, speedup=0.5, program_id="b"),
    ]
    lines = drawn(panels.heat_map(cells, kind=LatencyKind.MEASURED, baseline_us=None, width=80)).splitlines()
    rows = {line[:14].strip(): line[panels.TIER_WIDTH :] for line in lines[:4]}
    assert rows["compute bound"].startswith("██")
    assert rows["memory bound"].startswith("· · ░░")
    assert set(rows["near optimal"]) <= {"·", " "}


def test_the_nearer_limit_tells_the_time_left() -> None:
    assert panels.time_left(Progress(time_left_s=30, evaluations_left=100, rate_per_min=600)) == 10
    assert panels.time_left(Progress(time_left_s=5, evaluations_left=100, rate_per_min=600)) == 5
    assert panels.time_left(Progress(evaluations_left=100)) is None
