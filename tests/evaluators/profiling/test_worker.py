"""What of the worker under ncu needs no GPU: ranges that end, and time that does."""

from __future__ import annotations

import time

import pytest
import torch

from evaluators.profiling.worker import OutOfTime, PutOff, _in_range, _limited


class Nvtx:
    """A thread's ranges, as NVTX has them: a call answers with the level of the range, a negative one if there is none
    or (`is_silent`) if no tool listens."""

    def __init__(self, is_silent: bool = False) -> None:
        self.open: list[str] = []
        self.n_pops = 0
        self._is_silent = is_silent

    def range_push(self, name: str) -> int:
        self.open.append(name)
        return -2 if self._is_silent else len(self.open) - 1

    def range_pop(self) -> int:
        self.n_pops += 1
        level = len(self.open) - 1
        if self.open:
            self.open.pop()
        return -2 if self._is_silent else level


@pytest.fixture
def nvtx(monkeypatch: pytest.MonkeyPatch) -> Nvtx:
    ranges = Nvtx()
    monkeypatch.setattr(torch.cuda, "nvtx", ranges)
    return ranges


def test_ranges_that_a_program_leaves_open_end_with_its_own(nvtx: Nvtx):
    nvtx.range_push("before")
    with _in_range("program"):
        nvtx.range_push("own")
        nvtx.range_push("own again")
        assert nvtx.open == ["before", "program", "own", "own again"]
    assert nvtx.open == ["before"]


def test_a_program_that_raises_or_ends_too_many_leaves_no_range(nvtx: Nvtx):
    with pytest.raises(ValueError, match="no"), _in_range("program"):
        raise ValueError("no")
    with _in_range("program"):
        nvtx.range_pop()
        nvtx.range_pop()
    assert nvtx.open == []


def test_where_no_tool_listens_one_range_is_ended(monkeypatch: pytest.MonkeyPatch):
    ranges = Nvtx(is_silent=True)
    monkeypatch.setattr(torch.cuda, "nvtx", ranges)
    with _in_range("program"):
        pass
    assert ranges.n_pops == 1


@pytest.mark.parametrize("over", [OutOfTime("too long"), PutOff()])
def test_a_program_is_stopped_when_its_time_is_over(over: Exception):
    start = time.monotonic()
    with pytest.raises(type(over)), _limited(0.05, over):
        while time.monotonic() < start + 5:
            pass
    with _limited(0.05, over):
        pass
    time.sleep(0.1)  # the alarm is off
    assert time.monotonic() < start + 2
