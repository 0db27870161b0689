"""Before anything ran: which part of a module's time can be won back at all? Needs no GPU.

What libraries do stays as it is, so a module can gain what the rest takes. Its forward runs once on fake tensors, in a
process of its own, and every operation is given the time that the roofline allows (see `work`).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from db.records import Hardware, Problem

DEADLINE_S = 300.0  # for all modules together; what is not known by then stays unknown


def foreseen_shares(
    problems: Sequence[Problem],
    hardware: Hardware,
    *,
    deadline_s: float = DEADLINE_S,
    on_look: Callable[[int], None] = lambda _: None,
) -> list[float | None]:
    """For each module the share of its time that is spent outside of libraries; None where fake tensors cannot run it.

    Args:
        hardware: whose rates count; on all of them the order is much the same.
        on_look: called with the index of each module as it is looked at.
    """
    if not problems:
        return []
    request = {
        "problems": [problem.model_dump(mode="json") for problem in problems],
        "hardware": hardware.model_dump(mode="json"),
    }
    on_look(0)
    shares: list[float | None] = []
    with contextlib.closing(_answers(json.dumps(request).encode(), deadline_s)) as lines:
        for line in lines:
            shares.append(_share_in(line))
            if len(shares) == len(problems):
                break
            on_look(len(shares))
    return [*shares, *[None] * (len(problems) - len(shares))]


def _answers(request: bytes, deadline_s: float) -> Generator[bytes, None, None]:
    """The lines of a process that looks at modules, each as it comes. To be closed, which ends the process."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(p for p in (os.environ.get("PYTHONPATH", ""), root) if p)
    command = [sys.executable, "-P", "-m", "evaluators.decomposition.work"]
    environment = {**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}
    with tempfile.TemporaryFile() as asked:
        asked.write(request)
        asked.seek(0)
        with subprocess.Popen(
            command, stdin=asked, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        ) as process:
            assert process.stdout is not None
            deadline = threading.Timer(deadline_s, process.kill)
            deadline.start()
            try:
                yield from process.stdout
            finally:
                deadline.cancel()
                process.kill()


def _share_in(line: bytes) -> float | None:
    try:
        share = json.loads(line)
    except ValueError:  # cut short
        return None
    return float(share) if isinstance(share, int | float) else None
