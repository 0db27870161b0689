"""What improving a whole model tells: while it goes on, and at its end. Plain frozen records."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import Field

from db.records import PrecisionClass, Record
from evaluators.decomposition.classify import GAIN, ModelResult
from evaluators.decomposition.records import Decomposition, LeftAlone
from evaluators.report import BaselineReport
from evolve.events import Event

STITCH = "stitch"  # what refuses winners that cannot stand in one file; the operator of those that can


class RunnerUp(Record):
    """Another program of a part that is faster than the kernels that the model runs now."""

    source: str = Field("", exclude=True)  # which the archive has
    program_id: str
    speedup: float  # over the kernels that the model runs now
    over_baseline: float | None = None  # over the fastest way of compiling the problem by itself
    error_ratio: float | None = None  # against float64, over the reference's own error


class Found(Record):
    """What one search found. Without a correct program, `source` is empty and `reason` says why."""

    run_id: str = ""
    source: str = ""
    program_id: str = ""
    speedup: float | None = None  # over the kernels that the model runs now
    over_baseline: float | None = None  # over the fastest way of compiling the problem by itself
    error_ratio: float | None = None  # against float64, over the reference's own error
    n_judged: int = 0
    elapsed_s: float = 0.0
    is_interrupted: bool = False
    has_failed: bool = False  # it ended before its time: of what was judged until then the archive knows
    reason: str = ""
    runners_up: tuple[RunnerUp, ...] = ()  # of a part, for a file that its program spoils


class PartResult(Record):
    """A part that was worth a search, and what became of it."""

    name: str
    first: int  # steps of the output that it stands for
    last: int
    kernels: tuple[str, ...]
    share: float  # of the model's device time
    found: Found = Found()
    is_used: bool = False  # its winner is in the delivered file

    @property
    def gain(self) -> float:
        """The part of the model's device time that its program would win back; 0 where nothing got faster."""
        speedup = self.found.speedup
        return 0.0 if speedup is None else max(0.0, self.share * (1 - 1 / speedup))

    @property
    def has_runner_up(self) -> bool:
        """Whether its program is a runner-up in the place of what its search found best."""
        return any(other.program_id == self.found.program_id for other in self.found.runners_up)

    def with_program(self, program_id: str) -> PartResult:
        """With a runner-up in the place of the program that was found; itself where it has that program."""
        named = [other for other in self.found.runners_up if other.program_id == program_id]
        if not named:
            return self
        other = named[0]
        update = {name: getattr(other, name) for name in RunnerUp.model_fields}
        return self.model_copy(update={"found": self.found.model_copy(update=update)})


class Attempt(Record):
    """A file that was put together and judged as a program of the whole model."""

    parts: tuple[str, ...]  # whose winners are in it
    programs: tuple[str, ...] = ()  # ids of those winners
    runners_up: tuple[str, ...] = ()  # parts of which a runner-up takes the place of the winner
    note: str = ""  # why it was put together so: what was refused before, and the reason
    source: str = ""
    program_id: str = ""
    is_correct: bool = False
    replaces_baseline: bool = False
    speedup: float | None = None  # over the fastest way of compiling the module
    latency_us: float | None = None  # of the device
    error_ratio: float | None = None  # against float64, over the reference's own error
    roofline_efficiency: float | None = None  # of the whole, in [0, 1]
    refused_by: str = ""  # the gate
    reason: str = ""

    @property
    def is_accepted(self) -> bool:
        """Whether it may be delivered: it passed every gate and is faster by more than 3%."""
        return self.replaces_baseline and self.speedup is not None and self.speedup > GAIN

    @property
    def is_compilers_fault(self) -> bool:
        """Whether what the compiler wrote is refused as it is, without any winner: then no winner can help."""
        return not self.parts and not self.is_correct


class Conditions(Record):
    """When a model was improved, with how much budget and whom to ask."""

    started_at: float  # seconds since the epoch
    evaluations: int | None  # verdicts of all searches together, at most; None: as many as fit into the time
    time_s: float | None = None  # of all searches together, at most
    islands: int = 1
    models: tuple[str, ...] = ()


class ModelRun(Record):
    """How it ended. `best_source` is the delivered file, empty where the baseline stays."""

    run_id: str = ""
    problem_name: str
    problem_id: str = ""
    result: ModelResult
    decomposition: Decomposition
    parts: tuple[PartResult, ...] = ()
    whole: Found | None = None  # of the search of the module itself, where it had somewhere to start
    attempts: tuple[Attempt, ...] = ()
    best_source: str = ""
    is_interrupted: bool = False
    elapsed_s: float = 0.0
    precision: PrecisionClass = PrecisionClass.REFERENCE
    hardware: str = ""
    baseline: BaselineReport | None = None  # how fast the module runs eagerly and compiled
    conditions: Conditions | None = None  # as the archive has them
    folder: str = ""
    best_path: str = ""
    report_path: str = ""

    @property
    def left_alone(self) -> tuple[LeftAlone, ...]:
        return self.decomposition.left_alone


class TakenApart(Record):
    """The parts are known."""

    decomposition: Decomposition


class SearchBegins(Record):
    """A part is searched next, or, where `share` is 1, the module itself."""

    name: str
    share: float
    evaluations: int
    time_s: float | None = None


class SearchEnded(Record):
    """What was found."""

    name: str
    found: Found


class PutTogether(Record):
    """A file with winners was judged."""

    attempt: Attempt


ModelEvent = Event | TakenApart | SearchBegins | SearchEnded | PutTogether
OnModelEvent = Callable[[ModelEvent], None]
