"""`kill -9` of any process of a search at random moments: what is lost, what comes twice, how soon it goes on.

    python -m benchmarks.recovery --points 200 --jobs 10 --out points.jsonl     # a machine with 32 cores
    python -m benchmarks.recovery --points 18 --minutes 8                       # two cores
    python -m benchmarks.recovery --points 20 --kinds driver --out points.jsonl
    python -m benchmarks.recovery --show points.jsonl                           # the table of all sittings

Real searches on the CPU, with modelled latencies. A search notes every candidate whose verdict is acknowledged in a
file of its own. At every point one process is killed with SIGKILL at a random moment: the driver; an evaluator, the
preparer, the process of the islands, that of the archive, or any worker of Ray; a zygote, or anything below one; the
raylet of a second node. After a driver the run is resumed. Then every candidate that was acknowledged must be in the
archive, once, and no program may have been judged anew. How long it took is, for a driver, from the start of the
command that resumes until its first new verdict; for all others the longest silence between new verdicts from the kill
on.

Each point is a line of JSON in `--out`. Points are numbered, and their kinds follow from `--rng-seed`; those that the
file has are not done again, so sittings add up. Every search has a Ray of its own; processes are killed by their ids.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import datetime
import json
import os
import queue
import random
import secrets
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.victims import FOUND_BY, Process, is_agent, processes_of, shown
from db.live import open_for_reading

LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1
KINDS = ("driver", *FOUND_BY, "raylet")
PER_SITTING = 5  # points on one search
N_AFTER = 6  # new verdicts until a search counts as going on: more than there were candidates on their way
SLOW_S = 10.0
DEADLINE_S = 120.0
MAX_UNBEGUN = 5  # searches that do not begin, and are tried again
ENDS_S = 10.0  # what a killed driver started is gone by then
CORES = 2  # that each Ray believes to have

DRIVER = """
import json, sys, time
from evolve.config import load_config
from evolve.events import CrewChanged, Judged
from evolve.run import resume_search, run_search

archive, notes, mode, options = sys.argv[1:5]
out = open(notes, "a", buffering=1)

def note(event):
    if isinstance(event, Judged):
        verdict = event.evaluation.verdict
        said = {"id": verdict.candidate_id, "is_new": not verdict.duplicate_of, "reason": verdict.reason[:200]}
        out.write(json.dumps({"at": time.time(), **said}) + "\\n")
    elif isinstance(event, CrewChanged):
        out.write(json.dumps({"at": time.time(), "change": event.what}) + "\\n")

if mode == "resume":
    resume_search(archive, on_event=note)
else:
    run_search(load_config("fused_add_rms_norm", options=json.loads(options)), on_event=note)
