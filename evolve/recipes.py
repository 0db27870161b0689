"""What archives say about how their fastest programs came about: recipes for other problems."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from db.queries import Elite
from db.reading import ArchiveReader
from db.recipes import LEAST_OCTAVES, Recipe, Step
from db.records import LatencyKind


def recipes_in(
    archive: ArchiveReader,
    *,
    without: Sequence[str] = (),
    until_s: float | None = None,
    latency_kind: LatencyKind | None = None,
    with_imported: bool = True,
) -> list[Recipe]:
    """How the fastest programs of an archive came from their first programs, and what was imported into it.

    What gained less than 5%, and what repeats another recipe of the same problem, is left out.

    Args:
        without: names or ids of problems whose programs are left out.
        until_s: only what was judged or imported before this moment, in seconds since the epoch.
        latency_kind: only what was judged by this kind, of the archive's own; None takes all.
        with_imported: also what `evolve knowledge import` brought in; it knows no problem's id.
    """
    winners = archive.winners(without=without, until_s=until_s, latency_kind=latency_kind)
    steps = _steps_to(archive, {winner.program.program_id for winner in winners})
    own = [_recipe_of(archive, winner, steps) for winner in winners]
    brought = archive.imported_recipes(until_s) if with_imported else []
    return distinct([*(recipe for recipe in own if recipe is not None), *brought])


def distinct(recipes: Sequence[Recipe]) -> list[Recipe]:
    """Of recipes that say the same for one problem, GPU, latency and precision class, the one that gained most."""
    found: dict[tuple[object, ...], Recipe] = {}
    for recipe in sorted(recipes, key=lambda one: -one.octaves):
        grid = (recipe.problem, recipe.hardware_id, recipe.latency_kind, recipe.precision)
        found.setdefault((*grid, recipe.techniques, recipe.settings), recipe)
    return list(found.values())


def _steps_to(archive: ArchiveReader, program_ids: Iterable[str]) -> dict[str, list[Step]]:
    """Every verdict on programs and on those that they came from along first parents. One question a generation."""
    found: dict[str, list[Step]] = {}
    waiting = set(program_ids)
    while waiting:
        found |= {program_id: [] for program_id in waiting}
        steps = archive.steps(sorted(waiting))
        for step in steps:
            found[step.program_id].append(step)
        waiting = {step.parents[0] for step in steps if step.parents} - found.keys()
    return found


def _recipe_of(archive: ArchiveReader, winner: Elite, steps: Mapping[str, Sequence[Step]]) -> Recipe | None:
    path = _path(winner, steps)
    first = next((step for step in steps[path[0].program_id] if _is_like(step, winner)), None) if path else None
    latency = winner.verdict.latency
    if latency is None or first is None or not first.latency_us:
        return None
    octaves = math.log2(first.latency_us / latency.device_us)
    if octaves < LEAST_OCTAVES:
        return None
    from islands.operators.base import Parent  # with libcst, which few archives ask for
    from islands.operators.recipe import settings_of, techniques_of

    judged = archive.evaluations_of(winner.program.program_id)
    final = next(e for e in judged if e.verdict.candidate_id == winner.verdict.candidate_id)  # with its captures
    return Recipe(
        problem=winner.problem_name,
        state=first.state,
        latency_kind=latency.kind,
        precision=winner.verdict.precision,
        hardware_id=winner.verdict.hardware_id,
        techniques=techniques_of([(step.technique, step.detail) for step in path[1:]]),
        settings=settings_of(Parent(winner.program.source, winner.program.program_id, final.verdict)),
        octaves=octaves,
        at_s=final.created_at,
    )


def _path(winner: Elite, steps: Mapping[str, Sequence[Step]]) -> list[Step]:
    """How each program was first proposed for the problem, from the first one to the winner, along first parents."""
    path: list[Step] = []
    seen: set[str] = set()
    program_id = winner.program.program_id
    while program_id not in seen:
        seen.add(program_id)
        made = next((s for s in steps.get(program_id, ()) if s.problem_id == winner.program.problem_id), None)
        if made is None:
            break
        path.insert(0, made)
        program_id = made.parents[0] if made.parents else program_id
    return path


def _is_like(step: Step, winner: Elite) -> bool:
    """Whether a verdict says a latency of the winner's problem that may be compared with the winner's."""
    verdict = winner.verdict
    assert verdict.latency is not None
    grid = (verdict.problem_id, verdict.hardware_id, verdict.latency.kind, verdict.precision)
    its = (step.problem_id, step.hardware_id, step.latency_kind, step.precision)
    return step.latency_us is not None and its == grid
