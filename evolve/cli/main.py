"""The entry point of `evolve`: which commands there are, and what their endings mean to the shell."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import typer

from db.errors import EvolveError
from evolve.cli.endings import INTERRUPTED, MENDABLE, guarded, print_error
from evolve.cli.examples import epilog

# name: (module of evolve.cli, what `evolve --help` says)
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("run", "Search for a faster kernel for a problem."),
    "bench": ("bench", "Improve every module of a folder, and print the outcomes."),
    "resume": ("resume", "Continue a run where it stopped."),
    "elites": ("elites", "List the fastest program of every cell of the grid."),
    "best": ("best", "Print a problem's fastest program, or write it to a file."),
    "show": ("show", "Show one program: its source, verdict and profile."),
    "diff": ("diff", "Show how two programs differ."),
    "lineage": ("lineage", "Show what a program was made of, step by step."),
    "knowledge": ("knowledge", "Show what techniques turned out to be worth, or carry it on."),
    "llm": ("llm", "List and sum the calls of language models."),
    "query": ("query", "Answer an SQL query on the archive."),
    "export": ("export", "Write the archive's tables as Parquet or JSONL."),
    "recheck": ("recheck", "Judge the best programs of an archive again: do they hold?"),
    "check": ("check", "Judge one file by every gate, without a search."),
    "profile": ("profile", "Say what keeps one file from being faster, without judging it."),
    "problems": ("problems", "List the built-in problems, or show one."),
    "techniques": ("techniques", "List the techniques that make kernels faster, or show one."),
    "report": ("report", "Write the HTML report of a run."),
    "doctor": ("doctor", "Say what works on this machine, and what to do about the rest."),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; ends the process with 0, 1, 2 or 130 (see docs/commands.md)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    completing = "_EVOLVE_COMPLETE" in os.environ
    chosen = set(COMMANDS) if completing else {next((a for a in given if not a.startswith("-")), "")}
    try:
        app = build_app(chosen)
    except ImportError as error:
        print_error(EvolveError(f"cannot load the command: {error}", "see what is missing: evolve doctor"))
        sys.exit(MENDABLE)
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)
    try:
        app(args=given, prog_name="evolve")
    except SystemExit as end:
        if end.code == INTERRUPTED and "ray" in sys.modules:
            _leave_ray()
        raise


def _leave_ray() -> None:
    """End the process without finalising Python: threads of Ray crash then, if its start was interrupted."""
    atexit._run_exitfuncs()  # Ray's own farewell, and the removal of temporary folders
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(INTERRUPTED)


def build_app(chosen: set[str]) -> typer.Typer:
    """The application, with the modules of the `chosen` commands imported and the others only named."""
    app = typer.Typer(
        help="Evolve Triton GPU kernels until they are fast, and keep everything that was tried.",
        epilog=epilog(""),
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # boxes take half of 80 columns, and its markup eats what stands in brackets
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name, (module, summary) in COMMANDS.items():
        if name in chosen:
            _add(app, name, module)
        else:
            app.command(name, help=summary)(_unchosen)
    return app


def _add(app: typer.Typer, name: str, module: str) -> None:
    loaded = import_module(f"evolve.cli.{module}")
    if hasattr(loaded, "app"):
        app.add_typer(loaded.app, name=name, epilog=epilog(name))
    else:
        app.command(name, epilog=epilog(name))(guarded(getattr(loaded, name)))


def _unchosen() -> None:
    """Stands in the list of commands; never called."""


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        typer.echo(f"triton-evolve {version('triton-evolve')}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Print the version."),
) -> None:
    """Evolve Triton GPU kernels until they are fast, and keep everything that was tried."""


if __name__ == "__main__":
    main()
