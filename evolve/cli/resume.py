"""`evolve resume`: go on where a run stopped."""

from __future__ import annotations

from typing import Annotated

import typer

from evolve.cli.live import watching
from evolve.cli.options import DEFAULT_ARCHIVE, Archive
from evolve.cli.run_options import RayAddress
from evolve.cli.summary import finish
from evolve.run import resume_search


def resume(
    run: Annotated[
        str, typer.Argument(help="The run.  [default: the last unfinished one]", show_default=False, metavar="RUN")
    ] = "",
    archive: Archive = DEFAULT_ARCHIVE,
    ray_address: RayAddress = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")] = False,
) -> None:
    """Continue a run where it stopped.

    Nothing that was judged is lost or judged twice.
    """
    with watching(quiet=quiet) as on_event:
        result = resume_search(str(archive), run, cluster_address=ray_address, on_event=on_event)
    finish(result, archive=str(archive))
