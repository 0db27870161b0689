"""Several GPUs of one host: a search with eight islands on 1, 2, 4 and 8 of them, and what is lost when parts die.

    python -m benchmarks.gpus --gpus 1 2 4 8 --out gpus.jsonl          # one after another, two minutes each
    python -m benchmarks.gpus --gpus 1 --devices 0 --first-core 0 &    # two at a time, on cores and GPUs of their own
    python -m benchmarks.gpus --gpus 2 --devices 2,3 --first-core 32
    python -m benchmarks.gpus --kill 4                                 # kill -9 of an evaluator, islands, a preparer
    python -m benchmarks.gpus --gpus 4 --then-kill 45                  # the same in a search that was measured before
    python -m benchmarks.gpus --table gpus.jsonl
    python -m benchmarks.gpus --device cpu --gpus 1 2 --cores-per-gpu 2 --seconds 15 --problem softmax

The search is `evolve run PROBLEM --islands 8 --time ...` in a process of its own, with as many evaluators as GPUs, on
16 cores for each: one GPU with its 16 cores is compared with eight and 128. It goes on for the whole time, however good
its programs are. One problem stands for the suite, whose fifteen would take over two hours on four counts of GPUs;
`--problem` takes several, which run one after another. What comes before the first candidate (processes, baselines,
torch.compile with max-autotune) is not counted and is reported as `start_s`.

Every run adds a line to `--out` when it ends, well or not; what is known of a run that goes on stands in a file beside
it. A minute's candidates are the verdicts between the first one and the end of the time. Those on the GPU are the ones
that an evaluator judged: the others were refused before, or were work that had been judged already. Of each evaluator:
the share of the time in which it had a candidate, and the longest time between two answers. Latencies are of verdicts
that were acknowledged, in seconds from the start of the search. Without a GPU evaluators are modelled.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from benchmarks.gpu_figures import Notes, Plan, after_kills, compared, figures_of, gpu_busy, read_lines, table
from benchmarks.processes import Family
from benchmarks.recovery import die_with_parent, token_of
from benchmarks.victims import FOUND_BY, processes_below, shown
from db.errors import EvolveError
from db.live import open_for_reading
from evolve import crew
from evolve.cluster import ActorDied
from evolve.config import load_config
from evolve.device import count_local_gpus
from evolve.events import CrewChanged, Event, Judged, RunEnded, RunStarted
from evolve.judging import ActorPool
from evolve.models.sitting import visible_gpus
from evolve.run import run_search

ISLANDS = 8
LOOK_S = 1.0
SAVE_S = 5.0  # between two savings of what is known so far
START_S = 240.0  # until the baseline is known
END_S = 90.0  # after the time of the search: candidates in flight, winners again, report
STOP_S = 15.0  # for a search that is interrupted
FAILS_SOON_S = 60.0  # of two Rays that start at once one may take a port: what fails by then is tried again
N_STARTS = 2
KILLS = ("evaluator", "island", "preparer")
KILL_SHARES = (1 / 3, 4 / 9, 5 / 9)  # of a run's time
THEN_KILL_SHARES = (0.05, 0.25, 0.45)  # of the time that a run goes on for
WEIGH_SHARE = 0.9  # of the time that is measured: when memory is shared out
DRIVE = "import sys; from benchmarks.gpus import drive; drive(*sys.argv[1:])"


# ------------------------------------------------------------------------------------------ inside the search's process


def drive(problem: str, sets: str, options: str, notes: str) -> None:
    """One search, as `evolve run` does it, that notes what happens."""
    config = load_config(problem, sets=json.loads(sets), options=json.loads(options))
    with Path(notes).open("a", buffering=1) as out:

        def watched(actors: Sequence[Any], *on_death: Any) -> ActorPool:
            return ActorPool([Watched(actor, index, out) for index, actor in enumerate(actors)], *on_death)

        setattr(crew, "ActorPool", watched)  # noqa: B010 - which evaluator judged is in no verdict
        run_search(config, on_event=lambda event: note(out, event))


class Watched:
    """An actor whose calls are noted when they end: its number, from when to when, and how they ended."""

    def __init__(self, actor: Any, index: int, out: TextIO) -> None:
        self._actor = actor
        self._index = index
        self._out = out

    def __getattr__(self, method: str) -> _Watched:
        return _Watched(getattr(self._actor, method), self._index, method, self._out)


class _Watched:
    def __init__(self, method: Any, index: int, name: str, out: TextIO) -> None:
        self._method, self._index, self._name, self._out = method, index, name, out

    async def remote(self, *arguments: Any) -> Any:
        began, ending = time.time(), "cancelled"
        try:
            result = await self._method.remote(*arguments)
            ending = "answered"
        except Exception as error:  # looked at and passed on
            ending = "died" if isinstance(error, ActorDied) else "raised"
            raise
        finally:
            write_note(self._out, "call", actor=self._index, method=self._name, began=began, ending=ending)
        return result


def write_note(out: TextIO, what: str, **said: Any) -> None:
    out.write(json.dumps({"at": time.time(), "what": what, **said}) + "\n")


def note(out: TextIO, event: Event) -> None:
    """A line for an event that somebody looks at later."""
    match event:
        case RunStarted():
            baselines_us = {name: round(us, 2) for name, us in event.baselines_us.items()}
            said = {"run": event.run.run_id, "hardware": event.run.hardware.name, "isolation": event.isolation}
            write_note(out, "started", **said, baseline=event.baseline_name, baselines_us=baselines_us)
        case Judged():
            verdict = event.evaluation.verdict
            write_note(
                out,
                "judged",
                id=verdict.candidate_id,
                is_new=not verdict.duplicate_of,
                us=verdict.latency.device_us if verdict.latency else None,
                reason=verdict.reason[:200],
                seconds=verdict.seconds,
            )
        case CrewChanged():
            write_note(out, "crew", said=event.what)
        case RunEnded():
            counters = event.result.counters.model_dump() if event.result.counters else None
            busy, reason = event.result.evaluators_busy, event.result.run.stop_reason
            write_note(out, "ended", busy=busy, stop_reason=reason, counters=counters)


# -------------------------------------------------------------------------------------------------------------- one run


def plans_of(options: argparse.Namespace) -> list[Plan]:
    """What the command asks for, in order."""
    plans = []
    for problem in options.problem:
        counts = options.gpus
        plans += [Plan(problem, n, options.seconds, options.seconds) for n in counts]
        if options.then_kill and counts:
            kills_at = tuple(options.seconds + share * options.then_kill for share in THEN_KILL_SHARES)
            plans[-1] = plans[-1]._replace(total_s=options.seconds + options.then_kill, kills_at=kills_at)
        if options.kill is not None:
            kills_at = tuple(share * options.seconds for share in KILL_SHARES)
            n_gpus = options.kill or max(counts, default=len(options.devices) or 2)
            plans.append(Plan(problem, n_gpus, options.seconds, options.seconds, kills_at))
    return plans


class Trial:
    """One search, started, watched, perhaps killed in parts, and what came of it."""

    def __init__(self, plan: Plan, options: argparse.Namespace, partial: Path) -> None:
        self._plan = plan
        self._options = options
        self._partial = partial
        self._folder = Path(tempfile.mkdtemp(prefix="gpus-", dir="/tmp"))  # sockets of Ray have short paths
        allowed = sorted(os.sched_getaffinity(0))
        n_cores = plan.n_gpus * options.cores_per_gpu
        self._cores = allowed[options.first_core :][:n_cores] or allowed
        self._gpus = options.devices[: plan.n_gpus]
        self._rng = random.Random(options.rng_seed)
        self._notes: Notes = []
        self._n_read = 0
        self._kills: Notes = []
        self._found: dict[str, Any] = {}
        self._has_weighed = self._is_measured = False
        self._must_stop = False
        self._began = self._ended = time.time()  # of the search's process
        self._watcher: subprocess.Popen[bytes] | None = None

    def stop(self) -> None:
        """End early, with what is there."""
        self._must_stop = True

    def run(self) -> dict[str, Any]:
        """The line of this run."""
        began, process = time.time(), self._start()
        n_starts = 1
        try:
            while not self._watch(process) and self._may_start_again(began, n_starts):
                process, n_starts = self._start(), n_starts + 1
            return {**self._line(began, process, n_starts), **self._archive()}
        except BaseException:
            print(f"what is known so far: {self._partial} and {self._notes_path}", file=sys.stderr)
            raise
        finally:
            if process.poll() is None:
                process.kill()
            if self._watcher is not None:
                self._watcher.kill()
                self._watcher.wait()

    def forget(self) -> None:
        """Remove what it left: its line is written."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._partial.unlink(missing_ok=True)

    def _may_start_again(self, began: float, n_starts: int) -> bool:
        return n_starts < N_STARTS and time.time() - began < FAILS_SOON_S and not self._must_stop

    def _start(self) -> subprocess.Popen[bytes]:
        self._began = time.time()
        given = [self._plan.problem, json.dumps(self._options.set), json.dumps(self._settings()), str(self._notes_path)]
        with (self._folder / "errors.txt").open("ab") as errors:
            return subprocess.Popen(
                [sys.executable, "-P", "-c", DRIVE, *given],
                env=self._environment(),
                stdout=errors,
                stderr=errors,
                preexec_fn=self._pinned,
            )

    def _pinned(self) -> None:
        die_with_parent()
        os.sched_setaffinity(0, self._cores)

    @property
    def _notes_path(self) -> Path:
        return self._folder / "notes.jsonl"

    def _settings(self) -> dict[str, Any]:
        return {
            "archive": str(self._folder / "a.duckdb"),
            "out": str(self._folder / "out"),
            "islands": ISLANDS,
            "evaluations": 10**6,
            "time_s": self._plan.total_s,
            "device": self._options.device,
            "rng_seed": self._options.rng_seed,
            "stop_when_stagnant": False,
            "stop_at_roofline": 1.0,
            "cluster": {"n_evaluators": self._plan.n_gpus},
        }

    def _environment(self) -> dict[str, str]:
        given = {**os.environ, **token_of(self._folder)}
        given["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH", "")]))
        given |= {"RAY_TMPDIR": str(self._folder), "RAY_ADDRESS": ""}
        given["RAY_OVERRIDE_RESOURCES"] = json.dumps({"CPU": self._plan.n_gpus * self._options.cores_per_gpu})
        # a virtual machine's memory may grow as it is used: Ray would take it for full and kill workers
        given.setdefault("RAY_memory_monitor_refresh_ms", "0")
        if self._options.device == "cuda":
            given["CUDA_VISIBLE_DEVICES"] = ",".join(self._gpus)
        return given

    def _watch(self, process: subprocess.Popen[bytes]) -> bool:
        """Follow a search until it ends or is ended; False where it failed before it began."""
        family, saved_at = Family(process.pid), time.time()
        while process.poll() is None:
            time.sleep(LOOK_S / 2 if self._started_at is None else LOOK_S)
            self._read()
            if self._must_stop or time.time() > self._deadline:
                _end(process, STOP_S)
                self._found["is_cut_off"] = True
                break
            with contextlib.suppress(OSError, ValueError, IndexError):  # processes that end while they are looked at
                self._look(family)
            if self._started_at is not None:
                self._kill_what_is_due(process.pid)
            if time.time() - saved_at > SAVE_S:
                saved_at = time.time()
                self._save(self._line(self._began, process, 1))
        self._ended = time.time()
        self._read()
        return self._started_at is not None

    def _save(self, line: dict[str, Any]) -> None:
        unfinished = self._partial.with_suffix(".tmp")
        unfinished.write_text(json.dumps(line, default=float) + "\n")
        unfinished.replace(self._partial)

    @property
    def _started_at(self) -> float | None:
        return next((float(one["at"]) for one in self._notes if one["what"] == "started"), None)

    @property
    def _deadline(self) -> float:
        started = self._started_at
        return self._began + START_S if started is None else started + self._plan.total_s + END_S

    def _read(self) -> None:
        """Take in what was noted since the last time."""
        if self._notes_path.exists():
            with self._notes_path.open("rb") as notes:
                notes.seek(self._n_read)
                complete = notes.read().rpartition(b"\n")[0]
            if complete:
                self._n_read += len(complete) + 1
                self._notes += [json.loads(line) for line in complete.splitlines()]

    def _look(self, family: Family) -> None:
        """Processor time and memory, from the first verdict to the end of what is measured."""
        started = self._started_at
        if started is None or not any(one["what"] == "judged" for one in self._notes) or self._is_measured:
            return
        if self._watcher is None:
            self._watcher = self._watch_gpus()
            family.begin()
        family.look()
        elapsed_s = time.time() - started
        if not self._has_weighed and elapsed_s > WEIGH_SHARE * self._plan.seconds:
            self._has_weighed = True
            family.weigh()
        self._found["processes"] = family.figures()
        self._found["gpus_seen"] = gpu_busy(self._gpu_lines.read_text())
        self._is_measured = elapsed_s > self._plan.seconds - LOOK_S

    @property
    def _gpu_lines(self) -> Path:
        return self._folder / "nvidia-smi.txt"

    def _watch_gpus(self) -> subprocess.Popen[bytes]:
        """Somebody who writes down once a second how busy the GPUs are, where there is one."""
        command = ["sleep", "infinity"]
        if self._options.device == "cuda" and shutil.which("nvidia-smi"):
            asked = "--query-gpu=index,utilization.gpu,memory.used"
            command = ["nvidia-smi", "-i", ",".join(self._gpus), asked, "--format=csv,noheader,nounits", "-l", "1"]
        with self._gpu_lines.open("wb") as out:
            return subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, preexec_fn=die_with_parent)

    def _kill_what_is_due(self, driver: int) -> None:
        started = self._started_at
        if started is None or len(self._kills) == len(self._plan.kills_at):
            return
        if time.time() < started + self._plan.kills_at[len(self._kills)]:
            return
        running = processes_below(driver)
        wanted = KILLS[len(self._kills)]
        kind = wanted if FOUND_BY[wanted](running) else "worker"  # where evaluators prepare there is no preparer
        if there := FOUND_BY[kind](running):
            victim = self._rng.choice(there)
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim.pid, signal.SIGKILL)
                at_s = round(time.time() - started, 2)
                self._kills.append({"kind": kind, "victim": shown(victim), "at_s": at_s, "at": time.time()})

    def _line(self, began: float, process: subprocess.Popen[bytes], n_starts: int) -> dict[str, Any]:
        started = self._started_at
        line = {
            "gpus": self._plan.n_gpus,
            "device": self._options.device,
            "problem": self._plan.problem,
            "islands": ISLANDS,
            "seconds": self._plan.seconds,
            "devices": self._gpus,
            "cores": f"{self._cores[0]}-{self._cores[-1]}",
            "n_cores": len(self._cores),
            "cores_per_gpu": self._options.cores_per_gpu,
            "set": self._options.set,
            "rng_seed": self._options.rng_seed,
            "time": datetime.datetime.fromtimestamp(began, datetime.UTC).isoformat(timespec="seconds"),
            "machine_cores": os.cpu_count(),
            "machine_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
            "load": round(os.getloadavg()[0], 1),
            "n_starts": n_starts,
            "status": process.poll(),
            "start_s": None if started is None else round(started - self._began, 2),
            **figures_of(self._notes, self._plan),
            **self._found,
            "kills": [{name: kill[name] for name in ("kind", "victim", "at_s")} for kill in self._kills],
        }
        if self._kills and started is not None:
            end = min(started + self._plan.total_s, self._notes[-1]["at"])
            killed_at = [kill["at"] for kill in self._kills]
            line["after_kills"] = after_kills(self._notes, self._plan.n_gpus, killed_at, end)
        if process.poll() is not None:
            line["wall_s"] = round(self._ended - began, 2)
            if started is not None:
                line["end_s"] = round(self._ended - started - self._plan.total_s, 2)
            if process.poll() or started is None:
                line["error"] = (self._folder / "errors.txt").read_text(errors="replace")[-1500:]
        return line

    def _archive(self) -> dict[str, Any]:
        """What the archive has of all that was acknowledged."""
        noted = [str(one["id"]) for one in self._notes if one["what"] == "judged"]
        try:
            with contextlib.closing(open_for_reading(self._folder / "a.duckdb", wait_s=STOP_S)) as reader:
                rows = reader.query("SELECT candidate_id, program_id, duplicate_of FROM evaluations").rows
        except (EvolveError, OSError) as error:
            return {"archive": {"acknowledged": len(noted), "error": str(error)}}
        return {"archive": compared(noted, rows)}


