"""A sample of `python -m benchmarks.fuzz`: spoilt inputs from outside raise the project's own errors alone."""

from __future__ import annotations

import json
import random
from pathlib import Path

import duckdb
import pytest
from support.runs import fill_archive

from benchmarks.fuzz import TARGETS, Target, made, try_one
from db.errors import ArchiveError, ConfigError, ProblemError
from evaluators.gates.static import check_policy
from evaluators.problems import load_problem, suite_problem
from evolve.config import load_config
from evolve.queries import reading

SAMPLE = {
    "problems": 60,
    "programs": 12,
    "answers": 60,
    "configs": 60,
    "archives": 12,
    "records": 12,
    "schemas": 12,
    "reports": 15,
    "knowledge": 60,
}


@pytest.mark.parametrize("target", TARGETS, ids=[target.name for target in TARGETS])
def test_spoilt_inputs_raise_nothing_else(target: Target, tmp_path: Path) -> None:
    findings = [try_one(target, seed, tmp_path) for seed in range(SAMPLE[target.name])]
    assert [finding.what for finding in findings if finding is not None] == []


def test_an_input_is_drawn_from_its_seed() -> None:
    for target in TARGETS:
        assert made(target, 3)[0] == made(target, 3)[0] != made(target, 4)[0]


def test_a_finding_is_found(tmp_path: Path) -> None:
    def read(_: bytes, rng: random.Random, __: Path) -> None:
        json.loads("{" if rng.random() < 1 else "{}")

    finding = try_one(Target("broken", 1, lambda: [b"x"], TARGETS[0].mutations, read), 0, tmp_path)
    assert finding is not None and "JSONDecodeError" in finding.what


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"\xff\xfe\x00", "is no text"),
        (b"\x00", "is not YAML"),
        (b"[" * 3000, "is not YAML"),
        (b"a: 2026-99-99", "is not"),
    ],
)
def test_a_damaged_config_file_is_told_as_such(text: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_bytes(text)
    with pytest.raises(ConfigError, match=reason):
        load_config("softmax", file=tmp_path / "run.yaml")


def test_a_damaged_set_is_told_as_such() -> None:
    with pytest.raises(ConfigError, match="the value of --set time_s is not YAML"):
        load_config("softmax", sets=["time_s=[1"])


def test_a_record_that_was_changed_by_hand_is_told_as_damage(tmp_path: Path) -> None:
    path = tmp_path / "evolve.duckdb"
    fill_archive(path, n=10)
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE evaluations SET lineage = '[]'")
    with reading(path) as archive:
        assert archive.runs()
        with pytest.raises(ArchiveError, match=r"a record in .* is damaged"):
            archive.elites()


def test_what_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    for deep in ("-" * 3000 + "1", "(" * 3000, "1" + " + 0" * 2000):
        (tmp_path / "problem.py").write_text(f"x = {deep}\n")
        with pytest.raises(ProblemError, match=r"nested too deeply|not Python"):
            load_problem(str(tmp_path / "problem.py"))
    deep = suite_problem("softmax").seeds[0].replace("BLOCK = 1024", "BLOCK = 1024" + " + 0" * 700)
    assert "nested too deeply" in check_policy(deep, "ModelNew").reason
