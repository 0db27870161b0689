"""What a user can get wrong: exit code 2, one line that says what is wrong, one that says what to do, nothing lost.

Each mistake is made with the real command. What can be found out before Ray starts is found out within seconds.
"""

from __future__ import annotations

import os
import re
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
import ray
from support.evolving import Ended, Started, evolve, rows

from db.archive import ProgramArchive
from db.errors import ArchiveBusyError

SOON_S = 30.0  # a command that does not start Ray; generous, because test machines are busy
NAME = "fused_add_rms_norm"

MODEL = """
import torch
import torch.nn as nn

n_rows = 64


class Model(nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.randn(n_rows, 1000)]


def get_init_inputs():
    return []
"""

SEED = """
import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, DOUBLED, mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        double_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""


def run(*arguments: str | Path, folder: Path, device: str = "cpu", **more: Any) -> Ended:
    return evolve("run", *arguments, "--device", device, cwd=folder, **more)


def held_to(ended: Ended, message: str, hint: str) -> None:
    """Ended with 2, a line that says what is wrong, a line that says what to do, and nothing else."""
    assert ended.code == 2, ended
    assert len(ended.complaint) == 2, ended.err
    assert re.fullmatch(f"error: .*{message}.*", ended.complaint[0]), ended.err
    assert re.fullmatch(f"hint:  .*{hint}.*", ended.complaint[1]), ended.err


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


# ---------------------------------------------------------------------------------- what needs no Ray to be seen


@pytest.fixture(autouse=True)
def watched_time(request: pytest.FixtureRequest) -> Iterator[None]:
    began = time.monotonic()
    yield
    if request.node.get_closest_marker("slow") is None:
        assert time.monotonic() - began < SOON_S


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("Dear diary, today I saw a kernel.", r"mine.py:1: not Python", "Python 3.11"),
        ("import torch\n\ndef get_inputs():\n    return []\n", r"mine.py.*Model", "class Model"),
        (MODEL, "no first program to evolve", "--seed-program FILE or --seed-from ARCHIVE.*--model"),
    ],
)
def test_a_file_that_is_no_problem(tmp_path: Path, text: str, message: str, hint: str) -> None:
    write(tmp_path, "mine.py", text)
    held_to(run("mine.py", folder=tmp_path), message, hint)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]


def test_a_misspelt_problem_name(tmp_path: Path) -> None:
    held_to(run("sofmax", folder=tmp_path), "sofmax", "'softmax'")


def test_an_unknown_config_key(tmp_path: Path) -> None:
    held_to(run(NAME, "--set", "search.migration_sise=3", folder=tmp_path), "migration_sise", "migration_size")


def test_an_unknown_topology_and_target(tmp_path: Path) -> None:
    held_to(run(NAME, "--set", "topology=rings", folder=tmp_path), "rings", "ring")
    held_to(run(NAME, "--target", "h1000", folder=tmp_path), "h1000", "h100")
    assert not list(tmp_path.iterdir())


def test_a_seed_file_that_is_no_program(tmp_path: Path) -> None:
    write(tmp_path, "seed.py", "def kernel(:\n")
    held_to(run(NAME, "--seed-program", "seed.py", folder=tmp_path), "seed.py:1: not Python", "Python 3.11")
    (tmp_path / "seed.py").write_bytes(b"\x89PNG\xff")
    held_to(run(NAME, "--seed-program", "seed.py", folder=tmp_path), "no text file", "UTF-8")


def test_an_earlier_archive_that_is_not_there(tmp_path: Path) -> None:
    held_to(run(NAME, "--seed-from", "earlier.duckdb", folder=tmp_path), "no archive .*earlier", "evolve run")


def test_an_archive_of_a_newer_schema(tmp_path: Path) -> None:
    archive = tmp_path / "evolve.duckdb"
    ProgramArchive.open(archive).close()
    with duckdb.connect(str(archive)) as connection:
        (table,) = connection.execute(
            "SELECT table_name FROM duckdb_tables() WHERE table_name LIKE '%migration%'"
        ).fetchall()[0]
        connection.execute(f"UPDATE {table} SET version = 1000 WHERE version = 1")
    before = archive.read_bytes()
    held_to(run(NAME, folder=tmp_path), "schema", "evolve")
    assert archive.read_bytes() == before


def test_a_truncated_archive(tmp_path: Path) -> None:
    archive = tmp_path / "evolve.duckdb"
    ProgramArchive.open(archive).close()
    archive.write_bytes(archive.read_bytes()[:20_000])
    held_to(run(NAME, folder=tmp_path), "damaged", "backup")
    held_to(evolve("resume", cwd=tmp_path), "damaged", "backup")
    assert archive.stat().st_size == 20_000


def test_an_archive_that_another_process_holds(tmp_path: Path) -> None:
    with ProgramArchive.open(tmp_path / "evolve.duckdb"):
        held_to(run(NAME, folder=tmp_path), rf"is held by .*PID {os.getpid()}", "--archive FILE")


@pytest.mark.parametrize("option", ["--archive", "--out"])
def test_a_folder_that_cannot_be_written(tmp_path: Path, option: str) -> None:
    folder = tmp_path / "kept"
    folder.mkdir(mode=0o555)
    ended = run(NAME, option, folder / "run.duckdb", folder=tmp_path, heeds_permissions=True)
    held_to(ended, f"{folder}.*(read-only|Permission denied)", option)
    assert not list(folder.iterdir())


def test_a_cluster_that_nobody_answers_for(tmp_path: Path) -> None:
    began = time.monotonic()
    held_to(run(NAME, "--set", "cluster.address=127.0.0.1:1", folder=tmp_path), "127.0.0.1:1.*refused", "ray status")
    held_to(run(NAME, "--set", "cluster.address=ray://127.0.0.1:1", folder=tmp_path), "Ray Client", "a node of it")
    assert time.monotonic() - began < SOON_S
    assert not list(tmp_path.iterdir())


def test_nothing_to_resume(tmp_path: Path) -> None:
    held_to(evolve("resume", cwd=tmp_path), "no archive", "evolve run")
    ProgramArchive.open(tmp_path / "evolve.duckdb").close()
    held_to(evolve("resume", cwd=tmp_path), "no unfinished run", "evolve query")
    held_to(evolve("resume", "20200101", cwd=tmp_path), "20200101", "it holds")


def test_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    hidden = {"LD_LIBRARY_PATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    held_to(run(NAME, folder=tmp_path, device="cuda", **hidden), "no CUDA device", "--device cpu")


# ------------------------------------------------------------------------------ what only judging brings to light


@pytest.fixture
def joined(ray_session: None) -> tuple[str, ...]:
    """The option that makes a command join the Ray of these tests."""
    address = ray.get_runtime_context().gcs_address
    return ("--set", f"cluster.address={address}", "--islands", "1", "--evaluations", "2")


@pytest.mark.slow
def test_a_seed_that_does_not_compile(joined: tuple[str, ...], tmp_path: Path) -> None:
    write(tmp_path, "mine.py", MODEL + SEED.replace("DOUBLED", "tl.twice(x)"))
    held_to(run("mine.py", *joined, folder=tmp_path), "no seed of problem 'mine'.*twice", "evolve check")


@pytest.mark.slow
def test_a_seed_that_is_wrong(joined: tuple[str, ...], tmp_path: Path) -> None:
    write(tmp_path, "mine.py", MODEL + SEED.replace("DOUBLED", "x * 3.0"))
    held_to(run("mine.py", *joined, folder=tmp_path), "no first program passed: correctness: ", "evolve check")
    archive = tmp_path / "evolve.duckdb"
    (kept,) = rows("SELECT outcome, gate FROM evaluations", archive=archive)
    assert kept == {"outcome": "failed", "gate": "correctness"}
    (ran,) = rows("SELECT status, stop_reason FROM runs", archive=archive)
    assert ran["status"] == "finished" and "no first program passed" in ran["stop_reason"]


@pytest.mark.slow
def test_a_shape_that_does_not_fit_in_memory(joined: tuple[str, ...], tmp_path: Path) -> None:
    write(tmp_path, "mine.py", MODEL + SEED.replace("DOUBLED", "x * 2.0"))
    ended = run("mine.py", *joined, "--shape", "n_rows=100_000_000", folder=tmp_path)
    held_to(ended, "does not fit in memory: its full workload takes 800.0 GB", "--shape")


@pytest.mark.slow
def test_a_full_disk(joined: tuple[str, ...], tmp_path: Path) -> None:
    """The archive's process may not write another byte to any file, as if the disk were full."""
    archive = tmp_path / "full.duckdb"
    endless = ("--set", "stop_at_roofline=1")  # the seed runs at the roof, as far as the model sees
    words = ("run", NAME, *endless, *joined[:-1], "500", "--device", "cpu", "--archive", archive)
    with Started(*words, cwd=tmp_path) as started:
        started.wait_for("new best")
        kept = rows("SELECT candidate_id FROM evaluations", archive=archive)
        with pytest.raises(ArchiveBusyError) as caught:
            ProgramArchive.open(archive)
        assert caught.value.owner_pid is not None
        resource.prlimit(caught.value.owner_pid, resource.RLIMIT_FSIZE, (0, 0))
        code = started.wait()
    complaint = [line for line in started.printed.splitlines() if line.startswith(("error", "hint", "Traceback"))]
    assert code == 2 and len(complaint) == 2, started.printed
    assert "no space left" in complaint[0] and "evolve resume" in complaint[1]
    assert {row["candidate_id"] for row in kept} <= set(ids_of(archive))
    assert [row["status"] for row in rows("SELECT status FROM runs", archive=archive)] == ["running"]


def ids_of(archive: Path) -> list[str]:
    return [row["candidate_id"] for row in rows("SELECT candidate_id FROM evaluations", archive=archive)]
