"""Many rows at once are stored as they would be one by one."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from archive_records import evaluation, problem, run

from db.archive import ProgramArchive
from db.loading import MIN_ROWS
from db.measures import TIERS
from db.records import Evaluation

N_ROWS = 2 * MIN_ROWS + 5


def drawn(n: int, rng: random.Random) -> Evaluation:
    """Columns with and without values, texts that ask for escapes, numbers that fill their types."""
    one = evaluation(
        n,
        island=rng.randrange(3),
        latency_us=rng.choice((None, 0.1, 1e9, 100.0 + n)),
        tier=rng.choice(TIERS),
        parents=[f"{rng.getrandbits(64):016x}" for _ in range(n % 3)],
        source=f"def kernel_function(x):\n    return x + {n}  # \\ ' \" \u00e9 \u4e2d \U0001f600 , \t\n",
        hardware_id=rng.choice(("a", "b")),
    )
    ratio = rng.choice((None, 1.5, math.inf))
    return one.model_copy(update={"verdict": one.verdict.model_copy(update={"error_ratio": ratio})})


@pytest.mark.parametrize("first_values", [0, 1100])
def test_rows_are_the_same_whether_they_come_together_or_alone(tmp_path: Path, first_values: int) -> None:
    """`first_values` rows without latencies come first: nothing may be guessed from a sample."""
    rng = random.Random(5)
    several = [evaluation(9000 + n, latency_us=None) for n in range(first_values)] + [
        drawn(n, rng) for n in range(N_ROWS)
    ]
    tables = []
    for name, size in (("together", len(several)), ("alone", 1 if not first_values else MIN_ROWS - 1)):
        with ProgramArchive.open(tmp_path / f"{name}.duckdb") as archive:
            archive.add_problem(problem())
            archive.add_run(run())
            for begin in range(0, len(several), size):
                archive.insert(several[begin : begin + size])
            tables.append(archive.query("SELECT * FROM evaluations ORDER BY seq").rows)
            assert [e.candidate for e in archive.evaluations("r1")] == [e.candidate for e in several]
    together, alone = tables
    assert len(together) == len(several) and together == alone


def test_rows_that_are_there_already_are_passed_over_among_many(tmp_path: Path) -> None:
    several = [evaluation(n) for n in range(N_ROWS)]
    with ProgramArchive.open(tmp_path / "a.duckdb") as archive:
        assert archive.insert(several[::2]) == len(several[::2])
        assert archive.insert(several) == len(several) - len(several[::2])
        assert archive.insert(several) == 0
        stored = {e.candidate.candidate_id for e in archive.evaluations("r1")}
        assert stored == {e.candidate.candidate_id for e in several}
        assert archive.query("SELECT count(*), count(DISTINCT seq), max(seq) FROM evaluations").rows == [(N_ROWS,) * 3]
