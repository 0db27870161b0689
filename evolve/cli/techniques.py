"""`evolve techniques`: what can make a kernel faster, what each is for, and who applies it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import typer

from db.reading import ArchiveReader
from db.techniques import CatalogueEntry, Seen
from evolve.cli.console import Column, console, print_json, print_pairs, print_table
from evolve.cli.options import DEFAULT_ARCHIVE, AsJson
from evolve.queries import reading
from evolve.techniques import technique as find_technique
from evolve.techniques import techniques as list_techniques

_COLUMNS = [
    Column("name", "technique", is_whole=True),
    Column("addresses", "addresses"),
    Column("applied_by", "applied by"),
    Column("seen", "won/lost"),
]


def techniques(
    name: Annotated[str | None, typer.Argument(help="Show this technique whole.", metavar="NAME")] = None,
    archive: Annotated[
        Path | None,
        typer.Option(
            "--archive",
            help="List what runs of this archive learnt as well; evolve.duckdb where there is one.",
            metavar="FILE",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the techniques that make kernels faster, or show one."""
    with _reading(archive) as reader:
        entries = list_techniques(reader) if name is None else [find_technique(name, reader)]
    if name is not None:
        _print_one(entries[0], as_json)
    elif as_json:
        print_json([entry.model_dump(mode="json") for entry in entries])
    else:
        print_table([_row(entry) for entry in entries], _columns(entries))


def _reading(archive: Path | None) -> AbstractContextManager[ArchiveReader | None]:
    """The archive that is named, else the usual one where it is there."""
    if archive is None and not DEFAULT_ARCHIVE.exists():
        return contextlib.nullcontext()
    return reading(archive or DEFAULT_ARCHIVE)


def _columns(entries: list[CatalogueEntry]) -> list[Column]:
    return [*_COLUMNS, *([Column("learnt_by", "learnt by")] if any(entry.learnt_by for entry in entries) else [])]


def _print_one(entry: CatalogueEntry, as_json: bool) -> None:
    if as_json:
        print_json(entry.model_dump(mode="json"))
    else:
        _print_whole(entry)


def _row(entry: CatalogueEntry) -> dict[str, object]:
    return {
        "name": entry.name,
        "addresses": ", ".join(entry.addresses),
        "applied_by": " or ".join(_appliers(entry)),
        "seen": f"{entry.successes}/{entry.failures}" if entry.seen else None,
        "learnt_by": entry.learnt_by or None,
    }


def _appliers(entry: CatalogueEntry) -> Iterator[str]:
    if entry.applied_by.structural:
        yield "operator"
    if entry.applied_by.instruction:
        yield "language model"


def _print_whole(entry: CatalogueEntry) -> None:
    out = console()
    out.print(entry.name, style="bold")
    out.print(entry.changes)
    print_pairs(
        [(title if k == 0 else "", line) for title, lines in _paragraphs(entry) for k, line in enumerate(lines)],
        width=15,
    )


def _paragraphs(entry: CatalogueEntry) -> Iterator[tuple[str, list[str]]]:
    """What an entry says beside what it changes: titles and lines; titles without lines are not printed."""
    yield "addresses", [", ".join(entry.addresses)]
    yield "relieves", [", ".join(entry.limiters)] if entry.limiters else []
    yield "for kernels", [", ".join(entry.kinds) or "of every kind"]
    yield "precision", [str(entry.precision)]
    yield "needs", list(entry.preconditions)
    yield "risks", list(entry.risks)
    yield "operator", [entry.applied_by.structural] if entry.applied_by.structural else []
    yield "instruction", [entry.applied_by.instruction] if entry.applied_by.instruction else []
    yield "seen", [_counted(seen) for seen in entry.seen]
    yield "reported", list(entry.reported)
    yield "source", [entry.source]


def _counted(seen: Seen) -> str:
    return f"won {seen.successes}, lost {seen.failures} ({seen.source})"
