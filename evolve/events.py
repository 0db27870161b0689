"""What a run tells whoever watches it: plain frozen records, passed to a callback in the order in which they happen."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import Field

from db.llm_calls import LlmTotal
from db.records import Evaluation, Problem, Record, Run
from islands.summary import IslandSummary


class BestSoFar(Record):
    """The fastest correct program of a run, as progress shows it."""

    program_id: str
    latency_us: float
    speedup: float  # baseline over program
    technique: str
    island: int


class GateCount(Record):
    """How many candidates a gate was asked about, and how many it let through."""

    asked: int = 0
    passed: int = 0


class Progress(Record):
    """Where a run stands. Times in seconds."""

    n_judged: int = 0  # verdicts, duplicates included
    n_duplicates: int = 0  # answered from the archive
    n_failed: int = 0
    rate_per_min: float = 0.0  # verdicts a minute over the last half minute
    elapsed_s: float = 0.0
    time_left_s: float | None = None
    evaluations_left: int | None = None
    best: BestSoFar | None = None
    funnel: dict[str, GateCount] = Field(default_factory=dict)  # by gate, in the order of the cascade
    islands: tuple[IslandSummary, ...] = ()


class CounterReport(Record):
    """Whose hardware counters a run has read."""

    n_offered: int = 0  # programs that entered a cell, each once
    n_asked: int = 0
    n_read: int = 0
    gpu_s: float = 0.0  # for how long reading kept GPUs from judging
    why_not: str = ""  # why not of more: the last complaint, and how many did not get their turn


class RunResult(Record):
    """How a run ended."""

    run: Run
    problem: Problem
    progress: Progress
    best: Evaluation | None  # the fastest correct program; None when nothing was correct
    replaces_baseline: bool  # False: keep the baseline, nothing won
    evaluators_busy: tuple[float, ...] = ()  # for each, how much of the search it had a candidate, once warm
    counters: CounterReport | None = None  # None where no GPU judged
    asked: LlmTotal | None = None  # what language models were asked, in sum over all sittings; None: nothing
    n_waiting: int = 0  # questions for language models that were written down and not answered
    digest: str = ""  # of a run that went in order: equal for two that judged the same, with the same results
    best_path: str = ""  # the best program on disk
    report_path: str = ""
    report_error: str = ""  # why there is no report


class RunStarted(Record):
    """The problem is loaded, the baseline is known, the islands exist."""

    run: Run
    problem: Problem
    baseline_name: str
    baselines_us: dict[str, float]  # every baseline that was timed, by name
    resumed: bool = False
    isolation: str = ""  # how candidates are confined: "namespaces" or "subreaper"
    missing: tuple[str, ...] = ()  # layers of the sandbox that the machine refuses, by name


class Judged(Record):
    """A verdict is in the archive and its island has been told."""

    evaluation: Evaluation
    status: str  # AddStatus of the island's grid, by name


class Migrated(Record):
    """Elites went from one island to another."""

    source: int
    target: int
    n_migrants: int


class Ticked(Record):
    """Time for a look: sent about twice a second."""

    progress: Progress


class Interrupted(Record):
    """Somebody wants the run to end: what is being judged is finished, nothing new is asked."""


class ModelsSilent(Record):
    """No language model answers any more; the search goes on without them, unless it has no program to go on with."""

    reason: str
    ends_run: bool = False


class NoAnswer(Record):
    """A run without a first program asked a language model in vain; it asks again."""

    reason: str


class CrewChanged(Record):
    """A process died and was replaced, or evaluators came or could not be used."""

    what: str  # a line for people


class RunEnded(Record):
    """The last event of a run."""

    result: RunResult


Event = RunStarted | Judged | Migrated | Ticked | Interrupted | ModelsSilent | NoAnswer | CrewChanged | RunEnded
OnEvent = Callable[[Event], None]
