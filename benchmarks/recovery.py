"""`kill -9` of the driver at random moments of a run, and what is left afterwards.

    python benchmarks/recovery.py --kills 20

The driver runs a real search (CPU, modelled latency) and notes every candidate whose verdict is acknowledged in a file
of its own, before it goes on. It is killed with SIGKILL at a random moment; 5 s later no candidate, zygote or worker
of the run may be alive. Then the run is resumed, which has to wait for the archive's lock, and is killed again. At the
end every acknowledged candidate must be in the archive, once. What is still alive 90 s after the last kill is counted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from db.live import open_for_reading

DRIVER = """
import sys
from pathlib import Path
from evolve.config import load_config
from evolve.events import Judged
from evolve.run import resume_search, run_search

archive, notes, mode, seed = sys.argv[1:5]
out = open(notes, "a", buffering=1)

def note(event):
    if isinstance(event, Judged):
        out.write(event.evaluation.candidate.candidate_id + "\\n")

if mode == "resume":
    resume_search(archive, on_event=note)
else:
    options = {"archive": archive, "islands": 2, "evaluations": 100000, "device": "cpu", "rng_seed": int(seed)}
    run_search(load_config("fused_add_rms_norm", options={**options, "stop_when_stagnant": False}), on_event=note)
"""
# two of Ray's own agents end by themselves about a minute after their raylet
RAY_AGENTS = ("DashboardAgent", "RuntimeEnvAgent")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rng-seed", type=int, default=0)
    parser.add_argument("--longest-s", type=float, default=12.0, help="latest moment of a kill after the first verdict")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/recovery.json"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = torture(Path(folder), arguments.kills, random.Random(arguments.rng_seed), arguments.longest_s)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


def torture(folder: Path, n_kills: int, rng: random.Random, longest_s: float) -> dict[str, object]:
    """Kill and resume; counts of what was lost, doubled and left alive."""
    archive, notes, mark = folder / "killed.duckdb", folder / "acknowledged.txt", f"{os.getpid()}-{rng.random()}"
    alive_after_5s: list[int] = []
    resume_s: list[float] = []
    for kill in range(n_kills):
        n_before = _n_lines(notes)
        began = time.monotonic()
        driver = _start(archive, notes, "resume" if kill else "run", mark)
        _wait_for_verdict(driver, notes, n_before)
        resume_s.append(round(time.monotonic() - began, 2))
        time.sleep(rng.uniform(0.0, longest_s))
        driver.kill()
        driver.wait()
        time.sleep(5)
        left = alive(mark)
        alive_after_5s.append(len([name for name in left if not any(agent in name for agent in RAY_AGENTS)]))
        print(f"kill {kill + 1}: {_n_lines(notes)} acknowledged, alive after 5 s: {sorted(left)}", flush=True)
    time.sleep(85)
    ids = _stored_ids(archive)
    acknowledged = set(notes.read_text().split())
    return {
        "kills": n_kills,
        "acknowledged": len(acknowledged),
        "stored": len(ids),
        "lost": len(acknowledged - set(ids)),
        "twice": sum(n > 1 for n in Counter(ids).values()),
        "alive_after_5s": alive_after_5s,
        "alive_after_90s": len(alive(mark)),
        "seconds_to_first_verdict": resume_s,
    }


def alive(mark: str) -> list[str]:
    """Command lines of all processes that the driver started, directly or not, by the mark in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                if command and mark.encode() in (entry / "environ").read_bytes():
                    found.append(command[:80])
    return found


def _start(archive: Path, notes: Path, mode: str, mark: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", DRIVER, str(archive), str(notes), mode, "0"]
    # the sandbox gives its processes few variables; where to import from is one of them
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), f"/nowhere/{mark}"])}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _wait_for_verdict(driver: subprocess.Popen[bytes], notes: Path, n_before: int, deadline_s: float = 240) -> None:
    end = time.monotonic() + deadline_s
    while _n_lines(notes) <= n_before:
        if driver.poll() is not None:
            raise SystemExit(f"the driver ended by itself: {driver.stderr.read().decode()[-2000:]}")  # type: ignore[union-attr]
        if time.monotonic() > end:
            driver.send_signal(signal.SIGKILL)
            raise SystemExit("no verdict in time")
        time.sleep(0.2)


def _n_lines(notes: Path) -> int:
    return notes.read_text().count("\n") if notes.exists() else 0


def _stored_ids(archive: Path) -> list[str]:
    with contextlib.closing(open_for_reading(archive, wait_s=90)) as reader:
        return [str(row[0]) for row in reader.query("SELECT candidate_id FROM evaluations").rows]


if __name__ == "__main__":
    main()
