"""Are a program's outputs laid out as the reference's? One rule for the interpreter and for a GPU.

Who takes a program in place of its reference goes on with what it returns: views it, writes to it, hands it to a kernel
that counts on strides. So strides must be the reference's, and memory must not be somebody else's. Row-major is always
right: a reference may hand out a permuted tensor because a library found that convenient, on one device and not on
another (`scaled_dot_product_attention` does), and nobody saves work by undoing it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from torch import Tensor

from db.records import TensorSpec


def misfit(
    found: Sequence[Any], expected: Sequence[TensorSpec], given: Sequence[Any] = (), borrowed: Collection[int] = ()
) -> str:
    """Why these outputs are not what the reference returns, or "" when they fit.

    Args:
        found: the program's outputs, flat.
        expected: of the reference's outputs. Their strides, or row-major ones, are asked for where they are dense:
            those of a slice or of an expanded tensor are an accident. Without strides an output is row-major.
        given: all inputs and weights that the program was handed; what is no tensor counts as nothing.
        borrowed: positions of outputs that the reference, too, returns in memory of its inputs or weights.
    """
    if len(found) != len(expected):
        return f"{len(found)} outputs instead of {len(expected)}"
    for i, (output, spec) in enumerate(zip(found, expected, strict=True)):
        if reason := _misfit(output, spec):
            return f"output {i}: {reason}"
    lent = next((i for i in borrowed_outputs(found, given) if i not in borrowed), None)
    if lent is None:
        return ""
    return f"output {lent}: it lies in the memory of an input or a weight, the reference's has memory of its own"


def borrowed_outputs(outputs: Sequence[Any], given: Sequence[Any]) -> tuple[int, ...]:
    """Positions of the outputs whose memory is that of an input or a weight, whole or in part."""
    lenders = [_span(value) for value in given if isinstance(value, Tensor)]
    spans = [_span(output) if isinstance(output, Tensor) else (0, 0) for output in outputs]
    return tuple(i for i, span in enumerate(spans) if any(_meet(span, lender) for lender in lenders))


def _misfit(output: Any, spec: TensorSpec) -> str:
    if type(output) is not Tensor:
        return f"a {type(output).__name__} instead of a torch.Tensor"
    if tuple(output.shape) != spec.shape:
        return f"shape {tuple(output.shape)} instead of {spec.shape}"
    if str(output.dtype) != f"torch.{spec.dtype}":
        return f"{output.dtype} instead of torch.{spec.dtype}"
    row_major = _row_major(spec.shape)
    wanted, strides = spec.strides or row_major, tuple(output.stride())
    if not _is_dense(spec.shape, wanted) or any(_walk_alike(spec.shape, strides, w) for w in (wanted, row_major)):
        return ""
    return f"strides {strides} instead of {wanted}"


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return tuple(strides[: len(shape)])


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether elements lie side by side, each at its own place, in whatever order of dimensions."""
    next_stride = 1
    for stride, size in sorted((t, s) for s, t in zip(shape, strides, strict=True) if s > 1):
        if stride != next_stride:
            return False
        next_stride *= size
    return True


def _walk_alike(shape: tuple[int, ...], strides: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether the same index finds the same place; the stride of a dimension of size one is never walked."""
    return 0 in shape or all(a == b for size, a, b in zip(shape, strides, wanted, strict=True) if size > 1)


def _span(tensor: Tensor) -> tuple[int, int]:
    """First and last address of the memory behind a tensor, the last one excluded."""
    storage = tensor.untyped_storage()
    start = storage.data_ptr()
    return start, start + storage.nbytes()


def _meet(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return max(a[0], b[0]) < min(a[1], b[1])