"""


class Point(NamedTuple):
    """One process to be killed."""

    number: int
    kind: str


class SearchFailedError(Exception):
    """A search that ended, or that did not go on."""


def points_of(n: int, kinds: Sequence[str], rng_seed: int) -> list[Point]:
    """So many points, every kind as often as the others, in an order that the seed decides; more points begin alike."""
    chosen: list[str] = []
    while len(chosen) < n:
        chosen += random.Random(f"{rng_seed}/{len(chosen)}").sample(kinds, len(kinds))
    return [Point(number, kind) for number, kind in enumerate(chosen[:n])]


def sittings_of(points: Sequence[Point]) -> list[list[Point]]:
    """Points that share a search; those of a second node have one with two nodes."""
    alone = [point for point in points if point.kind != "raylet"]
    with_node = [point for point in points if point.kind == "raylet"]
    return [list(group[i : i + PER_SITTING]) for group in (with_node, alone) for i in range(0, len(group), PER_SITTING)]


class Sitting:
    """One search, killed again and again."""

    def __init__(self, folder: Path, rng: random.Random, address: str = "") -> None:
        self.folder = folder
        self.mark = f"recovery-{os.getpid()}-{rng.getrandbits(48):012x}"
        self._archive, self._notes = folder / "a.duckdb", folder / "notes.jsonl"
        self._rng = rng
        self._address = address
        self._driver: subprocess.Popen[bytes] | None = None
        self._n_started = 0

    def start(self) -> float:
        """Start the search, or resume it; seconds until its first new verdict.

        Raises:
            SearchFailedError: it ended by itself, or there was no verdict in time.
        """
        self._n_started += 1
        mode = "run" if self._n_started == 1 else "resume"
        command = [sys.executable, "-c", DRIVER, str(self._archive), str(self._notes), mode, json.dumps(self._options)]
        began = time.time()
        with (self.folder / "errors.txt").open("ab") as errors:
            self._driver = subprocess.Popen(
                command,
                env=environment_of(self.folder, self._driver_mark),
                stdout=subprocess.DEVNULL,
                stderr=errors,
                preexec_fn=die_with_parent,
            )
        self._wait_for_new(began, 1)
        return next(float(one["at"]) for one in self._news(began)) - began

    @property
    def _driver_mark(self) -> str:
        return f"{self.mark}-{self._n_started}-"

    @property
    def _options(self) -> dict[str, Any]:
        n_preparers = 0 if self._address else 1  # two evaluators are on two nodes of a core each
        cluster = {"address": self._address, "n_preparers": n_preparers, "n_evaluators": 2 - n_preparers}
        return {
            "archive": str(self._archive),
            "out": str(self.folder / "out"),
            "islands": 2,
            "evaluations": 100_000,
            "device": "cpu",
            "rng_seed": self._rng.getrandbits(16),
            "stop_when_stagnant": False,
            "stop_at_roofline": 1.0,
            "cluster": {**cluster, "n_island_processes": 1},
        }

    def kill(self, point: Point, longest_s: float, node: Node | None = None) -> dict[str, Any]:
        """Kill one process at a random moment, and see what becomes of the search.

        Raises:
            SearchFailedError: it did not go on.
        """
        after_s = self._rng.uniform(0.0, longest_s)
        time.sleep(after_s)
        found = {**point._asdict(), "after_s": round(after_s, 2)}
        if point.kind == "driver":
            found["resume_s"] = self._kill_driver(found)
        else:
            killed = node.kill_raylet() if node else self._kill_victim(point.kind)
            at = time.time()
            found["victim"] = killed
            self._wait_for_new(at, N_AFTER)
            times = [at, *(float(one["at"]) for one in self._news(at))][: N_AFTER + 1]
            found["resume_s"] = max(later - earlier for earlier, later in pairwise(times))
        found["resume_s"] = round(found["resume_s"], 2)
        return {**found, **self._counts()}

    def _kill_driver(self, found: dict[str, Any]) -> float:
        assert self._driver is not None
        old_mark = self._driver_mark
        self._driver.kill()
        self._driver.wait()
        killed_at = time.monotonic()
        resume_s = self.start()
        time.sleep(max(0.0, killed_at + ENDS_S - time.monotonic()))
        found["alive"] = [one.command[:80] for one in processes_of(old_mark) if not is_agent(one)]
        return resume_s

    def _kill_victim(self, kind: str) -> str:
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            self._check_driver()
            running = processes_of(self._driver_mark)
            if there := FOUND_BY[kind](running):
                victim = self._rng.choice(there)
                with contextlib.suppress(ProcessLookupError):  # candidates come and go
                    os.kill(victim.pid, signal.SIGKILL)
                    return shown(victim)
            time.sleep(0.02)
        raise SearchFailedError(f"no process of kind {kind}")

    def _counts(self) -> dict[str, Any]:
        noted = [str(one["id"]) for one in self._told() if "id" in one]
        crashed = [one["reason"] for one in self._told() if "died twice" in one.get("reason", "")]
        with contextlib.closing(open_for_reading(self._archive, wait_s=DEADLINE_S)) as reader:
            rows = reader.query("SELECT candidate_id, program_id, duplicate_of FROM evaluations").rows
        stored = Counter(str(row[0]) for row in rows)
        anew = Counter(str(row[1]) for row in rows if not row[2])
        return {
            "acknowledged": len(noted),
            "stored": len(rows),
            "lost": len(set(noted) - set(stored)),
            "twice": sum(n > 1 for counter in (stored, Counter(noted)) for n in counter.values()),
            "judged_anew": sum(n > 1 for n in anew.values()),
            "crash_verdicts": len(crashed),
        }

    def _told(self) -> list[dict[str, Any]]:
        lines = self._notes.read_text().splitlines() if self._notes.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def _news(self, since: float) -> list[dict[str, Any]]:
        return [one for one in self._told() if one.get("is_new") and one["at"] > since]

    def _wait_for_new(self, since: float, n: int) -> None:
        end = time.monotonic() + DEADLINE_S
        while len(self._news(since)) < n:
            self._check_driver()
            if time.monotonic() > end:
                raise SearchFailedError(f"no {n} new verdicts in {DEADLINE_S:.0f} s: {self._told()[-3:]}")
            time.sleep(0.05)

    def _check_driver(self) -> None:
        assert self._driver is not None
        if self._driver.poll() is not None:
            raise SearchFailedError(f"the search ended with {self._driver.returncode}: {self._last_error()}")

    def _last_error(self) -> str:
        lines = (self.folder / "errors.txt").read_text(errors="replace").strip().splitlines()
        return " | ".join(lines[-3:])[-600:]

    def close(self) -> None:
        """Kill what is left of it."""
        if self._driver is not None and self._driver.poll() is None:
            self._driver.kill()
            self._driver.wait()


def die_with_parent() -> None:
    """For a process that was just forked: no search outlives a benchmark that is killed."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def environment_of(folder: Path, mark: str) -> dict[str, str]:
    """Ray keeps its files in the folder and believes in few cores; the mark is where the sandbox lets it through."""
    return {
        **os.environ,
        # the sandbox gives its processes few variables; where to import from is one of them
        "PYTHONPATH": os.pathsep.join(
            filter(None, [str(Path.cwd()), f"/nowhere/{mark}", os.environ.get("PYTHONPATH")])
        ),
        "RAY_TMPDIR": str(folder),
        "RAY_OVERRIDE_RESOURCES": json.dumps({"CPU": CORES}),
        "RAY_ADDRESS": "",
        **token_of(folder),
    }


