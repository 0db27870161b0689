"""Several modules at once on the GPUs of this machine: each in a process of its own that sees its GPUs alone.

A process has a Ray and an archive of its own, because an archive has one writer. When all are done, what their archives
hold goes into the one that was asked for.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from db.archive import ProgramArchive
from evolve.config import RunConfig
from evolve.models.bench import failed_row, knowing, known_row
from evolve.models.merging import merge_archives
from evolve.models.places import place_of, places_named
from evolve.models.rows import BenchRow

POLL_S = 0.2
OWNER_ENDS_S = 30.0  # for a process whose sitting was killed: it was interrupted, and ends in order
ARCHIVE = "archive.duckdb"  # of one process, in the folder of its module, until it was merged
CONFIG, LOG = "config.yaml", "run.log"
INTERRUPTED = 130  # the exit status of a command that was interrupted
OUR_FAULT = "this is a fault of evolve"  # what a command says below a traceback
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_LIBC = ctypes.CDLL(None)
CORES_PER_PREPARER, CORES_PER_ISLAND_PROCESS = 8, 2  # as `ClusterSettings` says of a whole machine


class Seat(NamedTuple):
    """What one process may use."""

    gpus: str  # as CUDA_VISIBLE_DEVICES has them
    n_cores: int


Command = Callable[[Path, Path], list[str]]


def run_command(module: Path, place: Path) -> list[str]:
    """`evolve run` of one module with the configuration that lies in its folder."""
    options = ["--config", str(place / CONFIG), "--parts", "always", "--out", str(place)]
    return [sys.executable, "-P", "-m", "evolve.cli.main", "run", str(module), *options]


def bench_side_by_side(
    modules: Sequence[Path],
    config: RunConfig,
    seats: Sequence[Seat],
    *,
    folder: Path,
    on_row: Callable[[BenchRow], None] = lambda _: None,
    on_begin: Callable[[Path, Seat], None] = lambda *_: None,
    command: Command = run_command,
) -> list[BenchRow]:
    """Runs modules in their order, one on each seat at a time; the rows of those that ended, in order of their end.

    A module whose process fails is a row with its error, and the next one takes the seat. The first Ctrl-C lets every
    process end in order, and none of their modules has a row: they are tried again the next time.

    Args:
        config: of each module's run.
        folder: gets a folder for each module, with its results, its configuration and what it printed.
        command: what is run for a module and its folder; its exit status is that of `evolve`.

    Raises:
        ArchiveError: what was found cannot be merged. It stays in the folders of the modules, for the next time.
    """
    sitting = _Sitting(list(modules), config, folder, command)
    with _interruptions() as interruptions:
        while sitting.is_busy:
            sitting.heed(len(interruptions))
            for module, seat in sitting.begin(seats):
                on_begin(module, seat)
            for row in sitting.ended():
                on_row(row)
            time.sleep(POLL_S if sitting.is_busy else 0.0)
    gather(folder, modules, Path(config.archive))
    return sitting.rows


class _Running(NamedTuple):
    module: Path
    place: Path
    process: subprocess.Popen[bytes]


class _Sitting:
    """Who waits, who runs on which seat, and what became of the others."""

    def __init__(self, modules: list[Path], config: RunConfig, folder: Path, command: Command) -> None:
        self.rows: list[BenchRow] = []
        self._waiting = modules
        self._running: dict[Seat, _Running] = {}
        self._config = config
        self._folder = folder
        self._command = command
        self._n_heeded = 0

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting or self._running)

    def heed(self, n_interruptions: int) -> None:
        """Passes interruptions on, and begins nothing after the first."""
        if n_interruptions > self._n_heeded:
            self._n_heeded = n_interruptions
            self._waiting.clear()
            for running in self._running.values():
                running.process.send_signal(signal.SIGINT)

    def begin(self, seats: Sequence[Seat]) -> Iterator[tuple[Path, Seat]]:
        """Starts whoever waits on the seats that are free."""
        for seat in seats:
            if seat not in self._running and self._waiting:
                module = self._waiting.pop(0)
                self._running[seat] = self._start(module, seat)
                yield module, seat

    def ended(self) -> Iterator[BenchRow]:
        """The rows of those that have ended since the last time."""
        for seat, running in list(self._running.items()):
            code = running.process.poll()
            if code is None:
                continue
            del self._running[seat]
            row = _row_of(running, code, self._config)
            if code == 0 or not (code == INTERRUPTED or self._n_heeded):  # those others are tried again
                self.rows.append(row)
                yield row

    def _start(self, module: Path, seat: Seat) -> _Running:
        place = place_of(module, self._folder, self._config.shapes)
        place.mkdir(parents=True, exist_ok=True)
        own = _own_config(self._config, place, seat)
        (place / CONFIG).write_text(json.dumps(own.model_dump(mode="json"), indent=2) + "\n")  # JSON is YAML
        path = os.pathsep.join(p for p in (os.environ.get("PYTHONPATH", ""), str(Path(__file__).parents[2])) if p)
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": seat.gpus, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
        with (place / LOG).open("wb") as log:
            process = subprocess.Popen(
                self._command(module, place),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=_end_with_parent,
                start_new_session=True,  # a Ctrl-C of the terminal reaches this process alone, which passes it on once
            )
        return _Running(module, place, process)


def _end_with_parent() -> None:
    """In the new process: an interrupt when whoever started it is killed, so that nobody holds a GPU for nobody."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


