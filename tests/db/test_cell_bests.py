"""The index of elites says what a question about all evaluations would say, whatever happened to them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from archive_records import evaluation, problem, run

from db import migrations
from db.archive import ProgramArchive
from db.errors import ArchiveError
from db.measures import TIERS
from db.records import CONFIRM, Evaluation, PrecisionClass

FASTEST = """
SELECT arg_min(seq, rank_us), grid, cell, min(rank_us) FROM {table}
WHERE rank_us IS NOT NULL AND ({scope}) GROUP BY grid, cell ORDER BY grid, cell
"""
SCOPES = ("true", "run_id = 'r1'", "run_id = 'r2' AND island = 1", "precision = 'relaxed'", "hardware_id = 'b'")


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[ProgramArchive]:
    with ProgramArchive.open(tmp_path / "a.duckdb") as opened:
        opened.add_problem(problem())
        for name in ("r1", "r2"):
            opened.add_run(run(name))
        yield opened


def fastest(archive: ProgramArchive, table: str) -> dict[str, list[tuple[Any, ...]]]:
    return {scope: archive.query(FASTEST.format(table=table, scope=scope)).rows for scope in SCOPES}


def drawn(n: int, rng: random.Random) -> Evaluation:
    """Few latencies, so that many meet in a cell."""
    return evaluation(
        n,
        run_id=rng.choice(("r1", "r2")),
        island=rng.randrange(2),
        latency_us=None if rng.random() < 0.2 else 100.0 + rng.randrange(40) / 2,
        tier=rng.choice(TIERS),
        precision=rng.choice(tuple(PrecisionClass)),
        hardware_id=rng.choice("ab"),
    )


def looked_at_again(of: Evaluation, n: int, latency_us: float) -> Evaluation:
    """A second judgement of a program, as the end of a run asks for."""
    again = evaluation(
        n, run_id=of.candidate.run_id, latency_us=latency_us, source=of.candidate.source,
        precision=of.verdict.precision, hardware_id=of.verdict.hardware_id, fingerprint=of.verdict.fingerprint,
    )  # fmt: skip
    lineage = again.candidate.lineage.model_copy(update={"operator": CONFIRM})
    return again.model_copy(update={"candidate": again.candidate.model_copy(update={"lineage": lineage})})


@pytest.mark.parametrize("rng_seed", range(3))
def test_the_index_agrees_with_the_evaluations(archive: ProgramArchive, rng_seed: int) -> None:
    rng = random.Random(rng_seed)
    kept: list[Evaluation] = []
    for n in range(0, 240, 20):
        batch = [drawn(n + k, rng) for k in range(rng.randrange(8, 20))]
        archive.insert(batch)
        kept += [e for e in batch if e.verdict.is_correct]
        match rng.randrange(3):
            case 0:
                unlucky = min(rng.choices(kept, k=3), key=lambda e: e.verdict.latency.device_us)  # type: ignore[union-attr]
                archive.insert([looked_at_again(unlucky, 1000 + n, 100.0 + rng.randrange(20))])
            case 1:
                moved = [e.verdict.model_copy(update={"tier": rng.choice(TIERS)}) for e in rng.choices(kept, k=3)]
                archive.reprofile(moved)
        assert fastest(archive, "cell_bests") == fastest(archive, "evaluations")
    n_index, n_rows = archive.query("SELECT (SELECT count(*) FROM cell_bests), count(*) FROM evaluations").rows[0]
    assert n_index < n_rows


def test_the_index_goes_on_after_reopening(tmp_path: Path) -> None:
    rng = random.Random(9)
    for n in range(0, 120, 40):
        with ProgramArchive.open(tmp_path / "a.duckdb") as archive:
            archive.insert([drawn(n + k, rng) for k in range(40)])
            assert fastest(archive, "cell_bests") == fastest(archive, "evaluations")


def test_a_failed_insert_leaves_no_trace_in_the_index(archive: ProgramArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.insert([evaluation(0, latency_us=100.0)])
    best = evaluation(1, latency_us=99.0)
    with monkeypatch.context() as patched:
        patched.setattr(archive._bests, "mend", lambda *_: (_ for _ in ()).throw(ArchiveError("no", "")))
        with pytest.raises(ArchiveError):
            archive.insert([best, looked_at_again(evaluation(0), 2, 101.0)])
    archive.insert([best])
    assert fastest(archive, "cell_bests") == fastest(archive, "evaluations")
    elite = archive.best("softmax")
    assert elite is not None and elite.verdict.candidate_id == best.candidate.candidate_id


def test_an_archive_of_an_earlier_version_gets_the_index(tmp_path: Path) -> None:
    path, rng = tmp_path / "a.duckdb", random.Random(3)
    with ProgramArchive.open(path) as archive:
        archive.insert([drawn(n, rng) for n in range(60)])
    step = next(step for step in migrations.load_steps() if step.name == "cell_bests")
    with duckdb.connect(str(path)) as connection:
        for table in ("cell_bests", "imported_recipes"):  # what it and later versions made
            connection.execute(f"DROP TABLE {table}")
        connection.execute("DELETE FROM schema_migrations WHERE version >= ?", [step.version])
    with ProgramArchive.open(path) as archive:
        assert fastest(archive, "cell_bests") == fastest(archive, "evaluations")
