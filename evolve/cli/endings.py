"""How a command ends: 0 done, 1 a negative answer, 2 something the user can mend, 130 interrupted."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

from db.errors import EvolveError
from evolve.failures import find_mendable

P = ParamSpec("P")
R = TypeVar("R")

NEGATIVE = 1
MENDABLE = 2
BROKEN = 70  # a fault of evolve itself, with a traceback; EX_SOFTWARE of sysexits.h
INTERRUPTED = 130


def guarded(command: Callable[P, R]) -> Callable[P, R]:
    """The command with its errors turned into messages and exit codes."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
            raise
        except Exception as error:  # the boundary of the process: everything ends here
            mendable = find_mendable(error)
            if mendable is None:
                raise _broken(error) from None
            print_error(mendable)
            raise typer.Exit(MENDABLE) from None

    return run


def print_error(error: EvolveError) -> None:
    """One line that says what is wrong, one that says what to do."""
    typer.secho("error: ", err=True, fg="red", bold=True, nl=False)
    typer.echo(" ".join(error.message.split()), err=True)
    if error.hint:
        typer.secho("hint:  ", err=True, fg="cyan", bold=True, nl=False)
        typer.echo(" ".join(error.hint.split()), err=True)


def _broken(error: Exception) -> typer.Exit:
    import traceback

    traceback.print_exception(error, file=sys.stderr)
    typer.echo("this is a fault of evolve, not yours; `evolve doctor` may tell more", err=True)
    return typer.Exit(BROKEN)
