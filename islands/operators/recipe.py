"""recipe: what made another problem's program fast, done to this one in a single step.

A search takes many small steps, each judged, to a program that is good. Where a problem resembles one that was searched
before, the same steps are likely to be right: the rewrites in their order, then the knobs as the winner had them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from db.knowledge import MOST_OCTAVES
from db.recipes import LEAST_OCTAVES, Recipe, Setting
from islands.knowledge.situation import kernel_kind_of
from islands.operators.base import Operator, Parent, Proposal
from islands.operators.structural.analysis import Program, analyse
from islands.operators.structural.choices import current_value
from islands.operators.structural.knobs import Knob, KnobKind, knobs_of
from islands.operators.structural.setting import fits_threads
from islands.operators.structural.technique import Observed, new_program

NAME = "recipe"
KINDS = (KnobKind.WARPS, KnobKind.STAGES, KnobKind.TILE)

WHOLE, PARTIAL = 0.6, 0.2
"""How often a recipe is followed whole, how often its rewrites are alone; else its settings are."""

HOPE = 0.8
"""What is expected of a recipe on another problem, of what it gained on its own."""

MAX_ATTEMPTS = 4


class FollowRecipe:
    """Draws a recipe by what it gained, and follows it as far as it applies. An `Operator`.

    Only kernels of one kind follow each other's recipes: what made reductions fast made a scan 1.3 to 11 times slower.
    So what to expect is said for each kind of which a recipe is known, and for all together where none is.
    """

    name = NAME
    n_parents = 1
    cost = 10.0

    def __init__(self, operators: Sequence[Operator], recipes: Sequence[Recipe]) -> None:
        self._operators = {operator.name: operator for operator in operators}
        self._recipes = list(recipes)
        self.prior = _expected(recipes)
        kinds = {kernel_kind_of(recipe.state) for recipe in recipes} - {""}
        self.kind_priors = {kind: _expected([r for r in recipes if _suits(r, kind)]) for kind in sorted(kinds)}

    def propose(self, parents: Sequence[Parent], rng: random.Random) -> Proposal | None:
        """The first parent after a recipe. See `Operator.propose`."""
        parent = parents[0]
        fitting = [recipe for recipe in self._recipes if _is_alike(recipe, parent)]
        for _ in range(MAX_ATTEMPTS if fitting else 0):
            recipe = rng.choices(fitting, [recipe.octaves for recipe in fitting])[0]
            source, done = self._follow(recipe, parent, rng)
            if done:
                return Proposal(source, self.name, f"as {recipe.problem}: {', '.join(done)}", (parent.program_id,))
        return None

    def _follow(self, recipe: Recipe, parent: Parent, rng: random.Random) -> Followed:
        draw = rng.random()
        followed = Followed(parent.source)
        if draw < WHOLE + PARTIAL:
            followed = self._rewritten(recipe.techniques, parent, rng)
        if not WHOLE <= draw < WHOLE + PARTIAL:
            set_up = with_settings(parent._replace(source=followed.source), recipe.settings)
            followed = Followed(set_up.source, followed.done + set_up.done)
        return followed

    def _rewritten(self, techniques: Sequence[str], parent: Parent, rng: random.Random) -> Followed:
        source, done = parent.source, list[str]()
        for technique in techniques:
            operator = self._operators.get(technique)
            proposal = operator.propose([parent._replace(source=source)], rng) if operator else None
            if proposal is not None:
                source = proposal.source
                done.append(technique)
        return Followed(source, tuple(done))


class Followed(NamedTuple):
    """A source, and what of a recipe was done to it, in words."""

    source: str
    done: tuple[str, ...] = ()


# ----------------------------------------------------------------------------------------------------------- rewrites


def techniques_of(steps: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The rewrites among the steps that led to a program, each a technique with its detail; in their order.

    A step that followed a recipe itself counts as what it did.
    """
    names = [name for technique, detail in steps for name in _names(technique, detail)]
    return tuple(name for name in names if name not in _NO_REWRITES)


