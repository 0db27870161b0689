"""The child's side of judging on a GPU: obeys the judge's requests, one JSON message each.

A child is opened before its candidate is known, so that its CUDA context is there when it is needed. It sees inputs and
output buffers as shared device memory, never the reference nor an expected value. Requests, in their usual order:
`load` (import, build, compile), `check` (run once, deliver outputs), `idle` (again, without its kernels), `time` (open
a timer over the sets that the judge has written), `replay`, `sustain`, `deliver` (outputs of a launch of the last
replay), `call`, `state` (what the program changed in its process), `release`. An exception ends the child and is the
candidate's. Whatever is timed or delivered ends with a synchronisation of the whole device, other streams included.
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

from db.records import PrecisionClass, TensorSpec
from evaluators.capture.launches import answering_nothing
from evaluators.capture.torch_ops import OperationNames
from evaluators.device_memory import SharedRegion, moved, place_value
from evaluators.gates.integrity import poison_
from evaluators.gates.layout import misfit
from evaluators.precision import apply_precision
from evaluators.process_state import KeptWeights, differences, observe
from evaluators.sandbox.channel import Channel
from evaluators.timing import (
    Program,
    Rotation,
    Timer,
    call_us,
    flatten_outputs,
    open_timer,
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
            "deliver": self._deliver_launch,
            "call": self._call,
            "state": self._state,
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
        self._sets = [self.inputs_of(self._workload, k) for k in range(rotation.n_sets)]
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

    def _deliver_launch(self, message: Message) -> Message:
        assert self._timer is not None
        return self._deliver(self._timer.outputs(message["launch"]), self._workload)

    def _call(self, message: Message) -> Message:
        """Times calls; where one is to be kept, what it returned is delivered as well."""
        program, kept = self.programs[self._workload], message.get("kept")
        us, output = call_us(program, self._sets, message["n_calls"], message["n_repeats"], kept)
        if kept is None:
            return {"us": us}
        return {"us": us, **self._deliver(flatten_outputs(output), self._workload)}

    def _state(self, _: Message) -> Message:
        """What is not as it was before the program was loaded; nothing for a program of our own."""
        return {"changed": []}

    def _release(self, _: Message) -> Message:
        self._timer = None
        self._sets = []
        return {}

    def inputs_of(self, workload: str, k: int = 0) -> list[Any]:
        """The inputs as the judge laid them out, in shared memory: those of set `k`."""
        places = self._places[workload]
        return [place_value(self.inputs_region, p) for p in moved(places["inputs"], k * places["set_bytes"])]

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
        program = self.programs[workload]
        own = [*program.parameters(), *program.buffers()] if isinstance(program, torch.nn.Module) else []
        given = [*self.inputs_of(workload), *self.weights_of(workload).values(), *own]
        refused = _misfit(outputs, places, given, self._places[workload]["borrowed"])
        if refused:
            return {"refused": refused}
        for output, place in zip(outputs, places, strict=True):
            self._outputs_region.tensor(place).copy_(output)
        torch.cuda.synchronize()
        return {"delivered": len(outputs)}


class CandidateSession(Session):
    """Runs one candidate: the source comes with the request to load."""

    def serve(self) -> None:
        """As for any program; launches answer nothing, as in a capture and under the interpreter."""
        with answering_nothing():
            super().serve()

    def load(self, message: Message) -> Message:
        from evaluators.sandbox.candidate import build, load_candidate

        start = time.perf_counter()
        self._before = observe()
        self._kept: list[KeptWeights] = []
        module = load_candidate(message["source"], Path("candidate.py"))
        for name, places in message["workloads"].items():
            weights = self.weights_of(name)
            program = build(module, message["entry_point"], places["init_args"], weights, "cuda")
            self.programs[name] = program
            self._kept.append(KeptWeights(program, weights))
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

    def _state(self, _: Message) -> Message:
        """What the program changed in its process: flags, functions, threads, weights."""
        torch.cuda.synchronize()
        changed = [sentence for kept in self._kept for sentence in kept.changed()]
        return {"changed": differences(self._before, observe()) + changed}

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


def _misfit(outputs: list[Any], places: list[Message], given: list[Any], borrowed: list[int]) -> str:
    """Why these outputs are not what the reference returns; empty when they fit."""
    specs = [TensorSpec(shape=tuple(p["shape"]), dtype=p["dtype"], strides=tuple(p["asked"])) for p in places]
    refused = misfit(outputs, specs, given, borrowed)
    if refused:
        return refused
    elsewhere = (i for i, output in enumerate(outputs) if output.device.type != "cuda")
    return next((f"output {i} is on {outputs[i].device}, the inputs are on cuda" for i in elsewhere), "")


def session(channel: Channel, payload: Message) -> None:
    """The job that a zygote's child runs."""
    CandidateSession(channel, payload).serve()
