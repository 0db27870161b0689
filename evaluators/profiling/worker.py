"""The process under ncu: `python -P -m evaluators.profiling.worker`, in the workspace of its job.

Loads and compiles every program without a launch, waits until it may use the GPU, then runs each once to warm up and
once between cudaProfilerStart and cudaProfilerStop, in a range of NVTX that is named after it. Programs are code of
candidates that passed the gates: one that raises is left out; one that ends the process is seen from `progress` by
whoever started it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from db.records import PrecisionClass
from evaluators.cuda_session import compile_only
from evaluators.device_memory import SharedRegion, place_value
from evaluators.precision import apply_precision
from evaluators.profiling import progress
from evaluators.profiling.ranges import range_name
from evaluators.sandbox.candidate import build, load_candidate

Program = Callable[..., Any]
PATIENCE_S = 3600.0  # for the GPU's lock; the deadline of the job ends it sooner
MOST_OPEN_RANGES = 100  # that a program leaves behind


class OutOfTime(Exception):  # noqa: N818  the program's fault, told like any other of its exceptions
    """The program takes longer under the profiler than it may."""


class PutOff(Exception):  # noqa: N818  nobody's fault
    """The time of the batch is used up before the program's own."""


class Worker:
    """The programs of one batch, on one GPU."""

    def __init__(self, folder: Path, batch: dict[str, Any]) -> None:
        apply_precision(PrecisionClass(batch["precision"]))
        torch.cuda.set_device(0)
        self._folder = folder
        self._batch = batch
        self._region = SharedRegion.open(batch["region"]["handle"], batch["region"]["n_bytes"])
        self._inputs = [place_value(self._region, place) for place in batch["inputs"]]
        self._weights = {name: self._region.tensor(place) for name, place in batch["weights"].items()}
        self._programs: dict[int, Program] = {}

    def load(self) -> None:
        """Imports, builds and compiles every program."""
        for index, program in enumerate(self._batch["programs"]):
            with self._noted(index, "load", "loaded"):
                module = load_candidate(program["source"], self._folder / f"program_{index}.py")
                built = build(module, program["entry_point"], self._batch["init_args"], self._weights, "cuda")
                with compile_only():
                    _quietly(built, self._inputs)
                self._programs[index] = built
        torch.cuda.synchronize()

    def measure(self) -> None:
        """Runs programs under the profiler until the time of the batch is used up.

        A fault that poisons the GPU's context ends the process.
        """
        end, own_s = time.monotonic() + self._batch["budget_s"], self._batch["program_s"]
        for n, (index, program) in enumerate(self._programs.items()):
            if (left_s := end - time.monotonic()) <= 0:
                return
            is_its_own = n == 0 or left_s >= own_s
            over = OutOfTime(f"it takes more than {own_s:g} s under the profiler") if is_its_own else PutOff()
            with self._noted(index, "measure", "measured"), _limited(min(left_s, own_s), over):
                program(*self._inputs)
                torch.cuda.synchronize()
                self._measure_one(index, program)
            torch.cuda.synchronize()

    def _measure_one(self, index: int, program: Program) -> None:
        torch.cuda.profiler.start()
        try:
            with _in_range(range_name(self._batch["nonce"], index)):
                program(*self._inputs)
                torch.cuda.synchronize()
        finally:
            torch.cuda.profiler.stop()

    @contextmanager
    def _noted(self, index: int, begin: str, end: str) -> Iterator[None]:
        progress.note(self._folder, index, begin)
        try:
            yield
        except PutOff:
            progress.note(self._folder, index, "put off")
        except Exception as error:  # candidate code: the others of the batch go on
            progress.note(self._folder, index, "failed", f"{type(error).__name__}: {error}")
        else:
            progress.note(self._folder, index, end)


def _quietly(program: Program, inputs: list[Any]) -> None:
    """A dry run. What host code makes of outputs that nobody computed says nothing; the real run decides."""
    try:
        program(*inputs)
    except Exception:  # candidate code
        return


@contextmanager
def _in_range(name: str) -> Iterator[None]:
    """Launches in the body have this range of NVTX; it ends with the body, and so do those that the body left open."""
    depth = torch.cuda.nvtx.range_push(name)
    try:
        yield
    finally:
        for _ in range(MOST_OPEN_RANGES):
            if torch.cuda.nvtx.range_pop() <= depth:  # the level of what it ended, negative where there was nothing
                break


@contextmanager
def _limited(seconds: float, over: Exception) -> Iterator[None]:
    """Raises `over` in the body after so long, at the next step of Python code."""

    def ring(_: int, __: FrameType | None) -> None:
        raise over

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def main() -> None:
    """Serves one batch and ends."""
    folder = Path.cwd()
    worker = Worker(folder, progress.take_batch(folder))
    with torch.no_grad():
        worker.load()
        (folder / progress.READY).write_text(str(os.getpid()))
        if not progress.wait_for(folder / progress.GO, time.monotonic() + PATIENCE_S, lambda: False):
            sys.exit("nobody let it use the GPU")
        worker.measure()
    (folder / progress.DONE).touch()


if __name__ == "__main__":
    main()
