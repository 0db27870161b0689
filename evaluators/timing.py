"""How long a program takes: one way for candidates and baselines alike. Runs in the process that owns the program.

Device latency comes from a CUDA graph whose launches rotate over input sets that together exceed the L2 cache, so that
every launch finds a cold cache and no launch waits for the host. A program that cannot be captured (it synchronises, or
its host code reads results) is timed by events with a flush of the cache before each; a pair is always timed
by one method. Call latency is what a caller waits: host code included, by the host's clock.
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
KEEP_OUTPUT_BYTES = 1 << 30  # outputs of all launches are kept, and so rotate too, while they fit in this
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


def rotate_inputs(inputs: Sequence[Any], n_sets: int) -> list[list[Any]]:
    """`n_sets` copies of the inputs, each in memory of its own.

    Copy k is rolled by k along the first dimension, so that no two hold the same data in the same place and rows stay
    whole. Values that are no tensors are repeated.
    """
    return [[_rolled(value, k) for value in inputs] for k in range(n_sets)]


def _rolled(value: Any, k: int) -> Any:
    if not isinstance(value, Tensor):
        return value
    copy = torch.empty_like(value)
    roll_into(copy, value, k)
    return copy


def roll_into(target: Tensor, value: Tensor, k: int) -> None:
    """Copies a tensor into another of its shape, rolled by `k` along the first dimension."""
    shift = k % value.shape[0] if value.dim() and value.shape[0] else 0
    if shift == 0:
        target.copy_(value)
        return
    target[shift:].copy_(value[:-shift])
    target[:shift].copy_(value[-shift:])


class Timer(Protocol):
    """One method of measuring device latency."""

    method: Method
    n_launches: int

    def replay_us(self, n: int) -> list[float]:
        """`n` measurements of the time of one launch, in microseconds."""

    def sustain(self, n: int) -> float:
        """The time of `n` replays without a pause between them, by the device's clock, in seconds."""

    def outputs(self) -> list[Tensor]:
        """Outputs of the launch on the watched input set, computed anew from what its inputs hold now."""


class GraphTimer:
    """Launches over rotating input sets in one CUDA graph, captured on the current stream (not the default one).

    Raises whatever the program raises when it is captured; see `open_timer`.
    """

    method: Method = "graph"

    def __init__(self, program: Program, sets: Sequence[Sequence[Any]], rotation: Rotation, watched: int) -> None:
        self.n_launches = rotation.n_launches
        self._graph = torch.cuda.CUDAGraph()
        self._kept: list[Any] = []
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
                    if i == watched:
                        self._watched = output
                    elif rotation.keeps_outputs:
                        self._kept.append(output)
                    del output
            finally:
                self._graph.capture_end()

    def replay_us(self, n: int) -> list[float]:
        return [1e6 * seconds / self.n_launches for seconds in _timed_each(self._graph.replay, n)]

    def sustain(self, n: int) -> float:
        return _timed_all(self._graph.replay, n)

    def outputs(self) -> list[Tensor]:
        self._graph.replay()
        return flatten_outputs(self._watched)


class EventTimer:
    """One launch at a time between two events, the L2 flushed before each."""

    method: Method = "events"
    n_launches = 1

    def __init__(self, program: Program, sets: Sequence[Sequence[Any]], l2_bytes: int, watched: int) -> None:
        self._program = program
        self._sets = sets
        self._watched = watched % len(sets)
        self._next = 0
        self._flush = torch.empty(max(2 * l2_bytes, 1), dtype=torch.uint8, device="cuda")
        program(*sets[0])
        torch.cuda.synchronize()

    def replay_us(self, n: int) -> list[float]:
        return [1e6 * seconds for seconds in _timed_each(self._call, n, self._flush.zero_)]

    def sustain(self, n: int) -> float:
        return _timed_all(self._call, n)

    def outputs(self) -> list[Tensor]:
        return flatten_outputs(self._program(*self._sets[self._watched]))

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
        watched: index of the launch whose outputs can be asked for later.
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
    return EventTimer(program, sets, l2_bytes, watched % rotation.n_launches), why


def fresh_us(timer: Timer, sets: Sequence[Sequence[Any]], fresh: Sequence[Any], watched_set: int, shift: int) -> float:
    """Time of one launch, in microseconds, on inputs that no set held before. The watched set ends with `fresh` as it
    is, the others with `fresh` rolled by other amounts for every `shift`.

    For one replay before, all sets hold `fresh` rolled further: what a program keeps of an earlier look is gone then.
    """
    us = 0.0
    for further in (len(sets) + 1, 0):
        for k, own in enumerate(sets):
            k_shift = 0 if k == watched_set and not further else k + shift + further
            for mine, theirs in zip(own, fresh, strict=True):
                if isinstance(mine, Tensor):
                    roll_into(mine, theirs, k_shift)
        us = timer.replay_us(1)[0]
    return us


def call_us(program: Program, sets: Sequence[Sequence[Any]], n_calls: int, n_repeats: int) -> list[float]:
    """Microseconds of one call by the host's clock: `n_calls` calls over the sets in turn, then one synchronisation."""
    found = []
    torch.cuda.synchronize()
    for _ in range(n_repeats):
        start = time.perf_counter()
        for i in range(n_calls):
            program(*sets[i % len(sets)])
        torch.cuda.synchronize()
        found.append(1e6 * (time.perf_counter() - start) / n_calls)
    return found


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
