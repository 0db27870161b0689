"""Questions that need somebody's code to be run, asked of a process of their own.

Reading a problem imports neither torch nor the user's packages. Where that cannot be helped, `ask` starts a process
with the same import path, gives it a question on standard input, and takes its answer from standard output; `serve` is
the other side. What the user's code prints goes to standard error.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from db.errors import EvolveError, ProblemError

DEADLINE_S = 300.0  # torch, the user's package, and a first use of the GPU


def ask(module: str, question: Mapping[str, Any], deadline_s: float = DEADLINE_S) -> dict[str, Any]:
    """What `module`, started as a program, answers. Within this process each question is asked once.

    Raises:
        ProblemError: it says that the user's code is at fault, it died, or the deadline passed.
    """
    return dict(_asked(module, json.dumps(question, sort_keys=True), deadline_s))


@functools.lru_cache(maxsize=64)
def _asked(module: str, question: str, deadline_s: float) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-P", "-m", module]
    try:
        done = subprocess.run(
            command, input=question, capture_output=True, text=True, env=environment, timeout=deadline_s
        )
    except subprocess.TimeoutExpired as cause:
        raise ProblemError(f"no answer within {deadline_s:.0f} s while importing", "import it by itself") from cause
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["nothing was printed"])[-1]
        raise ProblemError(f"the process that imports died with exit status {done.returncode}: {last}")
    answer: dict[str, Any] = json.loads(done.stdout)
    if "error" in answer:
        raise ProblemError(answer["error"], answer["hint"])
    return answer


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answers the question on standard input; an `EvolveError` is an answer too."""
    stream = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        found = answer(json.load(sys.stdin))
    except EvolveError as error:
        found = {"error": error.message, "hint": error.hint}
    with stream:
        json.dump(found, stream)
