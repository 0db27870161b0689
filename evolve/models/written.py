"""The table of a benchmark on disk: `bench.json`, `bench.md`, `bench.html`."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

from db.errors import ArchiveError
from evolve.models.markdown import markdown_of
from evolve.models.table import BenchTable, as_values
from evolve.reports.bench import page_of
from evolve.reports.model import REPORT


def write_table(table: BenchTable, folder: Path) -> list[Path]:
    """Writes the table three ways into a folder; returns the paths.

    Raises:
        ArchiveError: the folder cannot be written.
    """
    texts = {
        "bench.json": json.dumps(as_values(table), indent=2, allow_nan=False) + "\n",
        "bench.md": markdown_of(table),
        "bench.html": page_of(table, links_in(table, folder)),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ArchiveError(f"cannot write the table to {folder}: {error.strerror}", "no result is lost") from None
    return [folder / name for name in texts]


def links_in(table: BenchTable, folder: Path) -> dict[str, str]:
    """The address of each module's own page, of those that there are, as seen from the folder of the table."""
    places = {row.module: row.folder for row in table.rows if row.folder}
    return {name: f"{quote(place)}/{REPORT}" for name, place in places.items() if (folder / place / REPORT).is_file()}
