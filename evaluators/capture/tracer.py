"""An interpreter of Triton kernels that follows addresses and counts work, without touching memory.

Integers are computed, because addresses and masks are made of them. Floats are not: a block of floats is one value
seen through a stride of zero, so arithmetic on it costs nothing however large the block is. Loads answer ones.
"""

# ruff: noqa: ARG002  the interpreter prescribes the arguments of its builder

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter

from evaluators.capture import meetings
from evaluators.capture.meetings import WARP_SIZE, Meeting
from evaluators.capture.sectors import LoopFrame, ProgramMemory, SectorTable, n_runs, sectors_of
from evaluators.capture.tensors import STORAGE_SPACING_BITS

TensorHandle = interpreter.TensorHandle

# What an operation takes: special-function operations, and plain ones around them (range reduction, Newton steps).
# Counted in the SASS of kernels that do nothing else (triton 3.7.1, compute capability 9.0). Logarithms and sines are
# polynomials of libdevice, not special functions.
SFU_COST: dict[Any, tuple[int, int]] = {
    np.exp: (1, 4),
    np.exp2: (1, 1),
    np.log: (0, 25),
    np.log2: (0, 27),
    np.sqrt: (1, 1),
    np.sin: (0, 30),
    np.cos: (0, 30),
    np.divide: (1, 7),
    np.fmod: (1, 20),
}
ROUNDED_COST: dict[Any, tuple[int, int]] = {np.divide: (0, 10), np.sqrt: (0, 14)}  # more, when it is to be exact
ERF_COST = (1, 27)
EXTERN_COST = (2, 10)  # tanh and the like of libdevice
ROUNDING = ("rint", "round", "floor", "ceil", "trunc")  # of libdevice: one conversion
WHOLE_DIVISION_OPS = 18  # of integers by a number that is not known when compiling
MASKED_BYTES = 4  # of a load, for each operation to compare its offset and to put zeros where it is masked off
DOT_MULTIPLE = {"TF32x3": ("tf32", 3), "BF16x3": ("bf16", 3), "BF16x6": ("bf16", 6), "IEEE": ("fp32", 1)}

# What an eviction policy does to the distance at which data is still in L2: a modelling choice, see model/traffic.py
RETENTION = {"EVICT_LAST": 2.0, "EVICT_FIRST": 0.5}

OUTER_ITERATIONS = 8  # of a loop that are run, at both of its ends; the rest is extrapolated
INNER_ITERATIONS = 4
DEFAULT_WARPS = 4  # as Triton has it
WHILE_ITERATIONS = 32  # of a loop whose end is not known beforehand; the rest is left out, and the trace says so


class Unrolled(NamedTuple):
    """A loop whose body the compiler repeats `factor` times, so that loads of so many iterations go out together."""

    steps: range
    factor: int


def range_of_kernel(
    arg1: Any, arg2: Any = None, step: Any = None, loop_unroll_factor: Any = None, **_options: Any
) -> range | Unrolled:
    """In place of `tl.range`."""
    steps = range(0, arg1, step or 1) if arg2 is None else range(arg1, arg2, step or 1)
    return Unrolled(steps, int(loop_unroll_factor)) if loop_unroll_factor else steps


def static_range_of_kernel(arg1: Any, arg2: Any = None, step: Any = None) -> Unrolled:
    """In place of `tl.static_range`, which is always unrolled."""
    steps = range(0, arg1, step or 1) if arg2 is None else range(arg1, arg2, step or 1)
    return Unrolled(steps, max(1, len(steps)))


class ProgramCounts:
    """What one program does, weighted by the loop iterations that a traced one stands for."""

    def __init__(self, memory: ProgramMemory) -> None:
        self.memory = memory
        self.load_bytes = 0.0
        self.store_bytes = 0.0
        self.load_sector_bytes = 0.0
        self.store_sector_bytes = 0.0
        self.plain_ops = 0.0
        self.sfu_ops = 0.0
        self.dot_flops: dict[str, float] = {}
        self.n_segments = 0.0
        self.load_block_bytes = 0.0
        self.store_block_bytes = 0.0
        self.n_rounds = 0.0
        self.iterations_of: dict[int, float] = {}  # by the line of the loop
        self.n_syncs = 0.0
        self.n_barriers = 0.0
        self.sync_instructions = 0.0
        self.sync_turns = 0.0
        self.is_bounded = False

    @property
    def moved_bytes(self) -> float:
        return self.load_bytes + self.store_bytes