def _own_config(config: RunConfig, place: Path, seat: Seat) -> RunConfig:
    """A module's: an archive of its own that starts from what the common one knew, its share of the cores, and no more
    evaluators than it has GPUs."""
    wanted = config.cluster
    share = {
        "n_evaluators": min(wanted.n_evaluators, len(seat.gpus.split(","))),
        "n_preparers": wanted.n_preparers or max(1, seat.n_cores // CORES_PER_PREPARER),
        "n_island_processes": wanted.n_island_processes or max(1, seat.n_cores // CORES_PER_ISLAND_PROCESS),
    }
    own = {"archive": str((place / ARCHIVE).resolve()), "cluster": wanted.model_copy(update=share)}
    return knowing(config).model_copy(update=own)


def _row_of(running: _Running, code: int, config: RunConfig) -> BenchRow:
    row = known_row(running.module, running.place) if code == 0 else None
    if row is not None:
        return row.model_copy(update={"is_known": False})
    return failed_row(running.module, config, _why(running.place / LOG, code))


def _why(log: Path, code: int) -> str:
    """What a command said last that is an error, else its last line."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(OUR_FAULT)]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    how = f"killed by signal {-code}" if code < 0 else f"its process ended with {code}"
    said = errors[-1] if errors else f"{how}: {lines[-1]}" if lines else how
    return " ".join(said.split())


def gather(folder: Path, modules: Sequence[Path], archive: Path) -> None:
    """Puts what the processes found into one archive, also what an earlier sitting left that was killed before it did.
    Weights of parts stay where problems name them.

    Raises:
        ArchiveError: one cannot be merged, or a process of an earlier sitting still writes it.
    """
    places = [place for module in modules for place in places_named(module.stem, folder)]
    sources = [source for place in places if (source := place / ARCHIVE).exists()]
    for source in sources:
        ProgramArchive.open(source, wait_s=OWNER_ENDS_S).close()  # takes in what a killed owner left beside the file
    if sources:
        merge_archives(sources, archive)
    for source in sources:
        source.unlink()


@contextmanager
def _interruptions() -> Iterator[list[int]]:
    """Inside, Ctrl-C and SIGTERM are counted. In another thread than the main one nobody can interrupt."""
    counted: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield counted
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, _: counted.append(number)) for number in numbers]
    try:
        yield counted
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
