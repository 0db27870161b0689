"""How long a program takes: one way for candidates and baselines alike. Runs in the process that owns the program.

Device latency comes from a CUDA graph whose launches rotate over input sets that together exceed the L2 cache, so that
every launch finds a cold cache and no launch waits for the host. The sets lie in memory that the judge shares, and it
alone writes them: drawings of the problem, new ones whenever it wants to look. A program that cannot be captured (it
synchronises, or its host code reads results) is timed by events with a flush of the cache before each; a pair is always
timed by one method. Call latency is what a caller waits: host code included, by the host's clock.
"""

from __future__ import annotations

import contextlib
import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

MIN_SETS, MAX_SETS = 2, 512
MIN_LAUNCHES = 8
LONG_ENOUGH_US = 1500.0  # launches of one graph need not fill more than this
MIN_LONG_LAUNCHES = 2
# Outputs of all launches are kept, and so rotate too, and the judge may ask for any, while they fit in this.
KEEP_OUTPUT_BYTES = 8 << 30
Method = Literal["graph", "events"]
Program = Callable[..., Any]


class Rotation(NamedTuple):
    """How a program is timed: input sets, launches in one graph, and whether every output gets memory of its own."""

    n_sets: int
    n_launches: int
    keeps_outputs: bool

    def rotated_bytes(self, set_bytes: int) -> int:
        """Bytes touched before a launch meets the same input set again."""
        return self.n_sets * set_bytes

    def comparable(self, method: Method, watched: int) -> list[int]:
        """The launches whose outputs can be asked for after a replay."""
        if method == "events":
            return list(range(self.n_sets))
        return list(range(self.n_launches)) if self.keeps_outputs else [watched % self.n_launches]


def plan_rotation(set_bytes: int, output_bytes: int, l2_bytes: int, dram_gb_s: float) -> Rotation:
    """Sets and launches for a program whose inputs and outputs are `set_bytes`, its outputs `output_bytes` of it.

    Enough sets to exceed the L2 twice, at least 2 and at most 512: however large a set is, the next launch would find
    the end of it in the cache. At least 8 launches, fewer when 8 would take longer than 1.5 ms at DRAM bandwidth.
    """
    n_sets = min(MAX_SETS, max(MIN_SETS, math.ceil(2 * l2_bytes / max(1, set_bytes))))
    least_us = set_bytes / (dram_gb_s * 1e3)
    enough = max(MIN_LONG_LAUNCHES, math.ceil(LONG_ENOUGH_US / max(least_us, 1e-3)))
    n_launches = max(n_sets, min(MIN_LAUNCHES, enough))
    return Rotation(n_sets, n_launches, n_launches * output_bytes <= KEEP_OUTPUT_BYTES)


class Timer(Protocol):
    """One method of measuring device latency."""

    method: Method
    n_launches: int

    def replay_us(self, n: int) -> list[float]:
        """`n` measurements of the time of one launch, in microseconds."""

    def sustain(self, n: int) -> float:
        """The time of `n` replays without a pause between them, by the device's clock, in seconds."""

    def outputs(self, launch: int) -> list[Tensor]:
        """Outputs of one launch of the last replay; of a program timed by events, of another call on the same set."""


class GraphTimer:
    """Launches over rotating input sets in one CUDA graph, captured on the current stream (not the default one).

    Raises whatever the program raises when it is captured; see `open_timer`.
    """

    method: Method = "graph"

    def __init__(self, program: Program, sets: Sequence[Sequence[Any]], rotation: Rotation, watched: int) -> None:
        self.n_launches = rotation.n_launches
        self._graph = torch.cuda.CUDAGraph()
        self._kept: dict[int, Any] = {}
        program(*sets[0])
        torch.cuda.synchronize()
        self._capture(program, sets, rotation, watched % rotation.n_launches)
        self._graph.replay()
        torch.cuda.synchronize()

    def _capture(self, program: Program, sets: Sequence[Sequence[Any]], rotation: Rotation, watched: int) -> None:
        # what the collector frees during a capture would be freed inside the graph's own memory
        with _without_gc():
            self._graph.capture_begin(capture_error_mode="thread_local")
            try:
                for i in range(rotation.n_launches):
                    output = program(*sets[i % rotation.n_sets])
                    if rotation.keeps_outputs or i == watched:
                        self._kept[i] = output
                    del output
            finally:
                self._graph.capture_end()

    def replay_us(self, n: int) -> list[float]:
        return [1e6 * seconds / self.n_launches for seconds in _timed_each(self._graph.replay, n)]

    def sustain(self, n: int) -> float:
        return _timed_all(self._graph.replay, n)

    def outputs(self, launch: int) -> list[Tensor]:
        return flatten_outputs(self._kept[launch])


