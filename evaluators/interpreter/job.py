"""The child's side: build a candidate, run it on shared inputs, copy what it answers into shared outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from db.records import TensorSpec
from evaluators.interpreter import shims
from evaluators.interpreter.device import pretended_gpu
from evaluators.interpreter.operations import HostOperationNames
from evaluators.interpreter.unsupported import why_unsupported
from evaluators.sandbox.candidate import build, load_candidate
from evaluators.sandbox.channel import Channel
from evaluators.sandbox.tensors import open_shared, spec_of


def run(channel: Channel, payload: dict[str, Any]) -> None:
    """Build a candidate once and run it on each set of inputs in turn. For each set one message is sent:
    `{"outputs": [spec, ...], "torch_ops": [name, ...]}` when every output was copied, or `{"mismatch": reason}` when
    they are not of the announced number, type, shape and dtype. `{"unsupported": reason}` is the last message, and what
    the candidate raises, this raises.

    `payload`: `source`, `entry_point`, `init_args`; `weights` (name to spec); `sets`, each with `inputs` (specs, or
    plain values as `{"value": ...}`) and `outputs` (specs). The descriptors come in this order, plain values have none.
    """
    shims.apply()
    descriptors = iter(channel.fds)
    weights = {name: _open(descriptors, spec) for name, spec in payload["weights"].items()}
    sets = [_open_set(descriptors, entry) for entry in payload["sets"]]
    try:
        with torch.no_grad(), pretended_gpu():
            module = load_candidate(payload["source"])
            function = build(module, payload["entry_point"], payload["init_args"], weights)
        for inputs, outputs in sets:
            with torch.no_grad(), pretended_gpu(), HostOperationNames() as operations:
                answer = _flat(function(*inputs))
            channel.send({**_deliver(answer, outputs), "torch_ops": sorted(operations.names)})
    except Exception as error:  # whose fault it is decides whether it counts against the candidate
        reason = why_unsupported(error)
        if reason is None:
            raise
        channel.send({"unsupported": reason})


def _open(descriptors: Iterator[int], spec: dict[str, Any]) -> Tensor:
    return open_shared(next(descriptors), TensorSpec.model_validate(spec))


def _open_set(descriptors: Iterator[int], entry: dict[str, Any]) -> tuple[list[Any], list[Tensor]]:
    inputs = [value["value"] if "value" in value else _open(descriptors, value) for value in entry["inputs"]]
    return inputs, [_open(descriptors, spec) for spec in entry["outputs"]]


def _flat(answer: Any) -> Sequence[Any]:
    if not isinstance(answer, tuple | list):
        return [answer]
    return [leaf for part in answer for leaf in _flat(part)]


def _deliver(answer: Sequence[Any], outputs: list[Tensor]) -> dict[str, Any]:
    """Copy the answer into the shared outputs, if it is exactly what was announced."""
    if len(answer) != len(outputs):
        return {"mismatch": f"{len(answer)} outputs instead of {len(outputs)}"}
    for index, (given, wanted) in enumerate(zip(answer, outputs, strict=True)):
        if reason := _mismatch(given, wanted):
            return {"mismatch": f"output {index}: {reason}"}
    for given, wanted in zip(answer, outputs, strict=True):
        wanted.copy_(given)
    return {"outputs": [spec_of(given).model_dump() for given in answer]}


def _mismatch(given: Any, wanted: Tensor) -> str:
    if type(given) is not Tensor:
        return f"a {type(given).__name__} instead of a torch.Tensor"
    if given.shape != wanted.shape:
        return f"shape {tuple(given.shape)} instead of {tuple(wanted.shape)}"
    if given.dtype != wanted.dtype:
        return f"{given.dtype} instead of {wanted.dtype}"
    return ""
