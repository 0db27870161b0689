"""What archives say about how their fastest programs came about: recipes for other problems."""

from __future__ import annotations

import math
from collections.abc import Sequence

from db.queries import Elite, LineageRow
from db.reading import ArchiveReader
from db.recipes import LEAST_OCTAVES, Recipe
from db.records import Evaluation
from islands.operators.base import Parent
from islands.operators.recipe import settings_of, techniques_of


def recipes_in(
    archive: ArchiveReader, *, without: Sequence[str] = (), until_s: float | None = None, with_imported: bool = True
) -> list[Recipe]:
    """How the fastest programs of an archive came from their first programs, and what was imported into it.

    What gained less than 5%, and what repeats another recipe of the same problem, is left out.

    Args:
        without: names or ids of problems whose programs are left out.
        until_s: only what was judged or imported before this moment, in seconds since the epoch.
        with_imported: also what `evolve knowledge import` brought in; it knows no problem's id.
    """
    own = [_recipe_of(archive, winner) for winner in archive.winners(without=without, until_s=until_s)]
    brought = archive.imported_recipes(until_s) if with_imported else []
    return distinct([*(recipe for recipe in own if recipe is not None), *brought])


def distinct(recipes: Sequence[Recipe]) -> list[Recipe]:
    """Of recipes that say the same for one problem, GPU and kind of latency, the one that gained most."""
    found: dict[tuple[object, ...], Recipe] = {}
    for recipe in sorted(recipes, key=lambda one: -one.octaves):
        key = (recipe.problem, recipe.hardware_id, recipe.latency_kind, recipe.techniques, recipe.settings)
        found.setdefault(key, recipe)
    return list(found.values())


def _recipe_of(archive: ArchiveReader, winner: Elite) -> Recipe | None:
    path = _path(archive.lineage(winner.program.program_id), winner.program.program_id)
    latency, first = winner.verdict.latency, _judged(archive, path[0].program_id, winner)
    if latency is None or first is None or first.verdict.latency is None:
        return None
    octaves = math.log2(first.verdict.latency.device_us / latency.device_us)
    if octaves < LEAST_OCTAVES:
        return None
    final = _judged(archive, winner.program.program_id, winner)
    report = first.verdict.bottleneck
    return Recipe(
        problem=winner.problem_name,
        state=report.state.key if report else "",
        latency_kind=latency.kind,
        hardware_id=winner.verdict.hardware_id,
        techniques=techniques_of([(row.technique, row.detail) for row in path[1:]]),
        settings=settings_of(Parent(winner.program.source, winner.program.program_id, (final or first).verdict)),
        octaves=octaves,
        at_s=(final or first).created_at,
    )


def _path(rows: Sequence[LineageRow], program_id: str) -> list[LineageRow]:
    """From the first program to this one, along first parents."""
    by_id = {row.program_id: row for row in rows}
    path = [by_id[program_id]]
    while path[0].parents and path[0].parents[0] in by_id and len(path) < len(rows):
        path.insert(0, by_id[path[0].parents[0]])
    return path


def _judged(archive: ArchiveReader, program_id: str, like: Elite) -> Evaluation | None:
    """The first verdict on a program on the same GPU, by the same kind of latency."""
    kind = like.verdict.latency.kind if like.verdict.latency else None
    for evaluation in archive.evaluations_of(program_id):
        verdict = evaluation.verdict
        if verdict.latency and verdict.latency.kind is kind and verdict.hardware_id == like.verdict.hardware_id:
            return evaluation
    return None
