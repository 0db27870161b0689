"""The job that a sandbox's child runs: ncu around the worker, then both pages of its report for the judge.

Messages to the judge, in order: `ready` (the judge answers `go` when it holds the GPU's lock), `measured` (the lock is
of no use any more), and always `report` as the last: the pages, what became of each program, what was printed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from evaluators.profiling import progress
from evaluators.profiling.ncu import REPORT, import_command, profile_command
from evaluators.sandbox.channel import Channel

WORKER = "evaluators.profiling.worker"
KEPT_OUTPUT_BYTES = 16 * 1024
MAX_PAGE_BYTES = 24 * 1024 * 1024  # both have to fit into one message
PAGES = ("details", "raw")
OUTPUT = "ncu.log"


def run_ncu(channel: Channel, payload: dict[str, Any]) -> None:
    """Profiles the programs of `payload["batch"]` with `payload["ncu"]`. Deadlines in seconds, each for one step."""
    folder = Path.cwd()
    (folder / progress.BATCH).write_text(json.dumps(payload["batch"]))
    command = profile_command(payload["ncu"], [sys.executable, "-P", "-m", payload.get("worker", WORKER)])
    with open(folder / OUTPUT, "wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    if _wait(process, folder / progress.READY, payload["load_s"]):
        channel.send({"stage": "ready"})
        channel.receive()
        (folder / progress.GO).touch()
        if not _wait(process, folder / progress.DONE, payload["measure_s"]):
            _stop_worker(folder / progress.READY)
    channel.send({"stage": "measured"})
    is_late = _end(process, payload["write_s"])
    channel.send({"stage": "report", "is_late": is_late, **_report(folder, payload["ncu"], payload["write_s"])})


def _wait(process: subprocess.Popen[bytes], path: Path, seconds: float) -> bool:
    return progress.wait_for(path, time.monotonic() + seconds, lambda: process.poll() is not None)


def _stop_worker(pid_file: Path) -> None:
    """Kill the worker, so that nobody uses the GPU when its lock is given back; ncu writes what it has until then."""
    with contextlib.suppress(OSError, ValueError):
        os.kill(int(pid_file.read_text()), signal.SIGKILL)


def _end(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for ncu to write its report; whether it had to be killed."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True
    return False


def _report(folder: Path, ncu: str, seconds: float) -> dict[str, Any]:
    pages = _import(ncu, seconds) if (folder / REPORT).exists() else ["", ""]
    return {
        "pages": pages,
        "progress": _tail(folder / progress.PROGRESS, progress.MAX_PROGRESS_BYTES),
        "output": _tail(folder / OUTPUT, KEPT_OUTPUT_BYTES),
    }


def _import(ncu: str, seconds: float) -> list[str]:
    """Both pages of the report, printed side by side; a page that is too long or late is empty."""
    with contextlib.ExitStack() as files:
        outputs = [files.enter_context(open(page, "wb")) for page in PAGES]
        importing = [
            subprocess.Popen(import_command(ncu, page), stdin=subprocess.DEVNULL, stdout=output)
            for page, output in zip(PAGES, outputs, strict=True)
        ]
        late = [_end(process, seconds) for process in importing]
    return ["" if is_late else _read_page(Path(page)) for page, is_late in zip(PAGES, late, strict=True)]


def _read_page(path: Path) -> str:
    return path.read_text(errors="replace") if path.stat().st_size <= MAX_PAGE_BYTES else ""


def _tail(path: Path, n_bytes: int) -> str:
    if not path.exists():
        return ""
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - n_bytes))
        return file.read(n_bytes).decode(errors="replace")
