"""kill -9: an acknowledged evaluation is there afterwards, whole and once."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

from archive_records import evaluation

from db.archive import ProgramArchive
from db.live import open_for_reading

N_KILLS = 6
WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from archive_records import evaluation
from db import checkpoints
from db.archive import ProgramArchive

checkpoints.LOG_BYTES = 20_000  # some begin on their own beside those that are asked for
archive = ProgramArchive.open(sys.argv[1], wait_s=30)
n = int(sys.argv[3])
while True:
    size = 1 + n % 5
    archive.insert([evaluation(k, source=f"def kernel_function(x): return '{k}' * {k}") for k in range(n, n + size)])
    n += size
    print(n, flush=True)
    if n % 7 == 0:
        archive.checkpoint()
"""


def write_and_kill(path: Path, begin: int, after_s: float) -> int:
    """Inserts candidates from `begin` on until the kill; the number of the first that was not acknowledged."""
    folder = str(Path(__file__).parent)
    command = [sys.executable, "-c", WRITER, str(path), folder, str(begin)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    acknowledged = int(process.stdout.readline())
    time.sleep(after_s)
    process.kill()
    # what lies in the pipe was acknowledged before the kill
    acknowledged = max([acknowledged, *(int(line) for line in process.stdout.read().split("\n")[:-1])])
    process.wait(30)
    return acknowledged


def test_no_acknowledged_row_is_lost(tmp_path: Path) -> None:
    path, rng, acknowledged, n_stored = tmp_path / "a.duckdb", random.Random(0), 0, 0
    for _ in range(N_KILLS):
        acknowledged = write_and_kill(path, n_stored, rng.uniform(0, 0.3))
        with open_for_reading(path) as reader:  # reads the log, too
            stored = reader.evaluations("r1")
        n_stored = len(stored)
        assert n_stored >= acknowledged
        assert [e.candidate.candidate_id for e in stored] == [f"r1-0-{n:06d}" for n in range(n_stored)]
    assert acknowledged > N_KILLS
    with ProgramArchive.open(path) as archive:
        again = [evaluation(n) for n in range(n_stored)]
        assert archive.insert(again) == 0  # resumed work that was stored already comes twice, and is kept once
