"""What taking a model apart answers. Plain records: they go from process to process and can be kept."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from db.records import Problem, Record, TensorSpec
from evaluators.decomposition.modules import Weight
from evaluators.decomposition.parts import Part
from evaluators.decomposition.steps import Configuration, Output


class Argument(Record):
    """Where an argument of the graph comes from: a weight of the state dict, an input of forward, or a fixed value.

    A fixed value is a tensor that the model holds outside its state dict; `values` are its elements as they lie in
    memory.
    """

    kind: Literal["weight", "input", "value"]
    name: str = ""  # of the weight
    index: int = 0  # of the input
    values: tuple[int | float | bool, ...] = ()
    spec: TensorSpec | None = None


class Graph(Record):
    """One compiled graph with all that is needed to run it without Inductor.

    `arguments` and `constants` say where each tensor comes from, in the order of `output.arguments` and
    `output.constants`; `answer` is what forward returns, written over the graph's returns: "{0}", "({0}, {1})".
    """

    output: Output
    arguments: tuple[Argument, ...]
    constants: tuple[Argument, ...] = ()
    weights: tuple[Weight, ...]
    n_inputs: int
    answer: str
    chosen: dict[str, Configuration]


class Share(Record):
    """Device time of one step, in microseconds, and the part of the whole that it is."""

    step: int
    name: str  # the kernel's, or the operation's: "aten.mm"
    device_us: float
    share: float
    is_extern: bool


class PartProblem(Record):
    """A part that is worth a search: its problem, and the share of device time that it can win back."""

    part: Part
    problem: Problem
    share: float
    reference: Literal["aten", "kernel"]
    efficiency: float | None = None  # of what the model runs, against the bandwidth of memory, in [0, 1]
    is_rewritten: bool = False  # its first program is not what the model runs: a loop in the place of a split scan


class LeftAlone(Record):
    """A part that is not searched, and why."""

    name: str
    share: float
    reason: str


class Decomposition(Record):
    """A model taken apart. Without a graph it cannot be stitched, and only the whole module can be searched."""

    problem: Problem
    graph: Graph | None = None
    parts: tuple[PartProblem, ...] = ()
    left_alone: tuple[LeftAlone, ...] = ()
    shares: tuple[Share, ...] = ()
    device_us: float = 0.0
    n_graphs: int = 0
    notes: tuple[str, ...] = ()  # what was assumed: evaluation mode, fixed shapes
    left_out: tuple[str, ...] = ()  # needless work that the module asks for and the graph does not do
    reason: str = ""  # why there is no graph
    degenerate: str | None = None  # why a speed-up of it says little, or ""; None where that is not known
    seconds: dict[str, float] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)

    @property
    def extern_share(self) -> float:
        """The part of device time that libraries take."""
        return sum(share.share for share in self.shares if share.is_extern)
