"""Options that several commands share, so that they have one name and one meaning."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from db.errors import ConfigError

DEFAULT_ARCHIVE = Path("evolve.duckdb")

Archive = Annotated[Path, typer.Option("--archive", help="The archive: a DuckDB file.", metavar="FILE")]
Shapes = Annotated[
    list[str] | None,
    typer.Option("--shape", help="Override a size of the problem: batch=64. Repeatable.", metavar="NAME=VALUE"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def archive_option(archive: Path | str) -> str:
    """What a command that is proposed needs to find this archive; nothing where that is the usual one."""
    return "" if str(archive) == str(DEFAULT_ARCHIVE) else f" --archive {archive}"


def parse_shapes(shapes: Sequence[str]) -> dict[str, int | float]:
    """Sizes from `name=value` texts.

    Raises:
        ConfigError: a text is not of that form, or its value is not a number.
    """
    sizes: dict[str, int | float] = {}
    for text in shapes:
        name, _, value = text.partition("=")
        try:
            sizes[name.strip()] = int(value.replace("_", "")) if value.strip("0123456789_- ") == "" else float(value)
        except ValueError:
            raise ConfigError(f"cannot read --shape {text!r}", "write it like --shape batch=64") from None
        if not name.strip().isidentifier():
            raise ConfigError(f"cannot read --shape {text!r}", "write it like --shape batch=64")
    return sizes
