"""`evolve problems`: what can be searched without a file of one's own."""

from __future__ import annotations

from typing import Annotated

import typer

from db.records import Problem
from evaluators.problems import load_problem, suite_names, suite_problem
from evolve.cli.console import Column, console, print_json, print_table
from evolve.cli.endings import guarded
from evolve.cli.options import AsJson, Shapes, parse_shapes
from evolve.cli.source import print_source

app = typer.Typer(help="List the built-in problems, or show one.", no_args_is_help=True)

_COLUMNS = [
    Column("name", "problem", is_whole=True),
    Column("about", "what it computes"),
    Column("full", "timed at"),
    Column("small", "checked at", is_spare=True),
    Column("n_seeds", "seeds", is_number=True),
]


@app.command("list")
@guarded
def list_(as_json: AsJson = False) -> None:
    """List the built-in problems."""
    rows = [_row(suite_problem(name)) for name in suite_names()]
    if as_json:
        print_json(rows)
    else:
        print_table([{**row, "full": _sizes(row["full"]), "small": _sizes(row["small"])} for row in rows], _COLUMNS)


@app.command("show")
@guarded
def show(
    problem: Annotated[str, typer.Argument(help="A name of `evolve problems list`, or a file.", metavar="PROBLEM")],
    shape: Shapes = None,
    seed: Annotated[bool, typer.Option("--seed", help="Print its first program instead of its reference.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a problem: its workloads, its reference, its first program."""
    found = load_problem(problem, sizes=parse_shapes(shape or ()))
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    if not seed:
        out = console()
        out.print(f"{found.name} ({found.kind}), problem {found.problem_id}", style="bold")
        for workload in found.workloads:
            out.print(f"{workload.role:<6}{_sizes(workload.sizes)}")
        print_source(found.source)
    elif found.seeds:
        print_source(found.seeds[0])
    else:
        console().print(f"{found.name} comes with no first program")


def _row(problem: Problem) -> dict[str, object]:
    return {
        "name": problem.name,
        "about": _about(problem.source),
        "full": problem.full.sizes,
        "small": problem.small.sizes,
        "n_seeds": len(problem.seeds),
    }


def _about(source: str) -> str:
    """The first line of a source's docstring, without its full stop."""
    import ast

    return (ast.get_docstring(ast.parse(source)) or "").split("\n")[0].rstrip(".")


def _sizes(sizes: object) -> str:
    return " ".join(f"{name}={value}" for name, value in sizes.items()) if isinstance(sizes, dict) else ""
