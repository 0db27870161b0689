"""The judge's side of a session on a GPU: memory shared with one child at a time, and requests with a deadline."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from db.records import Gate, GateResult, Workload
from evaluators.cascade import Refusal
from evaluators.device_memory import Canary, Region, SharedRegion, lay_out, moved, place_value
from evaluators.gates.integrity import bits, check_canaries, check_inputs, check_weights, poison_
from evaluators.gates.layout import borrowed_outputs
from evaluators.input_sets import Drawn, InputSet, ReferenceSets
from evaluators.sandbox.client import ChildEnded, Exit
from evaluators.timing import Method, Rotation

Message = dict[str, Any]
T = TypeVar("T")
LOAD_DEADLINE_S = 60.0
NVML_ASSERT = "nvmlInit"  # torch asks for statistics when it runs out of memory, and a sandbox has none


class Peer(Protocol):
    """The process at the other end: a child of a zygote, or the process of a baseline."""

    def send(self, message: Message) -> None: ...
    def receive(self, timeout_s: float | None = None) -> Message: ...
    def kill(self) -> None: ...


class SessionLost(Exception):  # noqa: N818  what happened, for whoever decides whose fault it is
    """The process ended, broke the protocol, or did not answer in time. `args[0]` says which, in a sentence."""


class Slot:
    """Shared memory of one session: weights and inputs of every workload, and output buffers.

    Each session has a slot of its own, filled from copies that are never shared, so that no candidate can spoil the
    inputs of another.
    """

    def __init__(
        self,
        sets: ReferenceSets,
        n_timed: int = 1,
        device: int = 0,
        allocate: Callable[[int, int], Region] = SharedRegion.allocate,
    ) -> None:
        """
        Args:
            n_timed: input sets of the timed workload, one after the other; the first is what checks use, too.
            allocate: memory of so many bytes on a device.
        """
        self._sets = sets
        self._firsts: dict[str, tuple[InputSet, Drawn, dict[str, Tensor]]] = {}
        self.places: dict[str, Message] = {}
        inputs_end, outputs_end = 0, 0
        for wanted in sets.sets:
            if wanted.workload.name not in self._firsts:
                first = wanted, sets.drawn(wanted), sets.weights(wanted.workload)
                self._firsts[wanted.workload.name] = first
                n_sets = n_timed if wanted.workload.role == "full" else 1
                inputs_end, end = self._lay_out(*first, inputs_end, n_sets)
                outputs_end = max(outputs_end, end)
        self.inputs = allocate(inputs_end, device)
        self.outputs = allocate(outputs_end, device)
        self._canaries = [Canary(self.inputs, self._input_places()), Canary(self.outputs, self._output_places())]
        self._given: dict[str, list[list[Any]]] = {}
        self._targets: dict[str, list[list[Tensor]]] = {}

    def _lay_out(
        self, wanted: InputSet, drawn: Drawn, weights: dict[str, Tensor], start: int, n_sets: int
    ) -> tuple[int, int]:
        weight_places, start = lay_out(list(weights.values()), start)
        input_places, end = lay_out(drawn.inputs, start)
        output_places, outputs_end = lay_out(drawn.expected)
        asked = [{**p, "asked": list(e.stride())} for p, e in zip(output_places, drawn.expected, strict=True)]
        self.places[wanted.workload.name] = {
            "init_args": self._sets.references[wanted.workload.name].init_args(),
            "weights": dict(zip(weights, weight_places, strict=True)),
            "inputs": input_places,
            "n_sets": n_sets,
            "set_bytes": end - start,
            "outputs": asked,
            "borrowed": list(borrowed_outputs(drawn.expected, [*drawn.inputs, *weights.values()])),
        }
        return start + n_sets * (end - start), outputs_end

    def _input_places(self) -> list[Message]:
        found: list[Message] = []
        for places in self.places.values():
            found += places["weights"].values()
            for k in range(places["n_sets"]):
                found += moved(places["inputs"], k * places["set_bytes"])
        return found

    def _output_places(self) -> list[Message]:
        return [place for places in self.places.values() for place in places["outputs"]]

    def describe(self) -> Message:
        """What a child needs to open this slot."""
        return {
            "inputs": {"handle": self.inputs.handle, "n_bytes": self.inputs.n_bytes},
            "outputs": {"handle": self.outputs.handle, "n_bytes": self.outputs.n_bytes},
        }

    def reset(self) -> None:
        """Weights and valid inputs in their places and poison everywhere else, as a new child must find them. Needs no
        lock: see `SessionPool`."""
        for canary in self._canaries:
            canary.set()
        for name, (wanted, drawn, weights) in self._firsts.items():
            places = self.places[name]["weights"]
            for weight_name, weight in weights.items():
                self.inputs.tensor(places[weight_name]).copy_(weight)
            self.write_sets(wanted.workload, [drawn.inputs], n_sets=1)
        self._wait()

    def write(self, workload: Workload, drawn: Drawn) -> None:
        """Puts one drawing into the inputs of a workload and poison into its outputs, and waits for both."""
        self.write_sets(workload, [drawn.inputs], n_sets=1)
        self.poison(workload)

    def write_sets(self, workload: Workload, draws: Sequence[Sequence[Any]], n_sets: int | None = None) -> None:
        """Puts drawings into the first `n_sets` input sets of a workload, in turn, and waits; None is all of them."""
        targets: list[Tensor] = []
        values: list[Tensor] = []
        sources = [_tensors(one) for one in draws]
        for k in range(self.places[workload.name]["n_sets"] if n_sets is None else n_sets):
            targets += self._targets_of(workload)[k]
            values += sources[k % len(sources)]
        if targets:
            torch._foreach_copy_(targets, values)
        self._wait()

    def spread(self, workload: Workload) -> None:
        """Puts what the first input set holds into all others."""
        self.write_sets(workload, [[v.clone() if isinstance(v, Tensor) else v for v in self.given(workload)]])

    def poison(self, workload: Workload) -> None:
        """Puts poison into the outputs of a workload, and waits."""
        for output in self.delivered(workload):
            poison_(output)
        self._wait()

    def _wait(self) -> None:
        self.inputs.wait()

    def given(self, workload: Workload, k: int = 0) -> list[Any]:
        """The inputs as the child sees them: those of set `k`."""
        if workload.name not in self._given:
            places = self.places[workload.name]
            sets = (moved(places["inputs"], k * places["set_bytes"]) for k in range(places["n_sets"]))
            self._given[workload.name] = [[place_value(self.inputs, p) for p in one] for one in sets]
        return self._given[workload.name][k]

    def _targets_of(self, workload: Workload) -> list[list[Tensor]]:
        """The tensors among the inputs of every set, as bits: there may be hundreds of sets, written often."""
        if workload.name not in self._targets:
            n_sets = self.places[workload.name]["n_sets"]
            self._targets[workload.name] = [_tensors(self.given(workload, k)) for k in range(n_sets)]
        return self._targets[workload.name]

    def delivered(self, workload: Workload) -> list[Tensor]:
        """The output buffers as the child filled them."""
        return [self.outputs.tensor(place) for place in self.places[workload.name]["outputs"]]

    def check_inputs(self, workload: Workload, written: Sequence[Any], k: int = 0) -> GateResult:
        """Whether the inputs of set `k` are still what was written."""
        return check_inputs(self.given(workload, k), written)

    def check_rest(self) -> GateResult:
        """Whether the weights are still what they were, and the memory between all tensors."""
        for name, (_, _, weights) in self._firsts.items():
            places = self.places[name]["weights"]
            answer = check_weights({n: self.inputs.tensor(place) for n, place in places.items()}, weights)
            if not answer.passed:
                return answer
        return check_canaries([canary.is_whole() for canary in self._canaries])

    def close(self) -> None:
        self.inputs.close()
        self.outputs.close()


def _tensors(values: Sequence[Any]) -> list[Tensor]:
    return [bits(value) for value in values if isinstance(value, Tensor)]


class GpuSession:
    """Requests to one process that runs programs, and what the judge's own clock says about them."""

    def __init__(self, peer: Peer, slot: Slot, *, deadline_s: float, load_deadline_s: float = LOAD_DEADLINE_S) -> None:
        """
        Args:
            load_deadline_s: as long as preparation may take: where its cache is not at hand, everything compiles again.
        """
        self.slot = slot
        self._peer = peer
        self._deadline_s = deadline_s
        self._load_deadline_s = max(deadline_s, load_deadline_s)
        self._ends_at = math.inf
        self._allowed_s = math.inf
        self.rotation = Rotation(1, 1, True)
        self.method: Method = "graph"
        self.n_launches = 1
        self.torch_ops: tuple[str, ...] = ()  # that host code called when it was checked last
        self.last_s = 0.0  # of the last answer, by the judge's clock

    def allow(self, seconds: float) -> None:
        """Everything that is asked from now on has to be answered within so many seconds in all."""
        self._ends_at, self._allowed_s = time.monotonic() + seconds, seconds

    def wait_open(self, timeout_s: float) -> float:
        """Waits for the CUDA context of the process; the seconds that it took there."""
        return _read(lambda answer: _time_of(answer["opened"]), self._receive(timeout_s))

    def load(self, message: Message) -> Message:
        """Sends what to load, with the places of every workload. May compile, and so has a deadline of its own."""
        return self._ask({"do": "load", "workloads": self.slot.places, **message}, self._load_deadline_s)

    def check(self, workload: Workload) -> str:
        """Runs the program once on what the slot holds; why its outputs do not fit, or nothing."""
        answer = self._ask({"do": "check", "workload": workload.name})
        names = answer.get("torch_ops")
        self.torch_ops = tuple(map(str, names)) if isinstance(names, list) else ()
        return str(answer.get("refused", ""))

    def idle(self, workload: Workload) -> str:
        """As `check`, but no kernel of the program runs; why nothing that fits was delivered, or nothing."""
        return str(self._ask({"do": "idle", "workload": workload.name}).get("refused", ""))

    def time(self, workload: Workload, rotation: Rotation, watched: int, method: Method | None = None) -> str:
        """Opens a timer on what the slot holds; why it does not use a graph, or nothing."""
        message = {"do": "time", "workload": workload.name, "rotation": list(rotation), "watched": watched}
        answer = self._ask({**message, "method": method})
        self.method = "graph" if answer.get("method") == "graph" else "events"
        self.rotation = rotation
        self.n_launches = rotation.n_launches if self.method == "graph" else 1
        return str(answer.get("why", ""))

    def replay_us(self, n: int) -> list[float]:
        """`n` claimed latencies of one launch, in microseconds."""
        return _read(lambda answer: [_time_of(answer["us"][i]) for i in range(n)], self._ask({"do": "replay", "n": n}))

    def sustain(self, n: int) -> tuple[float, float]:
        """`n` replays without a pause: seconds as the process claims, and as the judge saw them."""
        answer = self._ask({"do": "sustain", "n": n})
        return _read(lambda found: _time_of(found["seconds"]), answer), self.last_s

    def call_us(self, n_calls: int, n_repeats: int) -> list[float]:
        """Claimed microseconds of one call, host code included."""
        answer = self._ask({"do": "call", "n_calls": n_calls, "n_repeats": n_repeats})
        return _read(lambda found: [_time_of(found["us"][i]) for i in range(n_repeats)], answer)

    def call_kept_us(self, n_calls: int, kept: int) -> tuple[float, str]:
        """As `call_us`, once, with the outputs of call `kept` delivered; why they do not fit, or nothing."""
        answer = self._ask({"do": "call", "n_calls": n_calls, "n_repeats": 1, "kept": kept})
        return _read(lambda found: _time_of(found["us"][0]), answer), str(answer.get("refused", ""))

    def deliver(self, launch: int) -> str:
        """Delivers the outputs of one launch of the last replay; why they do not fit, or nothing."""
        return str(self._ask({"do": "deliver", "launch": launch}).get("refused", ""))

    def changes(self) -> list[str]:
        """What the program has changed in its process, a sentence each."""
        changed = self._ask({"do": "state"}).get("changed")
        return [str(sentence) for sentence in changed] if isinstance(changed, list) else ["it does not say"]

    def release(self) -> None:
        """Drops the timer and its memory."""
        self._ask({"do": "release"})

    def _ask(self, message: Message, deadline_s: float | None = None) -> Message:
        left_s = self._ends_at - time.monotonic()
        if left_s <= 0:
            raise SessionLost(f"not judged within {self._allowed_s:g} s: every answer is slow")
        start = time.perf_counter()
        with contextlib.suppress(OSError, ChildEnded):  # it has ended; receiving says how
            self._peer.send(message)
        answer = self._receive(min(deadline_s or self._deadline_s, left_s), message["do"])
        self.last_s = time.perf_counter() - start
        return answer

    def _receive(self, timeout_s: float, doing: str = "open") -> Message:
        try:
            return self._peer.receive(timeout_s)
        except TimeoutError:
            raise SessionLost(f"no answer to `{doing}` within {timeout_s:g} s: an endless loop?") from None
        except ChildEnded as ended:
            raise SessionLost(explain_exit(ended.exit)) from ended
        except EOFError as error:
            raise SessionLost(str(error)) from error


def explain_exit(exit: Exit) -> str:
    """How a child ended, as a reason: an operator reads it."""
    match exit.kind:
        case "error" if NVML_ASSERT in exit.detail:
            return "out of memory on the GPU"
        case "error":
            return exit.detail
        case "signal":
            return f"its process was ended by {exit.detail}"
        case "ok" | "exit":
            return f"its process ended itself before it answered {exit.detail}".rstrip()
        case _:
            return f"its process was stopped: {exit.detail}"


def _read(reader: Callable[[Message], T], answer: Message) -> T:
    """What a reader finds in the answer of an untrusted process. Raises `SessionLost` when it is not there."""
    try:
        return reader(answer)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise SessionLost(f"an answer that is none: {type(error).__name__}: {error}") from error


def _time_of(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number) or number <= 0:
        raise ValueError(f"{number!r} is no time")
    return number


def asked(gate: Gate, answer: str, what: str) -> None:
    """Raises `Refusal` when a process answered that it cannot deliver."""
    if answer:
        raise Refusal(gate, f"{answer} ({what})")
