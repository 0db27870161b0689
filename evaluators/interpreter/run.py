"""The judge's side: hand a candidate its inputs and take what it answers. What that is worth, gates decide."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from db.records import Hardware, TensorSpec
from evaluators.hardware import load_hardware
from evaluators.interpreter.device import ANY_GPU
from evaluators.sandbox.client import Child, ChildEnded, Exit, Zygote
from evaluators.sandbox.tensors import allocate, open_shared, poison, share
from evaluators.zygotes import INTERPRET_PRELOAD

JOB = "evaluators.interpreter.job:run"
PRELOAD = INTERPRET_PRELOAD

FailureKind = Literal["error", "crash", "timeout", "mismatch"]


class Failure(NamedTuple):
    """Why there are no outputs. `error`: the candidate raised; `crash`: its process ended itself or was killed for a
    limit; `mismatch`: outputs of another number, type, shape, dtype or layout."""

    kind: FailureKind
    reason: str


class InterpretResult(NamedTuple):
    """Exactly one of `outputs`, `failure` and `unsupported` is set. `changed_inputs` are the positions of the inputs
    that the candidate wrote to (bitwise, by the judge's own copies), `changed_weights` the names of weights (by copies
    in the child), `torch_ops` the names of operations of torch that its host code called and that move bytes,
    `launches` what it launched, construction included (`Launched._asdict()`)."""

    outputs: list[Tensor] | None = None
    failure: Failure | None = None
    unsupported: str | None = None
    changed_inputs: tuple[int, ...] = ()
    changed_weights: tuple[str, ...] = ()
    torch_ops: tuple[str, ...] = ()
    launches: tuple[dict[str, Any], ...] = ()


class InputSet(NamedTuple):
    """CPU tensors and plain values for one call, and what it must answer. Never written to. `borrowed` are positions of
    outputs that may lie in the memory of inputs or weights, as the reference's do."""

    inputs: Sequence[Any]
    output_specs: Sequence[TensorSpec]
    borrowed: Sequence[int] = ()


def interpret(
    zygote: Zygote,
    *,
    source: str,
    entry_point: str,
    init_args: Sequence[Any],
    weights: Mapping[str, Tensor],
    inputs: Sequence[Any],
    output_specs: Sequence[TensorSpec],
    deadline_s: float,
) -> InterpretResult:
    """`interpret_sets` with a single set."""
    return interpret_sets(
        zygote,
        source=source,
        entry_point=entry_point,
        init_args=init_args,
        weights=weights,
        sets=[InputSet(inputs, output_specs)],
        deadline_s=deadline_s,
    )[0]


def interpret_sets(
    zygote: Zygote,
    *,
    source: str,
    entry_point: str,
    init_args: Sequence[Any],
    weights: Mapping[str, Tensor],
    sets: Sequence[InputSet],
    deadline_s: float,
    hardware: Hardware | None = None,
) -> list[InterpretResult]:
    """Build a candidate once under the interpreter and run it on one set after another, in one child of a zygote that
    interprets (best with `PRELOAD`). Ends at the first set without outputs: the results are as many as were tried.

    Outputs start as NaN (integers: 0xA5 in every byte), so that a candidate that lies about having written them shows.
    `deadline_s` is for all sets together. Host code that asks for a GPU sees `hardware`.

    Raises:
        SandboxError: the zygote has ended.
    """
    with _shared_memory() as memory:
        payload = {
            "source": source,
            "entry_point": entry_point,
            "init_args": list(init_args),
            "hardware": (hardware or load_hardware(ANY_GPU)).model_dump(mode="json"),
            "weights": {name: memory.share(tensor) for name, tensor in weights.items()},
            "sets": [memory.share_set(wanted) for wanted in sets],
        }
        with zygote.spawn(JOB, payload, deadline_s=deadline_s, fds=memory.fds) as child:
            messages, exit = _conversation(child, len(sets))
        return [
            _result(message, exit, memory.outputs(i))._replace(changed_inputs=memory.changed_inputs(i, sets[i].inputs))
            for i, message in enumerate(messages)
        ]


def _conversation(child: Child, n_sets: int) -> tuple[list[dict[str, Any]], Exit]:
    """One message for each set that was tried, an empty one where the child ended instead; and how it ended."""
    messages: list[dict[str, Any]] = []
    try:
        while len(messages) < n_sets and (not messages or "outputs" in messages[-1]):
            messages.append(child.receive())
    except ChildEnded as ended:
        return [*messages, {}], ended.exit
    if "outputs" not in messages[-1]:
        child.kill()  # what follows no longer matters
    return messages, child.wait()


def _result(message: dict[str, Any], exit: Exit, outputs: list[Tensor]) -> InterpretResult:
    """What a message, or the end that came instead, says of its set."""
    if "outputs" in message:
        return InterpretResult(
            outputs=outputs,
            changed_weights=tuple(map(str, message.get("changed_weights", ()))),
            torch_ops=tuple(map(str, message.get("torch_ops", ()))),
            launches=tuple(map(dict, message.get("launches", ()))),
        )
    if "mismatch" in message:
        return InterpretResult(failure=Failure("mismatch", str(message["mismatch"])))
    if "unsupported" in message:
        return InterpretResult(unsupported=str(message["unsupported"]))
    kind: FailureKind = exit.kind if exit.kind in ("error", "timeout") else "crash"
    return InterpretResult(failure=Failure(kind, exit.detail or "the process ended without an answer"))


def _same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal bit for bit: NaN equals itself, and -0.0 is not 0.0."""
    as_bytes = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (a, b)]
    return bool(torch.equal(*as_bytes))


class _SharedMemory:
    """Tensors in shared memory, in the order in which the child opens them."""

    def __init__(self) -> None:
        self.fds: list[int] = []
        self._inputs: list[list[Tensor]] = []
        self._outputs: list[list[Tensor]] = []

    def share(self, tensor: Tensor) -> dict[str, Any]:
        fd, spec = share(tensor)
        self.fds.append(fd)
        return spec.model_dump()

    def share_set(self, wanted: InputSet) -> dict[str, Any]:
        self._inputs.append([])
        self._outputs.append([])
        return {
            "inputs": [self._share_input(x) if isinstance(x, Tensor) else {"value": x} for x in wanted.inputs],
            "outputs": [self._share_output(spec) for spec in wanted.output_specs],
            "borrowed": list(wanted.borrowed),
        }

    def outputs(self, i: int) -> list[Tensor]:
        return self._outputs[i]

    def changed_inputs(self, i: int, inputs: Sequence[Any]) -> tuple[int, ...]:
        """Positions among `inputs`, the judge's own, of those that are no longer the same in shared memory."""
        positions = [n for n, value in enumerate(inputs) if isinstance(value, Tensor)]
        pairs = zip(positions, self._inputs[i], strict=True)
        return tuple(n for n, now in pairs if not _same_bits(inputs[n].detach().cpu(), now))

    def _share_input(self, tensor: Tensor) -> dict[str, Any]:
        entry = self.share(tensor)
        self._inputs[-1].append(open_shared(self.fds[-1], TensorSpec(**entry)))
        return entry

    def _share_output(self, spec: TensorSpec) -> dict[str, Any]:
        self.fds.append(allocate(spec))
        output = open_shared(self.fds[-1], spec)
        poison(output)
        self._outputs[-1].append(output)
        return spec.model_dump()


@contextmanager
def _shared_memory() -> Iterator[_SharedMemory]:
    memory = _SharedMemory()
    try:
        yield memory
    finally:
        for fd in memory.fds:
            os.close(fd)
