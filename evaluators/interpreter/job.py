"""The child's side: build a candidate, run it on shared inputs, copy what it answers into shared outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from db.records import Hardware, TensorSpec
from evaluators.capture.launches import Launched, answering_nothing, watched_launches
from evaluators.gates.layout import misfit
from evaluators.interpreter import shims
from evaluators.interpreter.device import pretended_gpu
from evaluators.interpreter.operations import HostOperationNames
from evaluators.interpreter.unsupported import why_unsupported
from evaluators.interpreter.weights import Weights
from evaluators.sandbox.candidate import build, load_candidate
from evaluators.sandbox.channel import Channel
from evaluators.sandbox.tensors import open_shared, spec_of


def run(channel: Channel, payload: dict[str, Any]) -> None:
    """Build a candidate once and run it on each set of inputs in turn. For each set one message is sent:
    `{"outputs": [spec, ...], ...}` when every output was copied, with the names of `torch_ops`, the `launches` of the
    construction and of this call, and the names of `changed_weights`; or `{"mismatch": reason}` when the outputs are
    not laid out as announced. `{"unsupported": reason}` is the last message; what the candidate raises, this raises.

    `payload`: `source`, `entry_point`, `init_args`, `hardware`; `weights` (name to spec); `sets`, each with `inputs`
    (specs, or plain values as `{"value": ...}`), `outputs` (specs) and `borrowed` (positions of outputs that may lie in
    the memory of inputs). The descriptors come in this order, plain values have none.
    """
    shims.apply()
    hardware = Hardware.model_validate(payload["hardware"])
    shims.drive(hardware)
    descriptors = iter(channel.fds)
    weights = {name: _open(descriptors, spec) for name, spec in payload["weights"].items()}
    sets = [_Set.opened(descriptors, entry) for entry in payload["sets"]]
    try:
        with _run_of(hardware) as built:
            module = load_candidate(payload["source"])
            function = build(module, payload["entry_point"], payload["init_args"], weights)
        held = Weights(function, weights)
        for asked in sets:
            channel.send(_run_set(function, asked, held, built, hardware))
    except Exception as error:  # whose fault it is decides whether it counts against the candidate
        reason = why_unsupported(error)
        if reason is None:
            raise
        channel.send({"unsupported": reason})


@contextmanager
def _run_of(hardware: Hardware) -> Iterator[list[Launched]]:
    """What candidate code runs in; notes what it launches."""
    with torch.no_grad(), pretended_gpu(hardware), answering_nothing(), watched_launches() as seen:
        yield seen


class _Set(NamedTuple):
    """One call: its inputs, the shared memory for its outputs, and what is asked of these."""

    inputs: list[Any]
    outputs: list[Tensor]
    specs: list[TensorSpec]
    borrowed: list[int]

    @classmethod
    def opened(cls, descriptors: Iterator[int], entry: dict[str, Any]) -> _Set:
        inputs = [value["value"] if "value" in value else _open(descriptors, value) for value in entry["inputs"]]
        specs = [TensorSpec.model_validate(spec) for spec in entry["outputs"]]
        return cls(inputs, [open_shared(next(descriptors), spec) for spec in specs], specs, entry["borrowed"])


def _run_set(
    function: Any, asked: _Set, held: Weights, built: Sequence[Launched], hardware: Hardware
) -> dict[str, Any]:
    """Runs the candidate once and says what came of it."""
    with _run_of(hardware) as seen, HostOperationNames() as operations:
        answer = _flat(function(*asked.inputs))
    reason = misfit(answer, asked.specs, [*asked.inputs, *held.tensors], asked.borrowed)
    if reason:
        return {"mismatch": reason}
    for given, wanted in zip(answer, asked.outputs, strict=True):
        wanted.copy_(given)
    return {
        "outputs": [spec_of(given).model_dump() for given in answer],
        "torch_ops": sorted(operations.names),
        "launches": [launch._asdict() for launch in (*built, *seen)],
        "changed_weights": held.changed(),
    }


def _open(descriptors: Iterator[int], spec: dict[str, Any]) -> Tensor:
    return open_shared(next(descriptors), TensorSpec.model_validate(spec))


def _flat(answer: Any) -> Sequence[Any]:
    if not isinstance(answer, tuple | list):
        return [answer]
    return [leaf for part in answer for leaf in _flat(part)]
