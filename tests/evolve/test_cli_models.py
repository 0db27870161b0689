"""`evolve run` of a module where there is no GPU: what it says, and that nothing is left behind. The real command."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.evolving import Ended, evolve

from db.records import DeviceKind
from evolve.config import make_config
from evolve.models import run as models_run
from evolve.models.run import is_taken_apart

MODULE = """
import torch
import torch.nn as nn

n_rows = 64


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)


def get_inputs():
    return [torch.randn(n_rows, 1000)]


def get_init_inputs():
    return []
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MODULE)
    return tmp_path


def run(folder: Path, *options: str) -> Ended:
    return evolve("run", "mine.py", "--device", "cpu", *options, cwd=folder)


def test_a_module_without_a_program_says_that_a_gpu_would_do(folder: Path) -> None:
    ended = run(folder)
    assert ended.code == 2 and "no first program to evolve" in ended.complaint[0]
    assert "--model" in ended.complaint[1] and "with a GPU a module is taken apart" in ended.complaint[1]
    assert [path.name for path in folder.iterdir()] == ["mine.py"]


def test_parts_that_are_wanted_need_a_gpu(folder: Path) -> None:
    ended = run(folder, "--parts", "always")
    assert ended.code == 2 and len(ended.complaint) == 2, ended.err
    assert "taking a module apart needs a GPU" in ended.complaint[0] and "--parts never" in ended.complaint[1]
    assert [path.name for path in folder.iterdir()] == ["mine.py"]


def test_answers_that_are_carried_go_with_one_search(folder: Path) -> None:
    ended = run(folder, "--parts", "always", "--set", "llm.mode=exchange", "--model", "openai/any")
    assert ended.code == 2 and "cannot be carried or recorded" in ended.complaint[0]


def test_a_module_is_left_whole_where_there_is_no_gpu(folder: Path) -> None:
    values = {"problem": str(folder / "mine.py"), "device": "cpu"}
    assert not is_taken_apart(make_config(values))
    assert not is_taken_apart(make_config({**values, "models": ["openai/any"]}))


@pytest.mark.parametrize(
    ("asked", "is_apart"),
    [
        ({}, True),
        ({"models": ["openai/any"]}, True),  # the module itself is searched beside its parts
        ({"models": ["openai/any"], "llm": {"record": "answers.jsonl"}}, False),
        ({"models": ["openai/any"], "llm": {"mode": "exchange"}}, False),
        ({"llm": {"replay": "answers.jsonl"}}, False),
        ({"parts": "never"}, False),
        ({"seed_from": ["earlier.duckdb"]}, False),
        ({"seed_programs": ["first.py"]}, False),
    ],
)
def test_a_module_on_a_gpu_is_taken_apart_unless_it_is_one_search(
    folder: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, object], is_apart: bool
) -> None:
    monkeypatch.setattr(models_run, "resolve_device", lambda _: DeviceKind.CUDA)
    assert is_taken_apart(make_config({"problem": str(folder / "mine.py"), "device": "cuda", **asked})) is is_apart
