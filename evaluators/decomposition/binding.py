"""Where the tensors of a captured graph come from, and how its returns make the model's answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from db.records import TensorSpec
from evaluators.decomposition.capture import CapturedGraph, same_tensor
from evaluators.decomposition.errors import DecompositionError
from evaluators.decomposition.flow import is_dense
from evaluators.decomposition.modules import Weight
from evaluators.decomposition.records import Argument

MOST_VALUES = 4096  # elements of a tensor that the delivered file spells out


def spec_of(tensor: Tensor) -> TensorSpec:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return TensorSpec(shape=tuple(tensor.shape), dtype=dtype, strides=tuple(tensor.stride()))


def weights_of(model: nn.Module) -> tuple[Weight, ...]:
    """Every tensor of the state dict."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    state = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    return tuple(
        Weight(name=name, spec=spec_of(value), kind="parameter" if name in parameters else "buffer")
        for name, value in state.items()
    )


def argument_of(value: Any, model: nn.Module, inputs: Sequence[Any]) -> Argument:
    """Where an argument comes from, found by the memory that it looks at.

    Raises:
        DecompositionError: it is no tensor, a large one that the model holds outside its state dict, or none of these:
            then a part of the model runs outside of the graph.
    """
    if not isinstance(value, Tensor):
        raise DecompositionError(f"the graph takes a {type(value).__name__}", "compile with dynamic=False")
    for index, given in enumerate(inputs):
        if same_tensor(value, given):
            return Argument(kind="input", index=index)
    for name, weight in model.state_dict().items():
        if same_tensor(value, weight):
            return Argument(kind="weight", name=name)
    if not any(same_tensor(value, held) for held in _held_beside(model)):
        raise DecompositionError("the graph takes a tensor that is neither an input nor held by the model")
    return fixed_value(value)


def _held_beside(model: nn.Module) -> Iterator[Tensor]:
    """Tensors that a model has but its state dict has not: buffers that are not persistent, plain attributes."""
    for module in model.modules():
        yield from (buffer for buffer in module.buffers(recurse=False))
        yield from (value for value in vars(module).values() if isinstance(value, Tensor))


def fixed_value(value: Tensor) -> Argument:
    """A tensor by its elements, as they lie in memory: kernels are compiled for its strides.

    Raises:
        DecompositionError: it has more than `MOST_VALUES`, or its elements do not fill its memory one by one.
    """
    spec = spec_of(value)
    if value.numel() > MOST_VALUES:
        raise DecompositionError(
            f"the model holds a tensor of shape {spec.shape} outside of its state dict",
            "register it as a persistent buffer",
        )
    if not is_dense(spec):
        raise DecompositionError(
            f"the model holds a tensor whose elements overlap or lie apart: {spec.shape}, strides {spec.strides}",
            "make it contiguous",
        )
    flat = value.as_strided((value.numel(),), (1,), value.storage_offset())
    return Argument(kind="value", values=tuple(flat.tolist()), spec=spec)


def constants_of(captured: CapturedGraph, names: Sequence[str]) -> tuple[Argument, ...]:
    """The module-level tensors of the output."""
    return tuple(fixed_value(captured.constants[name]) for name in names)


def answer_text(answer: Any, returns: Sequence[Any]) -> str:
    """The model's answer as an expression over the graph's returns: "({0}, {1})".

    Raises:
        DecompositionError: it holds something that no return is.
    """
    return "".join(_pieces(answer, returns))


def _pieces(answer: Any, returns: Sequence[Any]) -> Iterator[str]:
    if isinstance(answer, Tensor):
        index = next((i for i, value in enumerate(returns) if same_tensor(answer, value)), None)
        if index is None:
            raise DecompositionError("the model answers a tensor that its graph does not return as it is")
        yield f"{{{index}}}"
    elif type(answer) in (tuple, list):
        yield "(" if isinstance(answer, tuple) else "["
        for value in answer:
            yield from _pieces(value, returns)
            yield ", "
        yield ")" if isinstance(answer, tuple) else "]"
    elif type(answer) is dict:
        yield "{{"
        for key, value in answer.items():
            yield f"{key!r}: "
            yield from _pieces(value, returns)
            yield ", "
        yield "}}"
    elif answer is None or isinstance(answer, int | float | bool | str):
        yield repr(answer).replace("{", "{{").replace("}", "}}")
    else:
        raise DecompositionError(f"the model answers a {type(answer).__name__}", "let forward return tensors")


def is_cuda(arguments: Sequence[Any]) -> bool:
    """Whether every tensor among the arguments is on a GPU."""
    return all(value.is_cuda for value in arguments if isinstance(value, torch.Tensor))
