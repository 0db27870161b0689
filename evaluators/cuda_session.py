"""The child's side of judging on a GPU: obeys the judge's requests, one JSON message each.

A child is opened before its candidate is known, so that its CUDA context is there when it is needed. It sees inputs and
output buffers as shared device memory, never the reference nor an expected value. Requests, in their usual order:
`load` (import, build, compile), `check` (run once, deliver outputs), `idle` (again, without its kernels), `time` (open
a timer), `replay`, `sustain`, `call`, `verify` (run again on fresh inputs), `release`. An exception ends the child and
is the candidate's.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from db.records import PrecisionClass
from evaluators.capture.torch_ops import OperationNames
from evaluators.device_memory import SharedRegion, place_value
from evaluators.gates.integrity import poison_
from evaluators.precision import apply_precision
from evaluators.sandbox.channel import Channel
from evaluators.timing import (
    Program,
    Rotation,
    Timer,
    call_us,
    flatten_outputs,
    fresh_us,
    open_timer,
    rotate_inputs,
)

Message = dict[str, Any]


class Session(ABC):
    """One process that runs programs for the judge. Subclasses say how a program is loaded."""

    def __init__(self, channel: Channel, payload: Message) -> None:
        start = time.perf_counter()
        apply_precision(PrecisionClass(payload["precision"]))
        torch.cuda.set_device(0)
        torch.zeros(1, device="cuda")
        self._channel = channel
        self._l2_bytes: int = payload["l2_bytes"]
        self.inputs_region = SharedRegion.open(payload["inputs"]["handle"], payload["inputs"]["n_bytes"])
        self._outputs_region = SharedRegion.open(payload["outputs"]["handle"], payload["outputs"]["n_bytes"])
        self.programs: dict[str, Program] = {}
        self._places: dict[str, Message] = {}
        self._timer: Timer | None = None
        self._sets: list[list[Any]] = []
        self._workload = ""
        self._watched_set = 0
        channel.send({"opened": time.perf_counter() - start})

    def serve(self) -> None:
        """Answers requests until the judge closes the channel."""
        requests: dict[str, Callable[[Message], Message]] = {
            "load": self._load,
            "check": self._check,
            "idle": self._idle,
            "time": self._time,
            "replay": self._replay,
            "sustain": self._sustain,
            "call": self._call,
            "verify": self._verify,
            "release": self._release,
        }
        # a stream of its own: the default one cannot be captured, and a second one would not share freed memory
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()), suppress(EOFError):
            while True:
                message = self._channel.receive()
                self._channel.send(requests[message["do"]](message))

    @abstractmethod
    def load(self, message: Message) -> Message:
        """Fills `programs` with one callable for each workload of the message."""

    def _load(self, message: Message) -> Message:
        self._places = message["workloads"]
        return self.load(message)

    def _check(self, message: Message) -> Message:
        workload = message["workload"]
        outputs = flatten_outputs(self.programs[workload](*self.inputs_of(workload)))
        return self._deliver(outputs, workload)

    def _idle(self, message: Message) -> Message:
        """As `_check`, with every kernel compiled and none launched. Host code that needs their answers may raise."""
        try:
            with compile_only():
                return self._check(message)
        except Exception as error:  # candidate code: without its kernels it delivers nothing
            return {"refused": f"{type(error).__name__}: {error}"}

    def _time(self, message: Message) -> Message:
        self._release(message)
        self._workload = message["workload"]
        rotation = Rotation(*message["rotation"])
        self._sets = rotate_inputs(self.inputs_of(self._workload), rotation.n_sets)
        self._watched_set = message["watched"] % rotation.n_launches % rotation.n_sets
        self._timer, why = open_timer(
            self.programs[self._workload],
            self._sets,
            rotation,
            l2_bytes=self._l2_bytes,
            watched=message["watched"],
            method=message.get("method"),
        )
        return {"method": self._timer.method, "n_launches": self._timer.n_launches, "why": why}

    def _replay(self, message: Message) -> Message:
        assert self._timer is not None
        return {"us": self._timer.replay_us(message["n"])}

    def _sustain(self, message: Message) -> Message:
        assert self._timer is not None
        return {"seconds": self._timer.sustain(message["n"])}

    def _call(self, message: Message) -> Message:
        return {"us": call_us(self.programs[self._workload], self._sets, message["n_calls"], message["n_repeats"])}

    def _verify(self, message: Message) -> Message:
        """What the timed launches make of inputs that they never saw, and how long they take with such in every set:
        a program that keeps answers is slower then."""
        assert self._timer is not None
        us = fresh_us(self._timer, self._sets, self.inputs_of(self._workload), self._watched_set, message["shift"])
        return {**self._deliver(self._timer.outputs(), self._workload), "us": [us]}

    def _release(self, _: Message) -> Message:
        self._timer = None
        self._sets = []
        return {}

    def inputs_of(self, workload: str) -> list[Any]:
        """The inputs as the judge laid them out, in shared memory."""
        return [place_value(self.inputs_region, place) for place in self._places[workload]["inputs"]]

    def places_of_outputs(self, workload: str) -> list[Message]:
        """Shape and dtype of what a program must return, with its place in the judge's memory."""
        places: list[Message] = self._places[workload]["outputs"]
        return places

    def weights_of(self, workload: str) -> dict[str, Tensor]:
        """The reference's weights by name, in shared memory."""
        places = self._places[workload]["weights"]
        return {name: self.inputs_region.tensor(place) for name, place in places.items()}

    def _deliver(self, outputs: list[Any], workload: str) -> Message:
        """Copies outputs into the judge's buffers, or says which one is not what was asked for."""
        places = self._places[workload]["outputs"]
        refused = _misfit(outputs, places)
        if refused:
            return {"refused": refused}
        for output, place in zip(outputs, places, strict=True):
            self._outputs_region.tensor(place).copy_(output)
        torch.cuda.synchronize()
        return {"delivered": len(outputs)}


