"""Program sources on screen and on disk."""

from __future__ import annotations

from pathlib import Path

from rich.syntax import Syntax

from db.errors import EvolveError
from evolve.cli.console import console, is_terminal


def print_source(source: str, language: str = "python") -> None:
    """The source, coloured in a terminal and as it stands elsewhere."""
    text = source.strip("\n")
    if is_terminal():
        coloured = Syntax(text, language, theme="ansi_dark", background_color="default").highlight(text)
        coloured.rstrip()
        console().print(coloured, soft_wrap=True)  # what is copied from the screen has the lines of the source
    else:
        print(text)


def write_source(source: str, path: Path) -> None:
    """The source into a file, whose folder is made if need be.

    Raises:
        EvolveError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source.strip("\n") + "\n")
    except OSError as error:
        raise EvolveError(f"cannot write {path}: {error.strerror}", "choose another file with -o") from None