def _end(process: subprocess.Popen[bytes], patience_s: float) -> None:
    """As Ctrl-C does, and by force if that takes long."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# ---------------------------------------------------------------------------------------------------------- the command


def _devices(options: argparse.Namespace) -> list[str]:
    """The GPUs that may be used, by the names that CUDA_VISIBLE_DEVICES has for them."""
    if options.device == "cpu":
        return []
    seen = visible_gpus(count_local_gpus())
    return [seen[int(index)] for index in options.devices.split(",")] if options.devices else seen


def _complete(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Fill in what follows from the machine."""
    try:
        options.devices = _devices(options)
    except (IndexError, ValueError):
        parser.error(f"--devices {options.devices}: there are {count_local_gpus()} GPUs")
    n_there = len(options.devices) if options.device == "cuda" else 2
    if options.gpus is None:
        options.gpus = [] if options.kill is not None else [n for n in (1, 2, 4, 8) if n <= n_there]
    wanted = max([*options.gpus, options.kill or 0])
    if options.device == "cuda" and wanted > n_there:
        parser.error(f"{wanted} GPUs are asked for, there are {n_there}")


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--gpus", type=int, nargs="+", help="counts of GPUs, a run each; 1, 2, 4, 8 as far as there are"
    )
    parser.add_argument("--devices", default="", help="which GPUs, as 2,3; all that are visible")
    parser.add_argument("--cores-per-gpu", type=int, default=16)
    parser.add_argument("--first-core", type=int, default=0, help="of the cores that this process may use, from 0")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--problem", nargs="+", default=["layer_norm"])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument(
        "--kill", type=int, nargs="?", const=0, metavar="N", help="a further run, on N GPUs, with kills"
    )
    parser.add_argument(
        "--then-kill", type=float, default=0.0, metavar="S", help="the last run goes on S s, with kills"
    )
    parser.add_argument("--rng-seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], help="a.b=c, passed on to the run")
    parser.add_argument("--out", type=Path, default=Path("gpus.jsonl"))
    parser.add_argument("--table", type=Path, metavar="FILE", help="print the table of a file, and do nothing")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    parser = _arguments()
    options = parser.parse_args(arguments)
    if options.table is not None:
        print(table(read_lines(options.table)))
        return
    _complete(parser, options)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    lines: list[dict[str, Any]] = []
    for plan in plans_of(options):
        name = f"{options.out.stem}-{plan.n_gpus}-{options.first_core}-so-far.json"
        trial = Trial(plan, options, options.out.with_name(name))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_, trial=trial: trial.stop())
        lines.append(trial.run())
        with options.out.open("a") as out:
            out.write(json.dumps(lines[-1], default=float) + "\n")
        trial.forget()
        print(table(lines[-1:]), flush=True)
        if lines[-1].get("is_cut_off"):
            break
    sys.exit(0 if lines and all(_is_well(line) for line in lines) else 1)


def _is_well(line: dict[str, Any]) -> bool:
    """Whether a run ended as it should, and all that it acknowledged is there once."""
    archive = line.get("archive", {})
    is_whole = line["status"] == 0 and not line.get("is_cut_off")
    return is_whole and not any(archive.get(name, 1) for name in ("lost", "twice"))


if __name__ == "__main__":
    main()