def token_of(folder: Path) -> dict[str, str]:
    """Whoever starts a node or a driver of a search knows its token, and nobody else."""
    path = folder / "token"
    if not path.exists():
        path.write_text(secrets.token_hex(32))
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(path)}


class Node:
    """A head and a second node of a Ray cluster on this machine, a core each; the second one can be killed."""

    def __init__(self, folder: Path, mark: str) -> None:
        self._folder, self._mark = folder, mark
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Both nodes."""
        self._start("--head", f"--port={self.address.rpartition(':')[2]}", "--include-dashboard=false")
        self._wait_for_nodes(1)
        self.join()

    def join(self) -> None:
        """A second node, in the place of the one before."""
        n_before = len(self._raylets())
        self._start(f"--address={self.address}")
        self._wait_for_nodes(n_before + 1)

    def _start(self, *options: str) -> None:
        common = ["--num-cpus=1", "--num-gpus=0", "--node-ip-address=127.0.0.1", "--disable-usage-stats", "--block"]
        ports = ["--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0"]
        command = [str(Path(sys.executable).with_name("ray")), "start", *options, *common, *ports]
        environment = environment_of(self._folder, self._mark)
        del environment["RAY_OVERRIDE_RESOURCES"], environment["RAY_ADDRESS"]
        with (self._folder / "ray.txt").open("ab") as log:
            self._started.append(
                subprocess.Popen(command, env=environment, stdout=log, stderr=log, preexec_fn=die_with_parent)
            )

    def _raylets(self) -> list[Process]:
        return [one for one in processes_of(self._mark) if "/raylet/raylet " in one.command + " "]

    def _wait_for_nodes(self, n: int) -> None:
        end = time.monotonic() + DEADLINE_S
        while len(self._raylets()) < n or self._started[-1].poll() is not None:
            if time.monotonic() > end or self._started[-1].poll() is not None:
                raise SearchFailedError(f"a node did not start: {(self._folder / 'ray.txt').read_text()[-600:]}")
            time.sleep(0.1)

    def kill_raylet(self) -> str:
        """The second node's, which takes its workers with it."""
        mine = [one for one in self._raylets() if one.parent == self._started[-1].pid]
        if not mine:
            raise SearchFailedError("the second node has no raylet")
        os.kill(mine[0].pid, signal.SIGKILL)
        return "raylet of the second node"

    def close(self) -> None:
        for process in reversed(self._started):
            process.terminate()
        for process in self._started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)


