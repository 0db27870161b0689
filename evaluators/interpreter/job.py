"""The child's side: build a candidate, run it on shared inputs, copy what it answers into shared outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from db.records import TensorSpec
from evaluators.interpreter import shims
from evaluators.interpreter.device import pretended_gpu
from evaluators.interpreter.unsupported import why_unsupported
from evaluators.sandbox.candidate import build, load_candidate
from evaluators.sandbox.channel import Channel
from evaluators.sandbox.tensors import open_shared, spec_of


def run(channel: Channel, payload: dict[str, Any]) -> None:
    """Send `{"outputs": [spec, ...]}` when every output was copied, `{"mismatch": reason}` when they are not of the
    announced number, type, shape or dtype, or `{"unsupported": reason}`. What the candidate raises, this raises.

    `payload`: `source`, `entry_point`, `init_args`; `weights` (name to spec); `inputs` (specs, or plain values as
    `{"value": ...}`); `outputs` (specs). The descriptors come in this order too, plain values have none.
    """
    shims.apply()
    descriptors = iter(channel.fds)
    weights = {name: _open(descriptors, spec) for name, spec in payload["weights"].items()}
    inputs = [entry["value"] if "value" in entry else _open(descriptors, entry) for entry in payload["inputs"]]
    outputs = [_open(descriptors, spec) for spec in payload["outputs"]]
    try:
        answer = _run_candidate(payload, weights, inputs)
    except Exception as error:  # whose fault it is decides whether it counts against the candidate
        reason = why_unsupported(error)
        if reason is None:
            raise
        channel.send({"unsupported": reason})
        return
    channel.send(_deliver(answer, outputs))


def _open(descriptors: Iterator[int], spec: dict[str, Any]) -> Tensor:
    return open_shared(next(descriptors), TensorSpec.model_validate(spec))


def _run_candidate(payload: dict[str, Any], weights: dict[str, Tensor], inputs: list[Any]) -> list[Any]:
    with torch.no_grad(), pretended_gpu():
        module = load_candidate(payload["source"])
        function = build(module, payload["entry_point"], payload["init_args"], weights)
        return list(_flat(function(*inputs)))


def _flat(answer: Any) -> Sequence[Any]:
    if not isinstance(answer, tuple | list):
        return [answer]
    return [leaf for part in answer for leaf in _flat(part)]


def _deliver(answer: list[Any], outputs: list[Tensor]) -> dict[str, Any]:
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
