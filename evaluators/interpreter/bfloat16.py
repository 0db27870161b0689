"""Arithmetic in bfloat16 under the interpreter, which keeps such values as the 16 bits they are and computes with
those as if they were integers. Here every operation widens to float32 and rounds once, to nearest even, as GPUs do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

TensorHandle = interpreter.TensorHandle


def widen(handle: Any) -> Any:
    """A bfloat16 handle as float32; any other as it is."""
    if not _is_bfloat16(handle):
        return handle
    return TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)


def round_to_bfloat16(data: Any) -> Any:
    """float32 values to the bits of bfloat16, to nearest even; every NaN becomes the quiet one."""
    data = np.asarray(data, dtype=np.float32)
    bits = data.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(data), 0x7FFF, rounded).astype(np.uint16)


def _is_bfloat16(handle: Any) -> bool:
    return isinstance(handle, TensorHandle) and handle.dtype.scalar == tl.bfloat16


def _narrow(handle: Any) -> Any:
    """Round the float32 result of widened operands; comparisons stay truth values."""
    if handle.data.dtype == np.bool_:
        return handle
    return TensorHandle(round_to_bfloat16(handle.data), tl.bfloat16)


def _through_float32(operation: Callable[..., Any]) -> Callable[..., Any]:
    """An operation of the builder whose bfloat16 operands are widened and whose result is rounded."""

    def call(self: Any, *operands: Any, **options: Any) -> Any:
        if not any(map(_is_bfloat16, operands)):
            return operation(self, *operands, **options)
        with np.errstate(all="ignore"):
            return _narrow(operation(self, *map(widen, operands), **options))

    return call


def _dot(operation: Callable[..., Any]) -> Callable[..., Any]:
    """A product accumulates in the type of its accumulator, whatever its operands are."""

    def call(self: Any, a: Any, b: Any, accumulator: Any, *options: Any) -> Any:
        result = operation(self, widen(a), widen(b), widen(accumulator), *options)
        return _narrow(result) if _is_bfloat16(accumulator) else result

    return call


def _cast(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Casts from and to bfloat16 go by float32."""

    def call(self: Any, source: Any, target: Any) -> Any:
        if target.scalar == tl.bfloat16 and not _is_bfloat16(source):
            return TensorHandle(round_to_bfloat16(source.data.astype(np.float32)), tl.bfloat16)
        if _is_bfloat16(source) and target.scalar != tl.bfloat16:
            return operation(self, widen(source), target)
        return operation(self, source, target)

    return call


def _reduction(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Reductions and scans of tensors: each bfloat16 operand is widened, and what comes of it is rounded."""

    def call(self: Any, operands: Sequence[Any]) -> Any:
        results = operation(self, tuple(map(_widen_tensor, operands)))
        if isinstance(results, list | tuple):
            return tuple(map(_narrow_like, results, (*operands, *results[len(operands) :])))
        return _narrow_like(results, operands[0])

    return call


def _widen_tensor(tensor: Any) -> Any:
    if tensor.dtype != tl.bfloat16:
        return tensor
    return tl.tensor(widen(tensor.handle), _retyped(tensor.type, tl.float32))


def _narrow_like(result: Any, operand: Any) -> Any:
    if operand.dtype != tl.bfloat16 or result.dtype != tl.float32:
        return result
    return tl.tensor(_narrow(result.handle), _retyped(result.type, tl.bfloat16))


def _retyped(triton_type: Any, dtype: Any) -> Any:
    return tl.block_type(dtype, triton_type.shape) if triton_type.is_block() else dtype


def _refuse(operation: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, kind: Any, pointer: Any, value: Any, *options: Any) -> Any:
        if _is_bfloat16(value):
            raise NotImplementedError("the interpreter has no atomics in bfloat16")
        return operation(self, kind, pointer, value, *options)

    return call


def _constant(_builder: Any, value: float) -> Any:
    return TensorHandle(round_to_bfloat16(np.array([value])), tl.bfloat16)


def install() -> None:
    """Replace the operations of the interpreter's builder."""
    builder = interpreter.InterpreterBuilder
    for name in ("binary_op", "unary_op", "create_clampf", "create_fma"):
        setattr(builder, name, _through_float32(getattr(builder, name)))
    builder.create_dot = _dot(builder.create_dot)
    builder.cast_impl = _cast(builder.cast_impl)
    builder.create_atomic_rmw = _refuse(builder.create_atomic_rmw)
    builder.get_bf16 = _constant
    for reduction in (interpreter.ReduceOps, interpreter.ScanOps):
        reduction.apply_impl = _reduction(reduction.apply_impl)