@contextlib.contextmanager
def sitting(rng: random.Random, *, has_second_node: bool) -> Iterator[tuple[Sitting, Node | None]]:
    """A search that has its first verdict; nothing of it is left afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="rec-", dir="/tmp"))  # sockets of Ray have short paths
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        node = None
        if has_second_node:
            node = Node(folder, f"recovery-node-{os.getpid()}-{rng.getrandbits(48):012x}")
            stack.callback(node.close)
            node.start()
        one = Sitting(folder, rng, node.address if node else "")
        stack.callback(one.close)
        one.start()
        yield one, node


class Torture:
    """Sittings, several at a time, until all points are done or the time is up."""

    def __init__(self, arguments: argparse.Namespace, points: Sequence[Point]) -> None:
        self._arguments = arguments
        self._ends = time.monotonic() + 60 * arguments.minutes
        self._waiting: queue.SimpleQueue[list[Point]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._n_unbegun = 0
        for group in sittings_of(points):
            self._waiting.put(group)

    def run(self) -> None:
        threads = [threading.Thread(target=self._work) for _ in range(self._arguments.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def stop(self) -> None:
        """Begin no other point."""
        self._ends = 0.0

    def _work(self) -> None:
        while time.monotonic() < self._ends:
            try:
                group = self._waiting.get_nowait()
            except queue.Empty:
                return
            self._sit(group)

    def _sit(self, group: Sequence[Point]) -> None:
        rng = random.Random(f"{self._arguments.rng_seed}/{group[0].number}")
        point, has_begun = group[0], False
        try:
            with sitting(rng, has_second_node=point.kind == "raylet") as (search, node):
                has_begun = True
                for index, point in enumerate(group):
                    if time.monotonic() > self._ends:
                        return
                    if node and index:
                        node.join()
                    self._note(search.kill(point, self._arguments.longest_s, node))
        except SearchFailedError as error:
            if not has_begun and self._n_unbegun < MAX_UNBEGUN:  # of two Rays that start at once one may take a port
                self._n_unbegun += 1
                print(f"a search did not begin: {error}", flush=True)
                self._waiting.put(list(group))
                return
            self._note({**point._asdict(), "failed": str(error)})
            if left := group[group.index(point) + 1 :]:
                self._waiting.put(list(left))

    def _note(self, found: dict[str, Any]) -> None:
        about = {
            "rng_seed": self._arguments.rng_seed,
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
        }
        with self._lock, self._arguments.out.open("a") as out:
            out.write(json.dumps({**found, **about}) + "\n")
            print(json.dumps(found), flush=True)


def read_points(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def summed(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """By kind of process: how many points, what went wrong, and how long it took."""
    table: dict[str, Any] = {}
    for kind in [kind for kind in KINDS if any(one["kind"] == kind for one in found)]:
        mine = [one for one in found if one["kind"] == kind]
        seconds = sorted(float(one["resume_s"]) for one in mine if "resume_s" in one)
        table[kind] = {
            "points": len(mine),
            "failed": sum("failed" in one for one in mine),
            **{name: sum(one.get(name, 0) for one in mine) for name in ("lost", "twice", "judged_anew")},
            "alive": sum(len(one.get("alive", [])) for one in mine),
            "median_s": round(statistics.median(seconds), 2) if seconds else None,
            "longest_s": seconds[-1] if seconds else None,
            "over_10_s": sum(s > SLOW_S for s in seconds),
        }
    return table


def show(found: Sequence[dict[str, Any]]) -> bool:
    """The table; whether all is as it should be, speed aside."""
    table = summed(found)
    columns = list(next(iter(table.values()), {}))
    print(f"{'':12}" + "".join(f"{name:>12}" for name in columns))
    for kind, row in table.items():
        print(f"{kind:12}" + "".join(f"{'' if row[name] is None else row[name]:>12}" for name in columns))
    totals = {
        name: sum(row[name] for row in table.values())
        for name in columns
        if not name.endswith("_s") or name == "over_10_s"
    }
    print(totals)
    return not any(totals[name] for name in ("failed", "lost", "twice", "judged_anew", "alive"))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--jobs", type=int, default=1, help="searches at a time; each wants three cores")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no point after so long")
    parser.add_argument("--rng-seed", type=int, default=0)
    parser.add_argument("--longest-s", type=float, default=4.0, help="latest moment of a kill after a verdict")
    parser.add_argument("--out", type=Path, default=Path("recovery.jsonl"))
    parser.add_argument("--show", type=Path, help="print the table of this file, and do nothing")
    options = parser.parse_args(arguments)
    if options.show is None:
        done = {(one["rng_seed"], one["number"], one["kind"]) for one in read_points(options.out)}
        points = points_of(options.points, options.kinds, options.rng_seed)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        torture = Torture(options, [point for point in points if (options.rng_seed, *point) not in done])
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: torture.stop())
        torture.run()
    sys.exit(0 if show(read_points(options.show or options.out)) else 1)


if __name__ == "__main__":
    main()
