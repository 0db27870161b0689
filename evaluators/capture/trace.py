"""Sandbox job: run a candidate's `forward` on fake tensors and trace a few programs of each launch.

Runs in a process that has TRITON_INTERPRET=1 since before Triton was imported.
"""

from __future__ import annotations

import ast
import importlib
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import triton
import triton.language as tl
from triton.runtime import autotuner, interpreter

from db.records import Hardware
from evaluators.capture import job
from evaluators.capture.failure import explain
from evaluators.capture.fake_device import fake_device
from evaluators.capture.job import build_on_fakes, run_first_configuration
from evaluators.capture.launches import Launched, answering_nothing, bind_arguments, evaluate_grid, launched
from evaluators.capture.sectors import Sectors, StorageUse
from evaluators.capture.target_driver import TargetDriver
from evaluators.capture.tensors import AddressSpace
from evaluators.capture.torch_ops import OpRecorder
from evaluators.capture.tracer import (
    DEFAULT_WARPS,
    INNER_ITERATIONS,
    OUTER_ITERATIONS,
    ProgramCounts,
    Tracer,
    TraceTimeout,
    range_of_kernel,
    semantic_of,
    static_range_of_kernel,
)
from evaluators.capture.traffic import LaunchTrace, Reread, TensorTraffic
from evaluators.interpreter import shims
from evaluators.sandbox.channel import Channel

N_SPREAD = 4  # programs spread over the grid, traced in full
N_MATES = 4  # programs of one wave, to see what they share
N_MORE_MATES = 12  # more of them, where a tensor is read far more often than it is long
REREAD_OFTEN = 3.0
SECONDS_PER_LAUNCH = 1.5  # of this process: what else the machine does must not make a trace shorter
MATES_SEED = 0


def trace(channel: Channel, payload: dict[str, Any]) -> None:
    """Sends {"traces": [LaunchTrace]} or {"failed": reason, "is_unsupported": True}. The payload is that of capture."""
    try:
        traces = run_traced(payload)
        reply: dict[str, Any] = {"traces": [t.model_dump(mode="json") for t in traces]}
    except Exception as error:  # the boundary to candidate code
        reply = {**explain(error, payload["source"]), "is_unsupported": True}
    channel.send(reply)


def run_traced(payload: Mapping[str, Any]) -> list[LaunchTrace]:
    """The traces of one forward, one for each launch. Raises what the candidate raises."""
    hardware = Hardware.model_validate(payload["hardware"])
    addresses = AddressSpace()
    triton.runtime.driver.set_active(TargetDriver(hardware))
    shims.apply()
    with fake_device(hardware, addresses), Tracer.installed() as tracer:
        recorder = TraceRecorder(tracer, addresses, window=2 * hardware.n_sms)
        return _traces_of(payload, recorder, addresses)


def _traces_of(payload: Mapping[str, Any], recorder: TraceRecorder, addresses: AddressSpace) -> list[LaunchTrace]:
    with recorder.in_place_of_launches():
        forward, inputs = build_on_fakes(payload, addresses)
        with OpRecorder(addresses, lambda: len(recorder.traces)):
            forward(*inputs)
    return recorder.traces


class LoopRewriter(interpreter.ASTTransformer):  # type: ignore[misc]
    """Sends the loops of a kernel through the tracer. The names it uses are put beside those of the interpreter."""

    def visit_For(self, node: Any) -> Any:  # noqa: N802  as ast.NodeTransformer names it
        super().visit_For(node)
        node.iter = _call("traced_iterations", node.iter)
        return node

    def visit_While(self, node: Any) -> list[Any]:  # noqa: N802
        self.generic_visit(node)
        counter = f"traced_count_{node.lineno}_{node.col_offset}"
        node.test = _call("traced_repeats", node.test, ast.Name(counter, ast.Load()))
        start = ast.Assign([ast.Name(counter, ast.Store())], ast.List([ast.Constant(0)], ast.Load()))
        return [start, node]


def _call(name: str, *arguments: Any) -> Any:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


class Sampled(NamedTuple):
    """A traced program of the grid, by its linear number."""

    number: int
    counts: ProgramCounts


