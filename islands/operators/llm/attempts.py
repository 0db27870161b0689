"""Attempts of language models: prediction against measurement, and how prompts say it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from db.records import Lineage, Outcome, Verdict
from islands.grid import Occupant
from islands.knowledge import Attempt, Standing, cause_of
from islands.llm.plans import Plan
from islands.operators.llm.notebook import ComparedAttempt
from islands.prompts import AttemptFacts
from islands.prompts.facts import gain_in_words


def compared(
    lineage: Lineage, verdict: Verdict, parents: Sequence[Occupant], plan: Plan | None = None
) -> ComparedAttempt:
    """What came of a program that a model wrote, beside what was expected of it.

    Args:
        parents: those that are still known, in order.
        plan: that it carries out, if any.
    """
    octaves = _octaves(parents, verdict)
    before = _standing(parents[0]) if parents else Standing()
    after = Standing.of(verdict, lineage.technique)
    predicted = None if lineage.predicted_octaves is None else max(lineage.predicted_octaves, 0.0)
    return ComparedAttempt(
        candidate_id=verdict.candidate_id,
        operator=lineage.operator,
        program_id=verdict.program_id,
        technique=lineage.technique,
        change=lineage.detail,
        diagnosis=lineage.diagnosis,
        plan=plan,
        parents=lineage.parents,
        performance_state=lineage.state,
        predicted_octaves=lineage.predicted_octaves,
        is_correct=verdict.is_correct,
        octaves=octaves,
        came_of_it=_came_of_it(verdict, octaves),
        cause=cause_of(before, after, predicted, octaves) if parents or after.gate else "",
    )


def as_knowledge(attempt: ComparedAttempt, parent: Occupant) -> Attempt:
    """An attempt as a knowledge base takes it in."""
    situation = _standing(parent).situation._replace(state=attempt.performance_state)
    return Attempt(
        attempt.technique, situation, attempt.octaves, attempt.change, attempt.predicted_octaves, attempt.cause
    )


def attempt_facts(attempt: ComparedAttempt) -> AttemptFacts:
    """An attempt for a prompt that asks what it teaches."""
    what = ": ".join(part for part in (attempt.technique, attempt.change) if part)
    plan = attempt.plan
    return AttemptFacts(
        what=f"{what} ({plan.construct}: {plan.change})" if plan else what,
        why=plan.why if plan else attempt.diagnosis,
        expected=gain_in_words(attempt.predicted_octaves),
        came_of_it=attempt.came_of_it,
        known_cause=attempt.cause,
    )


def attempt_in_words(attempt: ComparedAttempt) -> str:
    """An attempt in one line, for the memory that prompts show."""
    facts = attempt_facts(attempt)
    expected = f", expected to be {facts.expected}," if facts.expected else ""
    cause = f" ({facts.known_cause})" if facts.known_cause and not facts.known_cause.startswith("failed") else ""
    return f"{facts.what}{expected} came to this: {facts.came_of_it}{cause}"


def _octaves(parents: Sequence[Occupant], verdict: Verdict) -> float | None:
    """Won over the fastest parent, or lost; None where nothing can be compared."""
    latency = verdict.latency
    if latency is None or not parents:
        return None
    fastest = min(parents, key=lambda parent: parent.latency_us)
    before = fastest.verdict.latency
    if before is None or before.kind is not latency.kind:
        return None
    return math.log2(before.device_us / latency.device_us)


def _standing(parent: Occupant) -> Standing:
    return Standing.of(parent.verdict, parent.candidate.lineage.technique)


def _came_of_it(verdict: Verdict, octaves: float | None) -> str:
    if verdict.outcome is not Outcome.CORRECT or verdict.latency is None:
        gate = next((g.gate.value for g in verdict.gates if not g.passed), "")
        return f"refused by gate {gate}: {verdict.reason}" if gate else str(verdict.outcome)
    time = f"{verdict.latency.device_us:.2f} us"
    return f"{time}, {gain_in_words(octaves)}" if octaves is not None else time
