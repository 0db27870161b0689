"""Stands in for the worker that ncu runs, where there is no GPU: programs are a list of words, launches are names.

`launch NAME`, `raise`, `die`, `load-die`, `sleep`, `push:RANGE`, `pop`: what a program does while it is measured; the
time of the batch ends at `slow`, unless that is of its first program.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from evaluators.profiling import progress
from evaluators.profiling.ranges import range_name
from tests.support.ncu_stand_in import LAUNCHES

FOLDER = Path.cwd()
Launches = list[tuple[str, list[str]]]  # names, each with the ranges that were open


def main() -> None:
    batch = progress.take_batch(FOLDER)
    sources = [program["source"].split() for program in batch["programs"]]
    for n, words in enumerate(sources):
        progress.note(FOLDER, n, "load")
        if "load-die" in words:
            os._exit(3)
        progress.note(FOLDER, n, "loaded")
    (FOLDER / progress.READY).write_text(str(os.getpid()))
    assert progress.wait_for(FOLDER / progress.GO, time.monotonic() + 60, lambda: False)
    launches: Launches = []
    for n, words in enumerate(sources):
        measure(n, words, [range_name(batch["nonce"], n)], launches)
    (FOLDER / progress.DONE).touch()


def measure(n: int, words: list[str], ranges: list[str], launches: Launches) -> None:
    progress.note(FOLDER, n, "measure")
    for word in words:
        if word == "raise":
            progress.note(FOLDER, n, "failed", "ValueError: it does not like this")
            return
        if word == "die":
            os._exit(3)
        if word == "sleep":
            time.sleep(600)
        if word == "slow" and n > 0:
            progress.note(FOLDER, n, "put off")
            return
        if word == "pop":
            ranges.pop()
        elif word.startswith("push:"):
            ranges.append(word.removeprefix("push:"))
        else:
            launches.append((word, [*ranges]))
            (FOLDER / LAUNCHES).write_text(json.dumps(launches))
    progress.note(FOLDER, n, "measured")


if __name__ == "__main__":
    main()