class TraceRecorder:
    """Takes the place of interpreted launches. `window` is how many programs run at about the same time."""

    def __init__(self, tracer: Tracer, addresses: AddressSpace, window: int) -> None:
        self.traces: list[LaunchTrace] = []
        self._tracer = tracer
        self._addresses = addresses
        self._window = window

    @contextmanager
    def in_place_of_launches(self) -> Iterator[None]:
        """Launches inside are traced; an autotuner takes its first configuration."""
        tracer = self._tracer
        replaced = {
            "traced_iterations": tracer.iterate,
            "traced_repeats": tracer.repeats,
            "_patch_reduce_scan": partial(_patch_language, tracer),
        }
        with ExitStack() as stack:
            stack.enter_context(answering_nothing())
            for name, value in replaced.items():
                stack.enter_context(patch.object(interpreter, name, value, create=True))
            stack.enter_context(patch.object(interpreter.FunctionRewriter, "ast_transformer", LoopRewriter()))
            run = lambda fn, *a, **k: self.launch(fn, a, k)  # noqa: E731
            stack.enter_context(patch.object(interpreter.InterpretedFunction, "run", run))
            stack.enter_context(patch.object(autotuner.Autotuner, "run", run_first_configuration))
            for module, name, function in _libdevice_functions(semantic_of(tracer)):
                stack.enter_context(patch.object(module, name, function))
            yield

    def launch(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Traces one launch and adds it to `traces`."""
        grid, is_warmup = kwargs.pop("grid"), kwargs.pop("warmup", False)
        if is_warmup:
            return
        arguments = bind_arguments(function.fn, args, kwargs)
        sizes = evaluate_grid(function.fn.__name__, grid, arguments)
        if 0 in sizes:
            return
        self._tracer.n_warps = int(kwargs.get("num_warps", DEFAULT_WARPS))
        run = _Runner(self._tracer, function, arguments, sizes)
        spread, mates = self._sample(run)
        seen = launched(function, arguments, sizes)
        self.traces.append(self._trace_of(seen, spread, mates, is_timed_out=run.is_timed_out))

    def _sample(self, run: _Runner) -> tuple[list[Sampled], list[Sampled]]:
        total = run.n_programs
        n_spread = min(N_SPREAD, total)
        middles = [(2 * i + 1) * total // (2 * n_spread) for i in range(n_spread)]  # of equal parts of the grid
        spread = run.programs(middles, (OUTER_ITERATIONS, INNER_ITERATIONS))
        rng = random.Random(MATES_SEED)
        window = min(total, self._window)
        start = (total - window) // 2
        n_mates = min(N_MATES + N_MORE_MATES, window)
        chosen = [start + i for i in rng.sample(range(window), n_mates)]
        mates = run.programs(chosen[:N_MATES], (1, 1))
        if self._is_shared(spread, total):
            mates += run.programs(chosen[N_MATES:], (1, 1))
        return spread, mates

    def _is_shared(self, spread: list[Sampled], n_programs: int) -> bool:
        """Do all programs together read some tensor far more often than it is long?"""
        uses = spread[0].counts.memory.storages
        sizes = {storage: self._storage_bytes(storage) for storage in uses}
        return any(u.first_read_bytes * n_programs > REREAD_OFTEN * sizes[s] for s, u in uses.items())

    def _storage_bytes(self, storage: int) -> int:
        known = 0 <= storage < self._addresses.n_storages
        return self._addresses.storage_bytes(storage) if known else 0

    def _trace_of(
        self,
        seen: Launched,
        spread: list[Sampled],
        mates: list[Sampled],
        *,
        is_timed_out: bool,
    ) -> LaunchTrace:
        counts = [s.counts for s in spread]
        work = [c.moved_bytes + c.plain_ops + sum(c.dot_flops.values()) for c in counts]
        kinds = {kind for c in counts for kind in c.dot_flops}
        storages = sorted({s for c in counts for s in c.memory.storages if 0 <= s < self._addresses.n_storages})
        return LaunchTrace(
            kernel=seen.kernel,
            grid=seen.grid,
            constexprs=seen.constexprs,
            arguments=seen.arguments,
            n_sampled=len(spread) + len(mates),
            load_bytes=_mean([c.load_bytes for c in counts]),
            store_bytes=_mean([c.store_bytes for c in counts]),
            load_sector_bytes=_mean([c.load_sector_bytes for c in counts]),
            store_sector_bytes=_mean([c.store_sector_bytes for c in counts]),
            plain_ops=_mean([c.plain_ops for c in counts]),
            sfu_ops=_mean([c.sfu_ops for c in counts]),
            dot_flops={kind: _mean([c.dot_flops.get(kind, 0.0) for c in counts]) for kind in sorted(kinds)},
            n_segments=_mean([c.n_segments for c in counts]),
            load_block_bytes=_mean([c.load_block_bytes for c in counts]),
            store_block_bytes=_mean([c.store_block_bytes for c in counts]),
            n_rounds=_mean([c.n_rounds for c in counts]),
            n_iterations=_mean([sum(c.iterations_of.values()) for c in counts]),
            n_repeats=_mean([max(c.iterations_of.values(), default=1.0) for c in counts]),
            n_syncs=_mean([c.n_syncs for c in counts]),
            n_barriers=_mean([c.n_barriers for c in counts]),
            sync_instructions=_mean([c.sync_instructions for c in counts]),
            sync_turns=_mean([c.sync_turns for c in counts]),
            imbalance=max(work) / max(_mean(work), 1.0) if max(work) else 1.0,
            is_bounded=is_timed_out or any(c.is_bounded for c in counts),
            tensors=tuple(self._tensor_of(storage, counts, mates) for storage in storages),
        )

    def _tensor_of(self, storage: int, counts: list[ProgramCounts], mates: list[Sampled]) -> TensorTraffic:
        uses = [c.memory.storages.get(storage, StorageUse()) for c in counts]
        distances = sorted({d for use in uses for d in use.rereads})
        return TensorTraffic(
            name=self._addresses.storage_name(storage),
            storage_bytes=self._addresses.storage_bytes(storage),
            first_read_bytes=_mean([u.first_read_bytes for u in uses]),
            written_bytes=_mean([u.written_bytes for u in uses]),
            rereads=tuple(
                Reread(n_bytes=_mean([u.rereads.get(d, 0.0) for u in uses]), distance_bytes=d) for d in distances
            ),
            overlap=_overlap([_sectors(m.counts, storage) for m in mates]),
            is_same_everywhere=_are_equal([_all_sectors(u) for u in uses]),
        )


class _Runner:
    """Runs programs of one launch under the tracer."""

    def __init__(self, tracer: Tracer, function: Any, arguments: Mapping[str, Any], grid: tuple[int, int, int]) -> None:
        self._tracer = tracer
        self._function = function
        self._grid = grid
        executor = interpreter.GridExecutor(function.rewrite(), function.arg_names, grid)
        self._constexprs = set(executor.constexprs)
        self._arguments = arguments
        self.n_programs = grid[0] * grid[1] * grid[2]
        self.is_timed_out = False
        tracer.deadline = time.process_time() + SECONDS_PER_LAUNCH

    def programs(self, indices: list[int], max_iterations: tuple[int, int]) -> list[Sampled]:
        """The traced programs, in this order; fewer when time runs out, but at least the first."""
        tracer, scope = self._tracer, interpreter._patch_lang(self._function.fn)
        tracer.max_iterations = max_iterations
        sampled: list[Sampled] = []
        try:
            bound = {
                k: v if k in self._constexprs else interpreter._implicit_cvt(v) for k, v in self._arguments.items()
            }
            tracer.set_grid_dim(*self._grid)
            for index in indices:
                if self.is_timed_out and sampled:
                    break
                tracer.set_grid_idx(*self._coordinates(index))
                sampled.append(Sampled(index, tracer.begin()))
                self._run(bound)
        finally:
            scope.restore()
        return sampled

    def _run(self, bound: Mapping[str, Any]) -> None:
        try:
            self._function.rewrite()(**bound)
        except TraceTimeout:
            self.is_timed_out = True

    def _coordinates(self, index: int) -> tuple[int, int, int]:
        """Programs start with the first axis running fastest."""
        nx, ny, _ = self._grid
        return index % nx, index // nx % ny, index // (nx * ny)


def _patch_language(tracer: Tracer, scope: Any) -> None:
    for module in (tl, tl.core):
        scope.set_attr(module, "reduce", tracer.reduce)
        scope.set_attr(module, "associative_scan", tracer.scan)
        scope.set_attr(module, "range", range_of_kernel)
        scope.set_attr(module, "static_range", static_range_of_kernel)


def _libdevice_functions(semantic: Any) -> list[tuple[Any, str, Any]]:
    """The functions of libdevice, which the interpreter lacks, by way of the tracer; as (module, name, function)."""
    compiled = importlib.import_module("triton.language.extra.cuda.libdevice")
    generic = importlib.import_module("triton.language.extra.libdevice")
    names = [name for name, member in _EXTERN_MEMBERS.items() if member is not None]
    return [
        (module, name, partial(_EXTERN_MEMBERS[name], _semantic=semantic))
        for name in names
        for module in (compiled, generic)
        if hasattr(module, name)
    ]


def _extern_members() -> dict[str, Any]:
    """libdevice as it is before any shim replaces its functions."""
    compiled = importlib.import_module("triton.language.extra.cuda.libdevice")
    return {name: member for name, member in vars(compiled).items() if tl.core.is_builtin(member)}


_EXTERN_MEMBERS = _extern_members()


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _all_sectors(use: StorageUse) -> Sectors:
    return np.unique(np.concatenate(use.sectors)) if use.sectors else np.zeros(0, dtype=np.uint64)


def _sectors(counts: ProgramCounts, storage: int) -> Sectors:
    return _all_sectors(counts.memory.storages.get(storage, StorageUse()))


def _are_equal(sets: list[Sectors]) -> bool:
    return len(sets) > 1 and all(np.array_equal(s, sets[0]) for s in sets)


def _overlap(sets: list[Sectors]) -> float:
    """The mean share of one program's sectors that another touches too."""
    pairs = [(a, b) for a, b in combinations(sets, 2) if a.size and b.size]
    if not pairs:
        return 0.0
    shares = [np.intersect1d(a, b, assume_unique=True).size / max(a.size, b.size) for a, b in pairs]
    return float(np.mean(shares))


def warm_up() -> None:
    """For a zygote, before its first fork: the imports and first steps that every trace would pay for."""
    job.warm_up()
