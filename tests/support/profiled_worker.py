"""Stands in for the worker that ncu runs, where there is no GPU: programs are a list of words, launches are names.

`launch NAME`, `raise`, `die`, `load-die`, `sleep`: what a program does while it is measured.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from evaluators.profiling import progress
from evaluators.profiling.ncu import SEPARATOR
from tests.support.ncu_stand_in import LAUNCHES

FOLDER = Path.cwd()


def main() -> None:
    batch = json.loads((FOLDER / progress.BATCH).read_text())
    sources = [program["source"].split() for program in batch["programs"]]
    for n, words in enumerate(sources):
        progress.note(FOLDER, n, "load")
        if "load-die" in words:
            os._exit(3)
        progress.note(FOLDER, n, "loaded")
    (FOLDER / progress.READY).write_text(str(os.getpid()))
    assert progress.wait_for(FOLDER / progress.GO, time.monotonic() + 60, lambda: False)
    launches: list[str] = []
    for n, words in enumerate(sources):
        measure(n, words, launches)
    (FOLDER / progress.DONE).touch()


def measure(n: int, words: list[str], launches: list[str]) -> None:
    progress.note(FOLDER, n, "measure")
    launch(f"at::{SEPARATOR}(long)", launches)
    progress.note(FOLDER, n, "marked")
    for word in words:
        if word == "raise":
            progress.note(FOLDER, n, "failed", "ValueError: it does not like this")
            return
        if word == "die":
            os._exit(3)
        if word == "sleep":
            time.sleep(600)
        launch(word, launches)
    progress.note(FOLDER, n, "measured")


def launch(name: str, launches: list[str]) -> None:
    launches.append(name)
    (FOLDER / LAUNCHES).write_text(json.dumps(launches))


if __name__ == "__main__":
    main()