_NO_REWRITES = ("", "retune", "num_warps", "num_stages", "tile_size", "max_registers", "crossover")


def _names(technique: str, detail: str) -> list[str]:
    if technique != NAME:
        return [technique]
    _, _, done = detail.rpartition(": ")  # names of problems may hold one
    return [word for word in done.split(", ") if " " not in word]  # a setting is two words


# ----------------------------------------------------------------------------------------------------------- settings


class _Place(NamedTuple):
    """Which knob of a program: the same in programs that are made alike."""

    kernel: int
    kind: str
    shape: str
    number: int


def settings_of(parent: Parent) -> tuple[Setting, ...]:
    """What the knobs of a program's kernels stand at, where its source or the judge says it."""
    program = analyse(parent.source)
    if program is None:
        return ()
    observed = Observed(parent.verdict)
    known = [(place, current_value(knob, observed)) for place, knob in _knobs(program)]
    return tuple(
        Setting(kernel=p.kernel, kind=p.kind, shape=p.shape, place=p.number, value=value)
        for p, value in known
        if value is not None and value > 0
    )


def with_settings(parent: Parent, settings: Sequence[Setting]) -> Followed:
    """The program with its knobs at these settings, kernel by kernel; a kernel that they do not fit stays as it is.

    A program with more or fewer kernels stays as it is: nobody knows which of them are alike.
    """
    program = analyse(parent.source)
    if program is None or not settings:
        return Followed(parent.source)
    observed = Observed(parent.verdict)
    wanted = {_Place(s.kernel, s.kind, s.shape, s.place): s.value for s in settings}
    knobs = list(_knobs(program))
    if {place.kernel for place, _ in knobs} != {place.kernel for place in wanted}:
        return Followed(parent.source)
    turned = [(knob, wanted[place]) for place, knob in knobs if place in wanted]
    turned = [(knob, value) for knob, value in turned if value != current_value(knob, observed)]
    turned = [(knob, value) for knob, value in turned if _fits(program, observed, knob, turned)]
    source = new_program(program, [edit for knob, value in turned for edit in knob.place.set(str(value))])
    if source is None:
        return Followed(parent.source)
    return Followed(source, tuple(f"{knob.parameter} {value}" for knob, value in turned))


def _fits(program: Program, observed: Observed, knob: Knob, turned: Sequence[tuple[Knob, int]]) -> bool:
    changed = {k.parameter: value for k, value in turned if k.kernel == knob.kernel}
    return fits_threads(program, observed, knob, changed)


def _knobs(program: Program) -> Iterator[tuple[_Place, Knob]]:
    knobs = [knob for knob in knobs_of(program) if knob.kind in KINDS]
    kernels = list(dict.fromkeys(knob.kernel for knob in knobs))
    seen: Counter[tuple[str, KnobKind]] = Counter()
    for knob in knobs:
        shape = knob.shape.value if knob.kind is KnobKind.TILE else ""
        yield _Place(kernels.index(knob.kernel), knob.kind.value, shape, seen[knob.kernel, knob.kind]), knob
        seen[knob.kernel, knob.kind] += 1


def _expected(recipes: Sequence[Recipe]) -> float:
    """Octaves that following one of these should gain, each being drawn by what it gained on its own."""
    gains = [min(recipe.octaves, MOST_OCTAVES) for recipe in recipes]  # as of any attempt
    return HOPE * sum(gain**2 for gain in gains) / max(sum(gains), LEAST_OCTAVES)


def _is_alike(recipe: Recipe, parent: Parent) -> bool:
    report = parent.verdict.bottleneck
    return _suits(recipe, kernel_kind_of(report.state.key) if report else "")


def _suits(recipe: Recipe, kind: str) -> bool:
    """Whether a recipe is for kernels of a kind; true where nobody knows of which kind either is."""
    kinds = {kernel_kind_of(recipe.state), kind}
    return "" in kinds or len(kinds) == 1
