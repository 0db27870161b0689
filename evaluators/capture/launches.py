"""What a program launches, told alike by a capture, the interpreter and a GPU; and what a launch answers: nothing.

A program that could tell one kind of run from another might do its work in one and not in the other. So `kernel[grid](
...)` answers None in all of them, and what was launched in a real run is compared with what was captured.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from triton.runtime import interpreter, jit


class Launched(NamedTuple):
    """One launch as a run saw it. `arguments` are those that are no constexprs, in text (see `describe_layout`)."""

    kernel: str
    grid: tuple[int, int, int]
    constexprs: dict[str, Any]
    arguments: tuple[str, ...]


@contextmanager
def answering_nothing() -> Iterator[None]:
    """Inside, `kernel[grid](...)` answers None, compiled, interpreted or captured. Costs a launch nothing."""

    def launcher(kernel: Any, grid: Any) -> Callable[..., None]:
        def launch(*args: Any, **kwargs: Any) -> None:
            kernel.run(*args, grid=grid, warmup=False, **kwargs)

        return launch

    with patch.object(jit.KernelInterface, "__getitem__", launcher):
        yield


@contextmanager
def watched_launches() -> Iterator[list[Launched]]:
    """Inside, every launch is noted in the list, in order, and runs. For checks, not for timing: it takes microseconds.

    Works in a process that compiles and in one that interprets; there grids see numbers, as they do on a GPU.
    """
    seen: list[Launched] = []
    with ExitStack() as stack:
        for kind in (jit.JITFunction, interpreter.InterpretedFunction):
            stack.enter_context(patch.object(kind, "run", _watched(kind.run, seen)))
        yield seen


def _watched(run: Callable[..., Any], seen: list[Launched]) -> Callable[..., Any]:
    def watched(function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if not warmup:
            arguments = bind_arguments(function.fn, args, kwargs)
            grid = evaluate_grid(function.fn.__name__, grid, arguments)
            seen.append(launched(function, arguments, grid))
        return run(function, *args, grid=grid, warmup=warmup, **kwargs)

    return watched


def launched(function: Any, arguments: Mapping[str, Any], grid: tuple[int, int, int]) -> Launched:
    """A launch of a kernel, compiled or interpreted, with its arguments by name."""
    constexprs = constexprs_of(function)
    return Launched(
        kernel=function.fn.__name__,
        grid=grid,
        constexprs={k: plain_constant(v) for k, v in arguments.items() if k in constexprs},
        arguments=tuple(describe_layout(v) for k, v in arguments.items() if k not in constexprs),
    )


def constexprs_of(function: Any) -> set[str]:
    """Names of a kernel's compile-time arguments."""
    if isinstance(function, jit.JITFunction):
        return {p.name for p in function.params if p.is_constexpr}
    annotations = {name: jit._normalize_ty(kind) for name, kind in function.fn.__annotations__.items()}
    return {name for name, kind in annotations.items() if kind == "constexpr"}


def bind_arguments(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """A kernel's arguments by name, defaults included; launch options such as num_warps are left out."""
    signature = inspect.signature(function)
    call = signature.bind(*args, **{k: v for k, v in kwargs.items() if k in signature.parameters})
    call.apply_defaults()
    return dict(call.arguments)


def evaluate_grid(kernel: str, grid: Any, arguments: Mapping[str, Any]) -> tuple[int, int, int]:
    """The three dimensions of a launch.

    Raises:
        TypeError: the grid is neither a tuple of one to three integers nor a function that gives one.
    """
    sizes = grid(dict(arguments)) if callable(grid) else grid
    if not isinstance(sizes, tuple | list) or not 1 <= len(sizes) <= 3:
        raise TypeError(f"the grid of kernel {kernel} must be a tuple of one to three integers, got {sizes!r}")
    x, y, z = (*(int(size) for size in sizes), 1, 1)[:3]
    return x, y, z


def plain_constant(value: Any) -> Any:
    """A constexpr as something that JSON can hold."""
    value = getattr(value, "value", value)
    return value if isinstance(value, bool | int | float | str | None) else str(getattr(value, "__name__", value))


def describe_layout(value: Any) -> str:
    """An argument in text, equal wherever a program passes the same: of a tensor dtype, shape and strides, without its
    place in memory."""
    if isinstance(value, torch.Tensor):
        walked = tuple(t if size > 1 else 0 for size, t in zip(value.shape, value.stride(), strict=True))
        return f"{str(value.dtype).removeprefix('torch.')}{tuple(value.shape)}{walked}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(describe_layout, value))})"
    if hasattr(value, "block_shape"):  # TensorDescriptor
        parts = (list(value.shape), list(value.strides), list(value.block_shape))
        return f"descriptor {describe_layout(value.base)} {parts}"
    return f"{type(value).__name__} {value!r}"
