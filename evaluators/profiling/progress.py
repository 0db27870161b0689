"""What the process under ncu and the job that started it tell each other: files in their workspace.

The worker loads its programs and makes the file `ready`, with its process id in it; the job answers with `go` once the
judge holds the GPU's lock; the worker measures and makes `done`. What it does with which program is a line of
`progress`, so that a program that takes the process with it is known by name.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

BATCH = "batch.json"
READY = "ready"
GO = "go"
DONE = "done"
PROGRESS = "progress.jsonl"
POLL_S = 0.005
MAX_PROGRESS_BYTES = 1 << 20
MAX_WORDS = 300


_ENDS = ("measured", "failed", "put off")


class Outcome(NamedTuple):
    """What became of one program in one process."""

    is_measured: bool = False
    error: str = ""
    is_fatal: bool = False  # the process ended in it


def take_batch(folder: Path) -> dict[str, Any]:
    """What the worker is to do. The file is gone then: the names of ranges are no business of a program."""
    path = folder / BATCH
    batch: dict[str, Any] = json.loads(path.read_text())
    path.unlink()
    return batch


def note(folder: Path, index: int, step: str, error: str = "") -> None:
    """Append a line: program `index` begins `load` or `measure`, or has `loaded` or `measured`, or `failed`, or is
    `put off`: the time of the batch was used up, and another process may try it."""
    line = json.dumps({"index": index, "step": step, "error": error[:MAX_WORDS]})
    with open(folder / PROGRESS, "a") as file:
        file.write(line + "\n")


def read_outcomes(text: str, n_programs: int) -> list[Outcome]:
    """What became of each program, from the lines of `progress`. Lines that are none are passed over."""
    steps: list[list[tuple[str, str]]] = [[] for _ in range(n_programs)]
    for line in text.splitlines():
        try:
            entry = json.loads(line)
            index, step, error = int(entry["index"]), str(entry["step"]), str(entry["error"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if 0 <= index < n_programs:
            steps[index].append((step, error))
    return [_outcome(dict(found)) for found in steps]


def _outcome(steps: dict[str, str]) -> Outcome:
    begun = "load" in steps
    ended = not steps.keys().isdisjoint(_ENDS) or ("loaded" in steps and "measure" not in steps)
    return Outcome(
        is_measured="measured" in steps,
        error=steps.get("failed", ""),
        is_fatal=begun and not ended,
    )


def wait_for(path: Path, end: float, is_over: Callable[[], bool]) -> bool:
    """Wait until a file is there; False when `is_over` says so first, or at `end` (of `time.monotonic`)."""
    while not path.exists():
        if is_over() or time.monotonic() > end:
            return path.exists()
        time.sleep(POLL_S)
    return True
