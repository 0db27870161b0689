"""Crossover: each knob, and each kernel that has the same signature in both, from either of two parents."""

from __future__ import annotations

import builtins
import random
from collections.abc import Sequence
from typing import NamedTuple, cast

import libcst as cst

from db.hashing import canonical_source
from islands.operators.base import Parent, Proposal
from islands.operators.structural.analysis import Program, Scope, analyse
from islands.operators.structural.grids import above_kernel
from islands.operators.structural.knobs import Knob, hint_knobs, knobs_of
from islands.operators.structural.places import last_character
from islands.operators.structural.technique import new_program
from islands.operators.structural.text import Edit

MAX_ATTEMPTS = 4


class Difference(NamedTuple):
    """Something in which two relatives differ, and the edits that take the second one's choice into the first."""

    name: str
    kernel: str
    edits: tuple[Edit, ...]


class Crossover:
    """Uniform crossover. Works for parents that share structure: knobs are matched by key, kernels by signature."""

    name = "crossover"
    n_parents = 2
    cost = 2.0
    prior = 0.04
    citation = "uniform crossover: Syswerda 1989, Proc. ICGA 3, pages 2 to 9"

    def propose(self, parents: Sequence[Parent], rng: random.Random) -> Proposal | None:
        """A child that differs from both parents. See `Operator.propose`."""
        one, other = (analyse(p.source) for p in parents[:2])
        if one is None or other is None or one is other:
            return None
        differences = one.derived(("differences", other.source), lambda: _differences(one, other))
        second = other.derived("canonical", lambda: canonical_source(other.source))
        for _ in range(MAX_ATTEMPTS if differences else 0):
            taken = [d for d in differences if rng.random() < 0.5]
            exchanged = {d.kernel for d in taken if d.name == d.kernel}
            taken = [d for d in taken if d.name == d.kernel or d.kernel not in exchanged]
            source = new_program(one, [e for d in taken for e in d.edits])
            if source is not None and canonical_source(source) != second:
                detail = f"{', '.join(d.name for d in taken)} of {parents[1].program_id}"
                return Proposal(source, self.name, detail, tuple(p.program_id for p in parents[:2]))
        return None


def _differences(one: Program, other: Program) -> list[Difference]:
    theirs = {k.key: k for k in [*knobs_of(other), *hint_knobs(other)]}
    pairs = [(k, theirs[k.key]) for k in [*knobs_of(one), *hint_knobs(one)] if k.key in theirs]
    knobs = [Difference(k.key, k.kernel, edits) for k, t in pairs if (edits := _taken(k, t))]
    return [*_kernels(one, other), *knobs]


def _taken(mine: Knob, theirs: Knob) -> tuple[Edit, ...]:
    """The edits that give my knob their value; empty when there is nothing to take."""
    if mine.text == theirs.text:
        return ()
    if theirs.text is None:
        return mine.place.removal or ()
    is_literal = theirs.text.isdigit() or theirs.text[:1] in "\"'" or theirs.text in ("True", "False")
    return mine.place.set(theirs.text) if is_literal or mine.text is not None else ()


def _kernels(one: Program, other: Program) -> list[Difference]:
    found: list[Difference] = []
    for name, kernel in one.kernels.items():
        rival = other.kernels.get(name)
        if rival is None or [p.name for p in rival.parameters] != [p.name for p in kernel.parameters]:
            continue
        mine, theirs = _text_of(one, kernel), _text_of(other, rival)
        if theirs[2] != mine[2] and _globals_known(one, rival):
            found.append(Difference(name, name, (Edit(mine[0], mine[1], theirs[2]),)))
    return found


def _text_of(program: Program, kernel: Scope) -> tuple[int, int, str]:
    """Where a kernel stands, decorators included, and its text."""

    def compute() -> tuple[int, int, str]:
        start = above_kernel(program, kernel, "").start
        end = last_character(program, cast(cst.FunctionDef, kernel.node))
        return start, end, program.source[start:end]

    return program.derived(("text", id(kernel)), compute)


def _globals_known(program: Program, kernel: Scope) -> bool:
    """Whether the helpers that a kernel of another program calls exist in this one."""
    helpers = {c.func.value for c in kernel.all(cst.Call) if isinstance(c.func, cst.Name)}
    return helpers <= {s.name for s in program.scopes} | program.aliases.keys() | set(dir(builtins))
