"""The base of every structural technique: choose a site, rewrite it, check that the result is a new program."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from db.hashing import canonical_source
from db.records import Launch as CapturedLaunch
from db.records import Verdict
from islands.operators.base import Parent, Proposal
from islands.operators.structural.analysis import Program, analyse
from islands.operators.structural.text import Edit, splice

S = TypeVar("S")

MAX_ATTEMPTS = 6


class Rewrite(NamedTuple):
    """What a technique does to a source, and how a reader would say it."""

    edits: tuple[Edit, ...]
    detail: str


class Observed:
    """What the judge saw of a parent's launches at the timed workload; empty where nothing was captured."""

    def __init__(self, verdict: Verdict | None) -> None:
        captures = verdict.captures if verdict is not None else ()
        # the timed workload is the one that launches the most programs
        timed = max(captures, key=lambda c: sum(_n_programs(x) for x in c.launches), default=None)
        self.hardware_id = verdict.hardware_id if verdict is not None else ""
        self._launches: dict[str, CapturedLaunch] = {x.kernel: x for x in timed.launches} if timed else {}

    def value(self, kernel: str, parameter: str) -> int | None:
        """The value of a compile-time parameter or of `num_warps`, or None when it was not seen."""
        launch = self._launches.get(kernel)
        if launch is None:
            return None
        value: Any = launch.num_warps if parameter == "num_warps" else launch.constexprs.get(parameter)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def n_programs(self, kernel: str) -> int | None:
        """How many programs a kernel was launched with, or None when it was not seen."""
        launch = self._launches.get(kernel)
        return None if launch is None else _n_programs(launch)

    def was_launched(self, kernel: str) -> bool:
        """False only where captures exist and the kernel is in none of them."""
        return not self._launches or kernel in self._launches


def _n_programs(launch: CapturedLaunch) -> int:
    return launch.grid[0] * launch.grid[1] * launch.grid[2]


class Context(NamedTuple):
    """What a technique knows when it rewrites."""

    program: Program
    observed: Observed
    rng: random.Random


class Technique(ABC, Generic[S]):
    """One named optimisation of one parent. An `Operator`.

    A subclass says where it applies (`sites`, computed once per program) and what it writes there (`rewrite`).
    `citation` says where the optimisation is described.
    """

    name: str
    citation: str
    cost: float = 1.0
    prior: float = 0.02
    n_parents: int = 1

    @abstractmethod
    def sites(self, program: Program) -> Sequence[S]:
        """Where the technique applies; empty when nowhere. In an order that depends on the source alone."""

    @abstractmethod
    def rewrite(self, context: Context, site: S) -> Rewrite | None:
        """The edits at one site, or None when the draw gave nothing new."""

    def kernel_of(self, site: S) -> str:
        """The kernel that a site belongs to; empty when it belongs to none. Kernels that never ran are not edited."""
        return getattr(site, "kernel", "")

    def propose(self, parents: Sequence[Parent], rng: random.Random) -> Proposal | None:
        """One edit of the first parent. See `Operator.propose`."""
        parent = parents[0]
        program = analyse(parent.source)
        if program is None:
            return None
        context = Context(program, Observed(parent.verdict), rng)
        sites = program.derived(("sites", self.name), lambda: list(self.sites(program)))
        sites = [s for s in sites if _may_run(context, self.kernel_of(s))]
        for _ in range(MAX_ATTEMPTS if sites else 0):
            rewrite = self.rewrite(context, rng.choice(sites))
            source = None if rewrite is None else new_program(program, rewrite.edits)
            if rewrite is not None and source is not None:
                return Proposal(source, self.name, rewrite.detail, (parent.program_id,))
        return None


def _may_run(context: Context, kernel: str) -> bool:
    """Whether a kernel of this source is launched, as far as host code and the judge show."""
    program = context.program
    known = program.derived("launched", lambda: {launch.kernel_name for launch in program.launches})
    return not kernel or program.runs(kernel, lambda name: name in known and context.observed.was_launched(name))


def new_program(program: Program, edits: Sequence[Edit]) -> str | None:
    """The edited source where it parses and says something else than before, else None."""
    source = splice(program.source, edits)
    if source is None or source == program.source:
        return None
    try:
        canonical = canonical_source(source)
    except (SyntaxError, ValueError, RecursionError):
        return None
    before = program.derived("canonical", lambda: canonical_source(program.source))
    return source if canonical != before else None
