"""A made-up kernel whose latency is known in closed form: for tests of the search itself, where no judge is needed.

A program is a list of `NAME = value` lines, the knobs of a row-wise reduction. Operators turn knobs in the text, as
real ones do; `Landscape` plays the judge. What a knob is worth depends on other knobs, some settings do not compile,
and the best of every instance lies elsewhere.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from db.hashing import program_id_of
from db.measures import Tier
from db.profile import Bottleneck, BottleneckReport, KernelKind, PerformanceState
from db.records import (
    Candidate,
    EntryPoint,
    Gate,
    GateResult,
    Latency,
    LatencyKind,
    Outcome,
    PrecisionClass,
    Profile,
    Verdict,
)
from islands.operators.base import Operator, Parent, Proposal

POWERS = [2**k for k in range(6)]
KNOBS: dict[str, list[int]] = {
    "BLOCK": [2**k for k in range(7, 17)],
    "WARPS": POWERS,
    "STAGES": [1, 2, 3, 4, 5],
    "ROWS": POWERS[:5],
    "ONLINE": [0, 1],
    "EVICT_LOAD": [0, 1, 2],
    "EVICT_STORE": [0, 1, 2],
    "CACHE": [0, 1, 2],
    "UNROLL": [1, 2, 4],
    "PERSISTENT": [0, 1],
    "MASK": [0, 1],
    "EXP2": [0, 1],
    "ALIGN": [0, 1],
    "SWIZZLE": [1, 2, 4, 8],
}
START = {"BLOCK": 1024, "WARPS": 4, "STAGES": 1, "ROWS": 1, "UNROLL": 1, "SWIZZLE": 1, "MASK": 1}
FREE = ("EVICT_LOAD", "EVICT_STORE", "CACHE", "UNROLL", "PERSISTENT", "MASK", "EXP2", "ALIGN", "SWIZZLE")
HARDWARE = "nvidia-h200"
BASELINE_US = 400.0


def write(knobs: dict[str, int]) -> str:
    """The program with these knobs."""
    return "".join(f"{name} = {value}\n" for name, value in knobs.items())


def read(source: str) -> dict[str, int]:
    """The knobs of a program."""
    return {name: int(value) for name, value in re.findall(r"^(\w+) = (-?\d+)$", source, re.MULTILINE)}


SEED_SOURCE = write({name: START.get(name, 0) for name in KNOBS})


@dataclass(frozen=True)
class Turn:
    """Sets one knob to another of its values: a technique as small as one can be."""

    knob: str
    values: Sequence[int]
    n_parents: int = 1
    cost: float = 1.0
    prior: float = 0.03

    @property
    def name(self) -> str:
        return f"turn_{self.knob.lower()}"

    def propose(self, parents: Sequence[Parent], rng: random.Random) -> Proposal | None:
        knobs = read(parents[0].source)
        choices = [value for value in self.values if value != knobs.get(self.knob)]
        if self.knob not in knobs or not choices:
            return None
        value = rng.choice(choices)
        source = write({**knobs, self.knob: value})
        return Proposal(source, self.name, f"{self.knob} {knobs[self.knob]} -> {value}", (parents[0].program_id,))


@dataclass(frozen=True)
class Cross:
    """Takes some of the knobs in which two parents differ from the second one."""

    name: str = "cross"
    n_parents: int = 2
    cost: float = 1.0
    prior: float = 0.03

    def propose(self, parents: Sequence[Parent], rng: random.Random) -> Proposal | None:
        first, second = read(parents[0].source), read(parents[1].source)
        differing = sorted(name for name in first if second.get(name, first[name]) != first[name])
        if len(differing) < 2:
            return None
        taken = rng.sample(differing, rng.randint(1, len(differing) - 1))
        source = write({**first, **{name: second[name] for name in taken}})
        return Proposal(source, self.name, ", ".join(taken), tuple(parent.program_id for parent in parents))


def operators() -> list[Operator]:
    """One operator for each knob, and the crossover."""
    return [*(Turn(name, values) for name, values in KNOBS.items()), Cross()]


@dataclass
class Landscape:
    """A judge for one made-up problem. Instances differ in the length of a row and in what each knob is worth.

    A landscape that `explains` says with each verdict which part of the cost function costs most.
    """

    instance: int = 0
    noise: float = 0.0
    explains: bool = False
    n_cols: int = field(init=False)
    ideal_load: float = field(init=False)  # elements a thread
    gains: dict[tuple[str, int], float] = field(init=False)

    def __post_init__(self) -> None:
        rng = random.Random(f"landscape/{self.instance}")
        self.n_cols = 2 ** rng.randint(10, 16)
        self.ideal_load = 2 ** rng.uniform(2.5, 6)
        self.sharpness = rng.uniform(0.03, 0.08)
        self.overlap = rng.uniform(0.05, 0.2)
        self.best_stages = rng.randint(2, 4)
        self.row_gain = rng.uniform(-0.05, 0.15)
        weights = {name: 10 ** rng.uniform(-3, -1.3) for name in FREE}  # most of them hardly matter
        self.gains = {(name, value): rng.gauss(0, weights[name]) for name in FREE for value in KNOBS[name]}
        self.ruggedness = rng.uniform(0.0, 0.02)
        self._rng = rng

    def latency_us(self, source: str) -> float | None:
        """Latency without noise; None when it would not compile."""
        k = read(source)
        n_loops = math.ceil(self.n_cols / k["BLOCK"])
        if k["BLOCK"] > 2 * self.n_cols or k["BLOCK"] * k["ROWS"] * k["STAGES"] > 2**17:
            return None
        load = k["BLOCK"] * k["ROWS"] / (32 * k["WARPS"])
        passes = 1.0 if n_loops == 1 else (1.35 if k["ONLINE"] else 1.9)
        fit = self.sharpness * math.log2(load / self.ideal_load) ** 2 + max(0.0, load - 128) / 64
        stages = self.overlap * abs(k["STAGES"] - self.best_stages) if n_loops > 1 else 0.02 * (k["STAGES"] - 1)
        rows = -self.row_gain * math.log2(k["ROWS"]) if n_loops == 1 else 0.1 * math.log2(k["ROWS"])
        free = sum(self.gains[name, k[name]] for name in FREE)
        return 200.0 * passes * math.exp(fit + stages + rows + free + self._interaction(k))

    def _interaction(self, knobs: dict[str, int]) -> float:
        """What neighbouring pairs of knobs do to each other: fixed, but without any pattern."""
        items = sorted(knobs.items())
        pairs = zip(items, items[1:] + items[:1], strict=True)
        return self.ruggedness * sum(_chance(self.instance, *one, *other) for one, other in pairs)

    def judge(self, candidate: Candidate, **changes: object) -> Verdict:
        """The verdict of a candidate."""
        latency_us = self.latency_us(candidate.source)
        if latency_us is None:
            return failed(candidate)
        if self.explains:
            changes = {"bottleneck": self.report(candidate.source), **changes}
        return correct(candidate, latency_us * math.exp(self._rng.gauss(0, self.noise)), **changes)

    def report(self, source: str) -> BottleneckReport:
        """What limits a program: the part of `latency_us` that costs most."""
        k = read(source)
        is_looping = self.n_cols > k["BLOCK"]
        load = k["BLOCK"] * k["ROWS"] / (32 * k["WARPS"])
        fit = self.sharpness * math.log2(load / self.ideal_load) ** 2
        costs = {
            Bottleneck.DRAM_BANDWIDTH: math.log(1.9) if is_looping and not k["ONLINE"] else 0.02,
            Bottleneck.MEMORY_LATENCY: self.overlap * abs(k["STAGES"] - self.best_stages) if is_looping else 0.0,
            Bottleneck.SPILLS: fit if load > self.ideal_load else 0.0,
            Bottleneck.PARALLELISM: fit if load <= self.ideal_load else 0.0,
        }
        first, second, *_ = sorted(costs, key=lambda bottleneck: -costs[bottleneck])
        kind = KernelKind.REDUCTION if is_looping else KernelKind.ROW
        state = PerformanceState(primary=first, secondary=second, kernel_kind=kind, architecture="sm_90")
        return BottleneckReport(tier=Tier.MEMORY_BOUND, source="compiled", state=state, limit=f"limited by {first}")


@cache
def _chance(*key: object) -> float:
    """A draw from the standard normal distribution that is the same for the same key."""
    return random.Random(repr(key)).gauss(0, 1)


def correct(
    candidate: Candidate,
    latency_us: float,
    *,
    tier: Tier = Tier.MEMORY_BOUND,
    kind: LatencyKind = LatencyKind.MEASURED,
    precision: PrecisionClass = PrecisionClass.REFERENCE,
    hardware_id: str = HARDWARE,
    memory_sol_pct: float = 70.0,
    bottleneck: BottleneckReport | None = None,
) -> Verdict:
    """A verdict that says: right, and this fast."""
    latency = Latency(
        kind=kind,
        method="graph" if kind is LatencyKind.MEASURED else "model",
        device_us=latency_us,
        low_us=latency_us * 0.99,
        high_us=latency_us * 1.01,
        baseline_us=BASELINE_US,
        baseline_name="compile",
    )
    return Verdict(
        **_names(candidate),
        hardware_id=hardware_id,
        outcome=Outcome.CORRECT,
        gates=(GateResult(gate=Gate.CORRECTNESS, passed=True),),
        precision=precision,
        latency=latency,
        tier=tier,
        profile=Profile(source="compiled", memory_sol_pct=memory_sol_pct),
        bottleneck=bottleneck,
    )


def failed(candidate: Candidate, reason: str = "out of shared memory") -> Verdict:
    """A verdict that says: refused."""
    gate = GateResult(gate=Gate.STATIC, passed=False, reason=reason)
    return Verdict(**_names(candidate), hardware_id=HARDWARE, outcome=Outcome.FAILED, gates=(gate,))


def _names(candidate: Candidate) -> dict[str, str]:
    return {
        "candidate_id": candidate.candidate_id,
        "run_id": candidate.run_id,
        "problem_id": candidate.problem_id,
        "program_id": program_id_of(candidate.source, EntryPoint.MODEL),
    }