class EventTimer:
    """One launch at a time between two events, the L2 flushed before each; the first of a request on the first set."""

    method: Method = "events"
    n_launches = 1

    def __init__(self, program: Program, sets: Sequence[Sequence[Any]], l2_bytes: int) -> None:
        self._program = program
        self._sets = sets
        self._next = 0
        self._flush = torch.empty(max(2 * l2_bytes, 1), dtype=torch.uint8, device="cuda")
        program(*sets[0])
        torch.cuda.synchronize()

    def replay_us(self, n: int) -> list[float]:
        self._next = 0
        return [1e6 * seconds for seconds in _timed_each(self._call, n, self._flush.zero_)]

    def sustain(self, n: int) -> float:
        return _timed_all(self._call, n)

    def outputs(self, launch: int) -> list[Tensor]:
        return flatten_outputs(self._program(*self._sets[launch % len(self._sets)]))

    def _call(self) -> None:
        self._program(*self._sets[self._next % len(self._sets)])
        self._next += 1


def open_timer(
    program: Program,
    sets: Sequence[Sequence[Any]],
    rotation: Rotation,
    *,
    l2_bytes: int,
    watched: int,
    method: Method | None = None,
) -> tuple[Timer, str]:
    """A timer for the program, and why it is not the graph (empty if it is).

    Args:
        program: called with the values of one set.
        watched: the launch whose outputs are kept where those of all of them do not fit.
        method: asks for one method; None tries the graph first.
    """
    why = "events were asked for"
    if method != "events":
        try:
            return GraphTimer(program, sets, rotation, watched), ""
        except RuntimeError as error:
            _free_generator()
            if method == "graph" or isinstance(error, torch.OutOfMemoryError):
                raise
            why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        torch.cuda.synchronize()
    return EventTimer(program, sets, l2_bytes), why


def call_us(
    program: Program, sets: Sequence[Sequence[Any]], n_calls: int, n_repeats: int, kept: int | None = None
) -> tuple[list[float], Any]:
    """Microseconds of one call by the host's clock: `n_calls` calls over the sets in turn, then one synchronisation of
    the whole device. And what call `kept` of the last repeat returned, if one is asked for."""
    found, output = [], None
    torch.cuda.synchronize()
    for _ in range(n_repeats):
        start = time.perf_counter()
        for i in range(n_calls):
            returned = program(*sets[i % len(sets)])
            if i == kept:
                output = returned
            del returned
        torch.cuda.synchronize()
        found.append(1e6 * (time.perf_counter() - start) / n_calls)
    return found, output


def flatten_outputs(value: Any) -> list[Any]:
    """What a forward returned, as a flat list: tuples and lists opened, None left out."""
    if isinstance(value, tuple | list):
        return [leaf for part in value for leaf in flatten_outputs(part)]
    return [] if value is None else [value]


def _timed_each(work: Callable[[], Any], n: int, before: Callable[[], Any] | None = None) -> list[float]:
    pairs = []
    for _ in range(n):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if before is not None:
            before()
        start.record()
        work()
        end.record()
        pairs.append((start, end))
    torch.cuda.synchronize()
    return [start.elapsed_time(end) / 1e3 for start, end in pairs]


def _timed_all(work: Callable[[], Any], n: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(n):
        work()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def _free_generator() -> None:
    """A capture that failed leaves torch's generator in its hands, and nobody could draw a number; a copy is free."""
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    generator.graphsafe_set_state(generator.clone_state())


@contextlib.contextmanager
def _without_gc() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