def is_float(handle: Any) -> bool:
    """Is this a block of floats? bf16 and fp8 are kept as unsigned integers; comparisons of floats give booleans."""
    kind = handle.data.dtype.kind
    return bool(kind == "f" or (kind == "u" and handle.dtype.scalar.is_floating()))


def uniform(value: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """A block whose elements all have the value, in the memory of one."""
    return TensorHandle(np.broadcast_to(value, shape), dtype)


def first(handle: Any) -> Any:
    return handle.data[(0,) * handle.data.ndim]


class Tracer(interpreter.InterpreterBuilder):  # type: ignore[misc]
    """The interpreter's builder while kernels are traced. One program at a time, from one `begin` to the next."""

    @classmethod
    @contextmanager
    def installed(cls) -> Iterator[Tracer]:
        """Turns the interpreter's own builder into a tracer: other parts of the interpreter hold references to it."""
        builder = interpreter.interpreter_builder
        original, builder.__class__ = builder.__class__, cls
        builder.reset()
        try:
            yield builder
        finally:
            builder.__class__ = original

    def reset(self) -> None:
        """Forgets everything; the state of a new tracer."""
        self._touched, self._stored = SectorTable(), SectorTable()
        self.loop = LoopFrame()
        self.counts = ProgramCounts(ProgramMemory(self._touched, self._stored, 0))
        self.max_iterations = (OUTER_ITERATIONS, INNER_ITERATIONS)
        self.n_warps = DEFAULT_WARPS
        self.deadline = float("inf")
        self._round_share = 1.0  # of a round of loads: less in a loop that is unrolled
        self._times = 1.0  # how often an operation inside a reduction is done
        self._is_loading = False

    def begin(self) -> ProgramCounts:
        """Starts a program with clean counts, which the next operations fill."""
        first_touch = self.counts.memory.next_touch
        self.counts = ProgramCounts(ProgramMemory(self._touched, self._stored, first_touch))
        self.loop, self._times, self._round_share, self._is_loading = LoopFrame(), 1.0, 1.0, False
        return self.counts

    # loops -----------------------------------------------------------------------------------------------------------

    def iterate(self, items: Iterable[Any]) -> Iterator[Any]:
        """The first and last iterations of a loop over a range, each standing for its share; other loops whole.

        Both ends, because a second walk often goes backwards, to meet what the first left in a cache.
        """
        n_unrolled, items = (items.factor, items.steps) if isinstance(items, Unrolled) else (1, items)
        if not isinstance(items, range) or not items:
            yield from items
            return
        line = sys._getframe(1).f_lineno  # of the kernel that asks for the next iteration
        total, limit = len(items), self.max_iterations[min(self.loop.depth, len(self.max_iterations) - 1)]
        picked = _both_ends(total, limit)
        outer, self.loop = self.loop, LoopFrame(self.loop, self.loop.depth + 1, self.loop.weight)
        round_share, self._round_share = self._round_share, self._round_share / n_unrolled
        for i in picked:
            share = total if len(picked) == 1 else 1.0 if i == 0 else (total - 1) / (len(picked) - 1)
            self.loop.weight = outer.weight * share
            self.counts.iterations_of[line] = self.counts.iterations_of.get(line, 0.0) + self.loop.weight / n_unrolled
            self._is_loading = False
            self._check_time()
            yield items[i]
        self.loop, self._is_loading, self._round_share = outer, False, round_share

    def repeats(self, condition: Any, seen: list[int]) -> bool:
        """Whether a while loop goes on; `seen` counts its iterations."""
        seen[0] += 1
        self._is_loading = False
        self._check_time()
        if not condition:
            return False
        self.counts.is_bounded |= seen[0] > WHILE_ITERATIONS
        return seen[0] <= WHILE_ITERATIONS

    def _check_time(self) -> None:
        if time.process_time() > self.deadline:
            raise TraceTimeout

    # counting --------------------------------------------------------------------------------------------------------

    def count(self, n_elements: int, cost: tuple[int, int] = (0, 1)) -> None:
        """Notes an operation of (special, plain) cost on each of the elements. Threads without one do it too."""
        weight = max(n_elements * self._times, self.n_warps * WARP_SIZE) * self.loop.weight
        self.counts.sfu_ops += cost[0] * weight
        self.counts.plain_ops += cost[1] * weight

    def meet(self, meeting: Meeting) -> None:
        """The threads of the program exchange values; loads after this wait for memory anew."""
        self.counts.n_syncs += self.loop.weight
        self.counts.n_barriers += self.loop.weight * meeting.is_among_warps
        self.counts.sync_instructions += self.loop.weight * meeting.instructions
        self.counts.sync_turns += self.loop.weight * meeting.turns
        self._is_loading = False

    # memory ----------------------------------------------------------------------------------------------------------

    def create_load(self, ptrs: Any, *policy: Any, **named: Any) -> Any:
        return self._load(ptrs, uniform(np.True_, ptrs.data.shape, tl.int1), *policy, **named)

    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *policy: Any, **named: Any) -> Any:
        self.count(block_bytes(ptrs) // MASKED_BYTES)
        return self._load(ptrs, mask, *policy, **named)

    def _load(self, ptrs: Any, mask: Any, *policy: Any, **named: Any) -> Any:
        retention = retention_of([*policy, *named.values()])
        if not self._is_loading:
            self.counts.n_rounds += self.loop.weight * self._round_share
            self._is_loading = True
        self.counts.load_block_bytes += block_bytes(ptrs) * self.loop.weight
        for storage, sectors, n_bytes in self._accesses(ptrs, mask):
            self.counts.load_bytes += n_bytes * self.loop.weight
            self.counts.n_segments += n_runs(sectors) * self.loop.weight
            self.counts.load_sector_bytes += sectors.size * 32 * self.loop.weight
            self.counts.memory.load(storage, sectors, self.loop, retention)
        dtype = ptrs.get_element_ty()
        return uniform(np.ones((), interpreter._get_np_dtype(dtype)), ptrs.data.shape, dtype)

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *policy: Any, **named: Any) -> None:
        self._is_loading = False
        self.counts.store_block_bytes += block_bytes(ptrs) * self.loop.weight
        for storage, sectors, n_bytes in self._accesses(ptrs, mask):
            self.counts.store_bytes += n_bytes * self.loop.weight
            self.counts.n_segments += n_runs(sectors) * self.loop.weight
            self.counts.store_sector_bytes += sectors.size * 32 * self.loop.weight
            self.counts.memory.store(storage, sectors, self.loop)

    def create_atomic_rmw(self, rmwOp: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        self.create_masked_load(ptr, mask, None)
        self.create_masked_store(ptr, val, mask)
        return val

    def create_atomic_cas(self, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
        """Succeeds at once: nobody else runs."""
        mask = uniform(np.True_, ptr.data.shape, tl.int1)
        return self.create_atomic_rmw(None, ptr, cmp, mask, sem, scope)

    def get_cache_policy(self, cache_modifier: Any, eviction_policy: Any) -> Any:
        """Triton 3.9 asks for one object; loads get it as their policy."""
        return eviction_policy

    def _accesses(self, ptrs: Any, mask: Any) -> Iterator[tuple[int, Any, int]]:
        """(storage, sectors, requested bytes) of an access, one for each storage that it reaches."""
        element_bytes = bytes_of_element(ptrs)
        mask_data = mask if isinstance(mask, np.ndarray) else mask.data
        addresses = np.broadcast_to(ptrs.data, np.broadcast_shapes(ptrs.data.shape, mask_data.shape))
        if not mask_data.all():
            addresses = addresses[np.broadcast_to(mask_data, addresses.shape).astype(bool)]
        sectors = sectors_of(addresses)
        if not sectors.size:
            return
        shift = np.uint64(STORAGE_SPACING_BITS - 5)
        lowest, highest = int(sectors[0] >> shift), int(sectors[-1] >> shift)
        if lowest == highest:
            yield lowest - 1, sectors, addresses.size * element_bytes
            return
        storages = sectors >> shift
        for storage in np.unique(storages):
            part = sectors[storages == storage]
            yield int(storage) - 1, part, addresses.size * element_bytes * part.size // sectors.size

    # arithmetic ------------------------------------------------------------------------------------------------------

    def binary_op(self, lhs: Any, rhs: Any, op: Any) -> Any:
        if not is_float(lhs) and not is_float(rhs):
            if op is np.fmod:
                self._count_block(lhs, rhs, WHOLE_DIVISION_OPS)
            return super().binary_op(lhs, rhs, op)
        shape = np.broadcast_shapes(lhs.data.shape, rhs.data.shape)
        self.count(int(np.prod(shape)), SFU_COST.get(op, (0, 1)))
        with np.errstate(all="ignore"):
            value = np.asarray(op(first(lhs), first(rhs)))
        if value.dtype == np.bool_:
            return uniform(value, shape, tl.int1)
        return uniform(value.astype(lhs.data.dtype), shape, lhs.dtype.scalar)

    def create_idiv(self, lhs: Any, rhs: Any) -> Any:
        self._count_block(lhs, rhs, WHOLE_DIVISION_OPS)
        return super().create_idiv(lhs, rhs)

    def _count_block(self, lhs: Any, rhs: Any, n_operations: int) -> None:
        """Integers of a block; scalars are computed once, which no warp feels."""
        n_elements = max(lhs.data.size, rhs.data.size)
        if n_elements > 1:
            self.count(n_elements, (0, n_operations))

    def create_precise_divf(self, lhs: Any, rhs: Any) -> Any:
        self.count(max(lhs.data.size, rhs.data.size), ROUNDED_COST[np.divide])
        return self.binary_op(lhs, rhs, np.divide)

    def create_precise_sqrt(self, arg: Any) -> Any:
        self.count(arg.data.size, ROUNDED_COST[np.sqrt])
        return self.unary_op(arg, np.sqrt)

    def unary_op(self, arg: Any, op: Any) -> Any:
        if not is_float(arg):
            return super().unary_op(arg, op)
        self.count(arg.data.size, SFU_COST.get(op, (0, 1)))
        with np.errstate(all="ignore"):
            value = np.asarray(op(first(arg))).astype(arg.data.dtype)
        return uniform(value, arg.data.shape, arg.dtype.scalar)

    def ternary_op(self, lhs: Any, rhs: Any, other: Any, op: Any) -> Any:
        if not is_float(other):
            return super().ternary_op(lhs, rhs, other, op)
        shape = np.broadcast_shapes(lhs.data.shape, rhs.data.shape, other.data.shape)
        self.count(int(np.prod(shape)))
        value = np.asarray(op(first(lhs), first(rhs), first(other))).astype(other.data.dtype)
        return uniform(value, shape, other.dtype.scalar)

    def create_fma(self, x: Any, y: Any, z: Any) -> Any:
        shape = np.broadcast_shapes(x.data.shape, y.data.shape, z.data.shape)
        self.count(int(np.prod(shape)))
        return uniform(first(z), shape, z.dtype.scalar)

    def create_fabs(self, arg: Any) -> Any:
        return self.unary_op(arg, np.abs)

    def create_erf(self, arg: Any) -> Any:
        self.count(arg.data.size, ERF_COST)
        return arg

    def create_rsqrt(self, arg: Any) -> Any:
        return self.unary_op(arg, np.sqrt)

    def cast_impl(self, src: Any, dst_type: Any) -> Any:
        to = interpreter._get_np_dtype(dst_type)
        if not is_float(src) and not dst_type.scalar.is_floating():
            return TensorHandle(src.data.astype(to), dst_type.scalar)
        self.count(src.data.size)
        with np.errstate(all="ignore"):
            value = np.asarray(first(src)).astype(to)
        return uniform(value, src.data.shape, dst_type.scalar)

    def create_fp_to_fp(self, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        return self.cast_impl(src, dst_type)

    def create_bitcast(self, src: Any, dst_type: Any) -> Any:
        to = interpreter._get_np_dtype(dst_type)
        if not is_float(src):
            return TensorHandle(np.ascontiguousarray(src.data).view(to), dst_type.scalar)
        return uniform(np.ones((), to), src.data.shape, dst_type.scalar)

    def create_dot(self, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
        self._is_loading = False
        kind, multiple = dot_kind(a.dtype.scalar, str(input_precision))
        flops = 2.0 * a.data.size * b.data.shape[-1] * multiple * self.loop.weight
        self.counts.dot_flops[kind] = self.counts.dot_flops.get(kind, 0.0) + flops
        return uniform(first(d), d.data.shape, d.dtype.scalar)

    def create_extern_elementwise(
        self, libName: Any, libPath: Any, symbol: Any, argList: Any, retType: Any, isPure: Any
    ) -> Any:
        return self._opaque(argList, retType, (1, 0) if any(name in symbol for name in ROUNDING) else EXTERN_COST)

    def create_inline_asm(
        self, inlineAsm: Any, constraints: Any, values: Any, type: Any, isPure: Any, pack: Any
    ) -> Any:
        return self._opaque(values, type, EXTERN_COST)

    def _opaque(self, values: Any, result_type: Any, cost: tuple[int, int]) -> Any:
        shape = np.broadcast_shapes(*(v.data.shape for v in values)) if values else (1,)
        self.count(int(np.prod(shape)), cost)
        scalar = result_type.scalar
        return uniform(np.ones((), interpreter._get_np_dtype(scalar)), shape, scalar)

    # shapes: a uniform block stays uniform ---------------------------------------------------------------------------

    def create_splat(self, ret_ty: Any, arg: Any) -> Any:
        return uniform(first(arg), tuple(ret_ty.shape), arg.dtype.scalar)

    def create_reshape(self, arg: Any, shape: Any, allow_reorder: Any) -> Any:
        if is_float(arg):
            return uniform(first(arg), tuple(shape), arg.dtype.scalar)
        return super().create_reshape(arg, shape, allow_reorder)

    def create_join(self, lhs: Any, rhs: Any) -> Any:
        if is_float(lhs):
            return uniform(first(lhs), (*lhs.data.shape, 2), lhs.dtype.scalar)
        return super().create_join(lhs, rhs)

    # reductions ------------------------------------------------------------------------------------------------------

    def reduce(self, values: Any, axis: Any, combine: Any, keep_dims: bool = False, **_: Any) -> Any:
        """In place of `tl.reduce`: the combining function runs once, on single elements, and counts for all."""
        parts = values if isinstance(values, tuple | tl.tuple) else (values,)
        self.meet(meetings.reduction(shape_of(parts), axis, len(parts), self.n_warps))
        return self._combine(values, combine, lambda shape: reduced_shape(shape, axis, keep_dims))

    def scan(self, values: Any, axis: Any, combine: Any, reverse: bool = False, **_: Any) -> Any:
        """In place of `tl.associative_scan`."""
        parts = values if isinstance(values, tuple | tl.tuple) else (values,)
        self.meet(meetings.scan(shape_of(parts), axis, len(parts), self.n_warps, bool(reverse)))
        return self._combine(values, combine, lambda shape: shape)

    def _combine(self, values: Any, combine: Any, shape_of: Any) -> Any:
        parts = values if isinstance(values, tuple | tl.tuple) else (values,)
        shape = parts[0].handle.data.shape
        elements = [tl.tensor(TensorHandle(np.array([first(p.handle)]), p.dtype.scalar), p.dtype.scalar) for p in parts]
        before, self._times = self._times, self._times * float(np.prod(shape))
        results = combine.fn(*elements, *elements)
        self._times = before
        results = results if isinstance(results, tuple | tl.tuple) else (results,)
        made = tuple(spread(r, shape_of(shape), p.dtype.scalar) for r, p in zip(results, parts, strict=True))
        return made if isinstance(values, tuple | tl.tuple) else made[0]


def shape_of(values: Sequence[Any]) -> tuple[int, ...]:
    """Of the blocks that are reduced together."""
    return tuple(values[0].handle.data.shape)


def bytes_of_element(ptrs: Any) -> int:
    return max(1, int(ptrs.get_element_ty().primitive_bitwidth) // 8)


def block_bytes(ptrs: Any) -> int:
    """Of all that a block of pointers points at, masks aside."""
    return int(ptrs.data.size) * bytes_of_element(ptrs)


def _both_ends(total: int, limit: int) -> list[int]:
    if total <= limit:
        return list(range(total))
    n_last = limit // 2
    return [*range(limit - n_last), *range(total - n_last, total)]


class TraceTimeout(BaseException):
    """The time for a launch is used up. No `Exception`: those the interpreter makes its own."""


def spread(value: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """A tensor whose elements all have the (single) value."""
    data = np.asarray(first(value.handle) if isinstance(value, tl.tensor) else value)
    data = data.astype(interpreter._get_np_dtype(dtype))
    if not shape:
        return tl.tensor(TensorHandle(data.reshape(1), dtype), dtype)
    return tl.tensor(uniform(data, shape, dtype), tl.block_type(dtype, list(shape)))


def reduced_shape(shape: tuple[int, ...], axis: Any, keep_dims: bool) -> tuple[int, ...]:
    if axis is None:
        return (1,) * len(shape) if keep_dims else ()
    axis %= len(shape)
    return shape[:axis] + ((1,) if keep_dims else ()) + shape[axis + 1 :]


def retention_of(policies: list[Any]) -> float:
    """The effect of an eviction policy, wherever it stands among the arguments of a load."""
    names = [str(p).rsplit(".", 1)[-1].upper() for p in policies if p is not None]
    return next((RETENTION[name] for name in names if name in RETENTION), 1.0)


def dot_kind(dtype: Any, precision: str) -> tuple[str, int]:
    """The unit of `Hardware.tflops` that a dot runs on, and how many products it takes."""
    if dtype.is_fp32():
        return DOT_MULTIPLE.get(precision.rsplit(".", 1)[-1], ("tf32", 1))
    if dtype.is_fp64():
        return "fp64", 1
    if dtype.is_bf16() or dtype.is_fp16():
        return ("bf16" if dtype.is_bf16() else "fp16"), 1
    return "int8", 1


def semantic_of(tracer: Tracer) -> Any:
    return TritonSemantic(tracer)
