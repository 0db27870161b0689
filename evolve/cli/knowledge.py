"""`evolve knowledge`: what techniques turned out to be worth, and the files that carry it to another archive."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from db.archive import ProgramArchive
from db.knowledge import TechniqueEvidence
from db.recipes import Recipe
from db.records import LatencyKind
from db.reflections import Explanation, Lesson
from evolve.cli.console import Column, note, print_json, print_table
from evolve.cli.endings import guarded
from evolve.cli.options import DEFAULT_ARCHIVE, Archive, AsJson
from evolve.knowledge import (
    Knowledge,
    TechniqueValue,
    attempt_stories,
    read_knowledge,
    technique_values,
    write_knowledge,
)
from evolve.queries import reading
from evolve.recipes import recipes_in
from evolve.reflections import explanations as find_explanations
from evolve.reflections import lessons as find_lessons

app = typer.Typer(help="Show what techniques turned out to be worth, or carry it on.")

Without = Annotated[
    list[str] | None,
    typer.Option("--without", help="Leave out what was learnt on this problem. Repeatable.", metavar="PROBLEM"),
]
State = Annotated[str, typer.Option("--state", help="Only states whose key holds this text.", metavar="TEXT")]
TechniqueName = Annotated[str, typer.Option("--technique", help="Only this technique.", metavar="NAME")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="At most so many of each state.", metavar="N")]


@app.callback(invoke_without_command=True)
@guarded
def show(
    context: typer.Context,
    state: State = "",
    technique: TechniqueName = "",
    moves: Annotated[bool, typer.Option("--moves", help="Show each move of a technique by itself.")] = False,
    limit: Limit = None,
    without: Without = None,
    archive: Archive = DEFAULT_ARCHIVE,
    as_json: AsJson = False,
) -> None:
    """Show the best techniques of every performance state, with how often they were tried and what they gained."""
    if context.invoked_subcommand is not None:
        return
    with reading(archive) as reader:
        found = technique_values(
            reader, state=state, technique=technique, limit=limit, by_move=moves, without=without or ()
        )
    if as_json:
        print_json([value.model_dump(mode="json") for value in found])
    elif not found:
        note("nothing was learnt yet")
    else:
        _print_states(found, with_moves=moves)


@app.command("attempts")
@guarded
def attempts(
    state: State = "",
    technique: TechniqueName = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.", metavar="N")] = 20,
    archive: Archive = DEFAULT_ARCHIVE,
    as_json: AsJson = False,
) -> None:
    """List the last attempts: what was predicted, and what came."""
    with reading(archive) as reader:
        found = attempt_stories(reader, state=state, technique=technique, limit=limit)
    if as_json:
        print_json([story.model_dump(mode="json") for story in found])
    elif not found:
        note("nothing was tried yet")
    else:
        kinds = sorted({story.latency_kind for story in found if story.latency_kind})
        rows = [{**story.model_dump(), str(story.latency_kind): story.octaves} for story in found]
        print_table(rows, _attempt_columns(kinds, with_diagnosis=any(story.diagnosis for story in found)))


@app.command("recipes")
@guarded
def recipes(without: Without = None, archive: Archive = DEFAULT_ARCHIVE, as_json: AsJson = False) -> None:
    """Show how the fastest programs of each problem came about.

    Runs on other problems follow such a recipe in one step.
    """
    with reading(archive) as reader:
        found = recipes_in(reader, without=without or (), with_imported=not without)
    if as_json:
        print_json([recipe.model_dump(mode="json") for recipe in found])
    elif not found:
        note("no program is 5% faster than the one that its search began with")
    else:
        print_table([_recipe_row(recipe) for recipe in found], _RECIPE_COLUMNS)


def _recipe_row(recipe: Recipe) -> dict[str, object]:
    settings = [
        f"{one.kind} {one.value}" + (f" (kernel {one.kernel})" if one.kernel else "") for one in recipe.settings
    ]
    return {
        **recipe.model_dump(include={"problem", "latency_kind", "hardware_id", "precision"}),
        "gain": f"{2**recipe.octaves:.2f}x",
        "techniques": ", ".join(recipe.techniques),
        "settings": ", ".join(settings),
    }


_RECIPE_COLUMNS = [
    Column("problem", "problem"),
    Column("hardware_id", "GPU"),
    Column("latency_kind", "latency"),
    Column("precision", "precision", is_spare=True),
    Column("gain", "over its first program", is_number=True),
    Column("techniques", "rewrites, in order"),
    Column("settings", "knobs"),
]


@app.command("lessons")
@guarded
def lessons(
    run: Annotated[str | None, typer.Option("--run", help="Only what this run was taught.", metavar="RUN")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many of each.", metavar="N")] = 20,
    archive: Archive = DEFAULT_ARCHIVE,
    as_json: AsJson = False,
) -> None:
    """List what language models learnt when they looked back.

    Lessons, and why attempts gained what they did.
    """
    with reading(archive) as reader:
        learnt, explained = find_lessons(reader, run, limit=limit), find_explanations(reader, run, limit=limit)
    if as_json:
        print_json(
            {
                "lessons": [one.model_dump(mode="json") for one in learnt],
                "explanations": [one.model_dump(mode="json") for one in explained],
            }
        )
        return
    if not learnt and not explained:
        note("no language model looked back yet")
    _print_taught(learnt, explained)


@app.command("export")
@guarded
def export(
    file: Annotated[Path, typer.Argument(help="The file to write: JSON.", metavar="FILE")],
    archive: Archive = DEFAULT_ARCHIVE,
    without: Without = None,
) -> None:
    """Write what an archive knows to a file.

    For `evolve run --knowledge FILE`, or for another archive.
    """
    with reading(archive) as reader:
        # what was imported knows no problem, so none of it can be left out by one
        evidence = reader.knowledge(without=without or (), with_imported=not without)
        recipes = recipes_in(reader, without=without or (), with_imported=not without)
    write_knowledge(Knowledge(evidence, recipes), file)
    note(f"{_size(evidence, recipes)}: {file}")


@app.command("import")
@guarded
def import_(
    file: Annotated[Path, typer.Argument(help="A file of `evolve knowledge export`.", metavar="FILE")],
    archive: Archive = DEFAULT_ARCHIVE,
) -> None:
    """Put what a file knows into an archive.

    It takes the place of what came from that file before.
    """
    evidence, recipes = read_knowledge(file)
    with contextlib.closing(ProgramArchive.open(archive)) as target:
        target.import_knowledge(evidence, str(file.resolve()), recipes)
    note(f"{_size(evidence, recipes)}: {archive}")


def _size(evidence: Sequence[TechniqueEvidence], recipes: Sequence[Recipe]) -> str:
    return f"{sum(one.n_tried for one in evidence)} attempts in {len(evidence)} records, {len(recipes)} recipes"


def _print_states(found: list[TechniqueValue], *, with_moves: bool) -> None:
    for (state, kind, hardware), group in groupby(found, key=lambda v: (v.state, v.latency_kind, v.hardware_id)):
        title = f"{state or 'state not known'} on {hardware}, {kind}"
        print_table([_row(value) for value in group], _columns(with_moves=with_moves), title=title)


def _print_taught(learnt: Sequence[Lesson], explained: Sequence[Explanation]) -> None:
    if learnt:
        print_table([one.model_dump() for one in learnt], _LESSON_COLUMNS, title="lessons")
    if explained:
        print_table([one.model_dump() for one in explained], _EXPLANATION_COLUMNS, title="explanations")


def _yes_or_no(value: bool) -> str:
    return "yes" if value else "no"


_LESSON_COLUMNS = [
    Column("run_id", "run", is_whole=True, is_spare=True),
    Column("island", "island", is_number=True),
    Column("text", "lesson"),
]
_EXPLANATION_COLUMNS = [
    Column("candidate_id", "candidate", is_whole=True, is_spare=True),
    Column("diagnosis_was_right", "diagnosis was right", _yes_or_no),
    Column("fix_worked", "fix worked", _yes_or_no),
    Column("cause", "cause"),
    Column("avoid", "avoid"),
    Column("try_next", "try next"),
]


def _columns(*, with_moves: bool) -> list[Column]:
    return [
        Column("technique", "technique"),
        *([Column("move", "move")] if with_moves else []),
        Column("tried", "tried", is_number=True),
        Column("passed", "passed", is_number=True),
        Column("improved", "improved", is_number=True),
        Column("chance", "chance to improve", is_number=True),
        Column("gain", "gain a try", is_number=True),
        Column("change", "change of latency", is_number=True),
        Column("error", "off by", is_number=True),
    ]


def _row(value: TechniqueValue) -> dict[str, object]:
    return {
        "technique": value.technique,
        "move": value.move,
        "tried": value.n_tried,
        "passed": value.n_passed,
        "improved": value.n_improved,
        "chance": f"{value.chance:.0%} ({value.chance_low:.0%} to {value.chance_high:.0%})",
        "gain": f"{1 - 2**-value.gain_octaves:.1%}",
        "change": _change(value),
        "error": None if value.error_octaves is None else f"{2**value.error_octaves - 1:.1%}",
    }


def _change(value: TechniqueValue) -> str | None:
    """The mean change of latency with its interval: -3.2% (-5.0% to -1.3%)."""
    if value.change_octaves is None:
        return None
    if value.change_low is None or value.change_high is None:
        return _percent(value.change_octaves)
    return f"{_percent(value.change_octaves)} ({_percent(value.change_high)} to {_percent(value.change_low)})"


def _percent(octaves: float) -> str:
    return f"{2**-octaves - 1:+.1%}"


def _attempt_columns(kinds: Sequence[LatencyKind], *, with_diagnosis: bool) -> list[Column]:
    return [
        Column("candidate_id", "candidate", is_whole=True, is_spare=True),
        Column("technique", "technique"),
        Column("detail", "what was changed"),
        *([Column("diagnosis", "because")] if with_diagnosis else []),
        Column("predicted_octaves", "predicted", _percent, is_number=True),
        *(Column(kind, kind, _percent, is_number=True) for kind in kinds),
        Column("cause", "cause of the difference"),
    ]
