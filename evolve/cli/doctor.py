"""`evolve doctor`: what works here, and what to do about the rest."""

from __future__ import annotations

import typer

from evolve.cli.console import Column, print_json, print_table
from evolve.cli.endings import NEGATIVE
from evolve.cli.options import DEFAULT_ARCHIVE, Archive, AsJson
from evolve.doctor import Status, examine

_COLUMNS = [Column("status", ""), Column("name", "what"), Column("found", "found"), Column("advice", "what to do")]


def doctor(archive: Archive = DEFAULT_ARCHIVE, as_json: AsJson = False) -> None:
    """Say what works on this machine, and what to do about the rest.

    Ends with 1 when something keeps a run from starting.
    """
    findings = examine(archive)
    rows = [finding.model_dump(mode="json") for finding in findings]
    if as_json:
        print_json(rows)
    else:
        print_table(rows, _COLUMNS)
    if any(finding.status is Status.FAIL for finding in findings):
        raise typer.Exit(NEGATIVE)