class CandidateSession(Session):
    """Runs one candidate: the source comes with the request to load."""

    def load(self, message: Message) -> Message:
        from evaluators.sandbox.candidate import build, load_candidate

        start = time.perf_counter()
        module = load_candidate(message["source"], Path("candidate.py"))
        for name, places in message["workloads"].items():
            weights = self.weights_of(name)
            self.programs[name] = build(module, message["entry_point"], places["init_args"], weights, "cuda")
        torch.cuda.synchronize()
        built = time.perf_counter()
        error = self._dry_run()
        return {"build_s": built - start, "compile_s": time.perf_counter() - built, "dry_run_error": error}

    def _check(self, message: Message) -> Message:
        """As for any program; free memory holds poison before, and what host code called in torch is told."""
        self._spoil_free_memory(message["workload"])
        with OperationNames() as operations:
            answer = super()._check(message)
        return {**answer, "torch_ops": sorted(operations.names)}

    def _spoil_free_memory(self, workload: str) -> None:
        """Leaves poison in the memory that outputs are made of next: the allocator hands it out as it is."""
        with suppress(torch.OutOfMemoryError):
            places = self.places_of_outputs(workload)
            spoilt = [torch.empty(p["shape"], dtype=getattr(torch, p["dtype"]), device="cuda") for p in places]
            for buffer in spoilt:
                poison_(buffer)

    def _dry_run(self) -> str:
        """Compiles and loads every kernel without launching one. What host code makes of that is no verdict."""
        for name, program in self.programs.items():
            try:
                with compile_only():
                    program(*self.inputs_of(name))
            except Exception as error:  # candidate code: the real run decides
                return f"{type(error).__name__}: {error}"
        return ""


@contextmanager
def compile_only() -> Iterator[None]:
    """Makes every launch of a Triton kernel compile it and load its machine code, and not run it."""
    from triton.runtime.jit import JITFunction

    run = JITFunction.run

    def warm_up(self: Any, *args: Any, **kwargs: Any) -> Any:
        kernel = run(self, *args, **{**kwargs, "warmup": True})
        if kernel is not None:
            kernel._init_handles()
        return kernel

    JITFunction.run = warm_up
    try:
        yield
    finally:
        JITFunction.run = run


def _misfit(outputs: list[Any], places: list[Message]) -> str:
    """Why these outputs are not what the reference returns; empty when they fit."""
    if len(outputs) != len(places):
        return f"{len(outputs)} outputs, the reference returns {len(places)}"
    for i, (output, place) in enumerate(zip(outputs, places, strict=True)):
        if type(output) is not Tensor:
            return f"output {i} is a {type(output).__name__}, it must be exactly a torch.Tensor"
        if list(output.shape) != place["shape"]:
            return f"output {i} has shape {tuple(output.shape)}, the reference's has {tuple(place['shape'])}"
        if str(output.dtype) != f"torch.{place['dtype']}":
            return f"output {i} is {output.dtype}, the reference's is torch.{place['dtype']}"
        if output.device.type != "cuda":
            return f"output {i} is on {output.device}, the inputs are on cuda"
    return ""


def session(channel: Channel, payload: Message) -> None:
    """The job that a zygote's child runs."""
    CandidateSession(channel, payload).serve()
