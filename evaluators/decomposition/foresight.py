"""Before anything ran: which part of a module's time can be won back at all? Needs no GPU.

What libraries do stays as it is, so a module can gain what the rest takes. Its forward runs once on fake tensors, in a
process of its own, and every operation is given the time that the roofline allows (see `work`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from db.records import Hardware, Problem

DEADLINE_S = 300.0  # for all modules together; what is not known by then stays unknown


def foreseen_shares(
    problems: Sequence[Problem], hardware: Hardware, *, deadline_s: float = DEADLINE_S
) -> list[float | None]:
    """For each module the share of its time that is spent outside of libraries; None where fake tensors cannot run it.

    Args:
        hardware: whose rates count; on all of them the order is much the same.
    """
    if not problems:
        return []
    request = {
        "problems": [problem.model_dump(mode="json") for problem in problems],
        "hardware": hardware.model_dump(mode="json"),
    }
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(p for p in (os.environ.get("PYTHONPATH", ""), root) if p)
    command = [sys.executable, "-P", "-m", "evaluators.decomposition.work"]
    environment = {**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}
    try:
        done = subprocess.run(
            command,
            input=json.dumps(request).encode(),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=deadline_s,
            check=False,
        )
        lines = done.stdout.splitlines()
    except subprocess.TimeoutExpired as late:
        lines = (late.stdout or b"").splitlines()
    shares = [_share_in(line) for line in lines[: len(problems)]]
    return [*shares, *[None] * (len(problems) - len(shares))]


def _share_in(line: bytes) -> float | None:
    try:
        share = json.loads(line)
    except ValueError:  # cut short
        return None
    return float(share) if isinstance(share, int | float) else None
