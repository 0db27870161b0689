"""Nodes that come and go during a run: what becomes of its rate, and of what was judged. Needs root.

    python -m benchmarks.spot --takes 0.25

Nodes of a Ray cluster in network namespaces (`benchmarks.nodes`); every GPU is simulated, in an actor of its own that
Ray places where a GPU is claimed. Everything else is a run: crew, recruiting, judge, search, islands, archive.
The plan: one node with a GPU; a second joins; the first dies; it comes back; the second is cut off the network.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import nodes
from benchmarks.simulated import REPORT, SimulatedGpuActor, SimulatedPreparer
from db.live import open_for_reading
from db.records import DeviceKind, LatencyKind, PrecisionClass, Run
from evaluators.problems import load_problem
from evolve.budget import Budget
from evolve.cluster import answer, connected
from evolve.config import RunConfig, load_config
from evolve.crew import Crew
from evolve.events import Event, Judged
from evolve.judging import JudgePool
from evolve.progress import ProgressMeter
from evolve.recruiting import recruiting
from evolve.search import Search
from islands.migration import make_topology
from islands.seed import Seed


class Step(NamedTuple):
    """What happens to the cluster, and when, in seconds since the search began."""

    at_s: float
    what: str
    act: Callable[[], None]


PLAN = (
    Step(15, "node 2 joins", lambda: nodes.join(2, 2, num_gpus=1)),
    Step(45, "node 1 dies", lambda: nodes.leave(1)),
    Step(75, "node 1 joins again", lambda: nodes.join(1, 2, num_gpus=1)),
    Step(105, "node 2 is cut off", lambda: nodes.cut(2)),
)
ENDS_S = 165.0
WINDOW_S = 5.0


class SpotCrew(Crew):
    """The crew of a run on GPUs, whose evaluators are simulated."""

    takes_s = 0.25

    def _start_evaluator(self) -> Any:
        return SimulatedGpuActor.remote(self.takes_s, self._config.rng_seed)  # type: ignore[attr-defined]

    def _start_preparers(self) -> list[Any]:
        return [SimulatedPreparer.remote() for _ in range(2)]  # type: ignore[attr-defined]


async def drive(config: RunConfig, takes_s: float) -> None:
    """A search of `ENDS_S` seconds; a line of JSON for every verdict and every change of the crew."""
    problem = load_problem(config.problem)
    SpotCrew.takes_s = takes_s

    def tell(**what: Any) -> None:
        print(json.dumps({"at": time.time(), **what}), flush=True)

    def on_event(event: Event) -> None:
        if isinstance(event, Judged):
            evaluation = event.evaluation
            is_new = not evaluation.verdict.duplicate_of and evaluation.verdict.is_correct
            tell(judged=evaluation.candidate.candidate_id, is_new=is_new, reason=evaluation.verdict.reason)

    async with SpotCrew(config, problem, DeviceKind.CUDA, "spot", on_change=lambda what: tell(change=what)) as crew:
        report = await crew.open()
        run = Run(
            run_id="spot", problem_id=problem.problem_id, rng_seed=0, device=DeviceKind.CUDA, hardware=REPORT.hardware,
            precision=PrecisionClass.REFERENCE, latency_kind=LatencyKind.MODELLED, config={}, versions=REPORT.versions,
        )  # fmt: skip
        await answer(crew.archive.add_problem.remote(problem))
        await answer(crew.archive.add_run.remote(run))
        budget = Budget(10**9, ENDS_S)
        judge = JudgePool(
            preparers=crew.preparers, evaluators=crew.evaluators, archive=crew.archive, report=report,
            precision=PrecisionClass.REFERENCE,
        )  # fmt: skip
        search = Search(
            islands=crew.islands, judge=judge, archive=crew.archive, budget=budget, meter=ProgressMeter(budget),
            topology=make_topology("ring"), rng=random.Random(0), on_event=on_event,
            chains_per_island=crew.chains_per_island, batch=1, stop_when_stagnant=False,
        )  # fmt: skip
        tell(began=True)
        await search.seed([Seed(source=source) for source in problem.seeds])
        async with recruiting(crew, search):
            await search.run()
        tell(ended=budget.stop_reason, busy=crew.evaluators.busy_shares)


def follow(archive: Path, takes_s: float) -> list[dict[str, Any]]:
    """Starts the driver on the head, carries the plan out, and collects what the driver told."""
    command = [sys.executable, "-m", "benchmarks.spot", "--drive", str(archive), "--takes", str(takes_s)]
    told: list[dict[str, Any]] = []
    on_head, environment = nodes.command_on(0, command), nodes.environment()
    with subprocess.Popen(on_head, env=environment, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        for line in driver.stdout:
            with contextlib.suppress(ValueError):
                told.append(json.loads(line))
            if told and told[-1].get("began"):
                threading.Thread(target=carry_out, args=(told, told[-1]["at"]), daemon=True).start()
    return sorted(told, key=lambda one: float(one["at"]))


def carry_out(told: list[dict[str, Any]], began: float) -> None:
    """The plan, step by step, in its own time."""
    for step in PLAN:
        time.sleep(max(0.0, began + step.at_s - time.time()))
        begin = time.time()
        step.act()
        told.append({"at": begin, "step": step.what, "took_s": time.time() - begin})


def summed(told: Sequence[dict[str, Any]], stored: Sequence[str]) -> dict[str, Any]:
    """Verdicts a second by windows, what happened when, and whether anything was lost."""
    began = next(one["at"] for one in told if one.get("began"))
    judged = [one for one in told if "judged" in one]
    windows: dict[int, int] = {}
    for one in judged:
        if one["is_new"]:
            window = int((one["at"] - began) / WINDOW_S)
            windows[window] = windows.get(window, 0) + 1
    happened = [
        (round(one["at"] - began, 1), one.get("step") or one.get("change"))
        for one in told
        if {"step", "change"} & set(one)
    ]
    acknowledged = {one["judged"] for one in judged}
    return {
        "new_verdicts_per_s": {str(int(w * WINDOW_S)): n / WINDOW_S for w, n in sorted(windows.items())},
        "happened": happened,
        "acknowledged": len(acknowledged),
        "stored": len(stored),
        "lost": len(acknowledged - set(stored)),
        "twice": len(stored) - len(set(stored)),
        "crashes": sum("died twice" in one["reason"] for one in judged),
        "busy": next((one["busy"] for one in told if "busy" in one), None),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--takes", type=float, default=0.25, help="seconds that a GPU takes for a candidate")
    parser.add_argument("--drive", default="", metavar="ARCHIVE", help="the part on the head; used by this command")
    parser.add_argument("--out", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    if options.drive:
        config = load_config("softmax", options={"archive": options.drive, "islands": 4, "device": "cuda"})
        with connected(nodes.head(), needs_gpu=True):
            asyncio.run(drive(config, options.takes))
        return
    nodes.up(2, 2)
    try:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # nodes have a /tmp of their own
            archive = Path(folder) / "spot.duckdb"
            told = follow(archive, options.takes)
            with contextlib.closing(open_for_reading(archive, wait_s=60)) as reader:
                stored = [str(row[0]) for row in reader.query("SELECT candidate_id FROM evaluations").rows]
    finally:
        nodes.down()
    text = json.dumps(summed(told, stored), indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
