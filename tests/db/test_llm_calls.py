"""Calls of language models in the archive: stored once, listed in order, summed, and readable beside a writer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
import ray
from archive_records import evaluation, filled
from pydantic import ValidationError

from db.actor import ArchiveActor
from db.archive import ProgramArchive
from db.errors import ArchiveError
from db.live import ArchiveServer, LiveArchive, open_for_reading
from db.llm_calls import LlmCall
from db.migrations import load_steps, migrate


def call(n: int, **changes: Any) -> LlmCall:
    values: dict[str, Any] = {
        "call_id": f"call-{n}",
        "run_id": "r1",
        "island": n % 3,
        "operator": "mutate",
        "model": "openai/gpt-4o",
        "prompt_hash": f"hash-{n}",
        "n_tokens_in": 1000 + n,
        "n_tokens_out": 100,
        "cost_usd": 0.25,
        "seconds": 2.0,
        "outcome": "answered",
        "created_at": 1_700_000_000.0 + n,
    }
    return LlmCall(**{**values, **changes})


CALLS = [
    call(1),
    call(2, outcome="cut_off", has_estimated_tokens=True),
    call(3, outcome="rate_limit", reason="slow down", cost_usd=0.0, n_tokens_out=0),
    call(4, operator="plan", seconds=6.0),
    call(5, model="ollama/qwen2.5-coder:32b", cost_usd=None),
    call(6, run_id="r2"),
]


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[ProgramArchive]:
    with ProgramArchive.open(tmp_path / "a.duckdb") as archive:
        yield archive


def test_calls_come_back_as_they_were_in_order(archive: ProgramArchive) -> None:
    archive.add_llm_calls(list(reversed(CALLS)))
    assert archive.llm_calls() == CALLS
    assert archive.llm_calls("r1") == CALLS[:5]
    assert archive.llm_calls("nothing") == []


def test_a_call_is_stored_once(archive: ProgramArchive) -> None:
    archive.add_llm_calls([CALLS[0], CALLS[0], CALLS[1]])
    archive.add_llm_calls([CALLS[1].model_copy(update={"cost_usd": 9.0}), CALLS[2]])
    archive.add_llm_calls([])
    assert archive.llm_calls() == CALLS[:3]


def test_totals_are_for_each_model_and_operator_the_dearest_first(archive: ProgramArchive) -> None:
    archive.add_llm_calls(CALLS)
    totals = archive.llm_totals("r1")
    assert [(t.model, t.operator) for t in totals] == [
        ("openai/gpt-4o", "mutate"),
        ("openai/gpt-4o", "plan"),
        ("ollama/qwen2.5-coder:32b", "mutate"),
    ]
    first, _, unpriced = totals
    assert (first.n_calls, first.n_answered, first.n_cut_off) == (3, 2, 1)
    assert (first.n_tokens_in, first.n_tokens_out, first.cost_usd) == (3006, 200, 0.5)
    assert (first.seconds, first.mean_s) == (6.0, 2.0)
    assert unpriced.cost_usd is None
    assert sum(total.n_calls for total in archive.llm_totals()) == 6


def test_a_call_does_not_contradict_itself() -> None:
    with pytest.raises(ValidationError):
        call(1, seconds=-1.0)
    with pytest.raises(ValidationError):
        call(1, cost_usd=-0.1)


def test_an_archive_of_an_earlier_version_gets_the_table(tmp_path: Path) -> None:
    path = tmp_path / "old.duckdb"
    with duckdb.connect(str(path)) as connection:
        migrate(connection, load_steps()[:2])
    with open_for_reading(path) as reader:
        assert reader.llm_calls() == []
        assert reader.llm_totals() == []


def test_an_archive_that_is_only_read_takes_none(tmp_path: Path) -> None:
    filled(tmp_path / "a.duckdb", [evaluation(1)]).close()
    with ProgramArchive.open(tmp_path / "a.duckdb", read_only=True) as archive, pytest.raises(ArchiveError):
        archive.add_llm_calls(CALLS)


def test_other_processes_read_calls_through_the_owner(archive: ProgramArchive) -> None:
    archive.add_llm_calls(CALLS)
    server = ArchiveServer(archive)
    try:
        live = LiveArchive(archive.path)
        assert live.llm_calls("r1") == CALLS[:5]
        assert live.llm_totals() == archive.llm_totals()
    finally:
        server.close()


def test_calls_are_exported_with_their_run(archive: ProgramArchive, tmp_path: Path) -> None:
    archive.add_llm_calls(CALLS)
    files = {file.name for file in archive.export(tmp_path / "out", "jsonl")}
    assert "llm_calls.jsonl" in files
    assert len((tmp_path / "out" / "llm_calls.jsonl").read_text().splitlines()) == 6


@pytest.mark.usefixtures("ray_session")
def test_the_actor_stores_and_reads_calls(tmp_path: Path) -> None:
    actor = ArchiveActor.remote(str(tmp_path.resolve() / "a.duckdb"))  # type: ignore[attr-defined]
    try:
        ray.get(actor.add_llm_calls.remote(CALLS), timeout=60)
        assert ray.get(actor.llm_calls.remote("r2"), timeout=60) == CALLS[5:]
        assert len(ray.get(actor.llm_totals.remote(), timeout=60)) == 3
    finally:
        ray.kill(actor)
