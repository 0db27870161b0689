"""What a program may not change in its own process."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from torch import nn

from evaluators.process_state import FLAGS, KeptWeights, differences, observe


def test_a_process_that_nobody_touches_is_the_same():
    torch.softmax(torch.randn(3, 3), 1)
    assert differences(observe(), observe()) == []


@pytest.mark.parametrize("name", ["benchmark", "deterministic", "allow_tf32"])
def test_a_flag_of_cudnn_is_seen(name: str, monkeypatch: pytest.MonkeyPatch):
    before = observe()
    monkeypatch.setattr(torch.backends.cudnn, name, not getattr(torch.backends.cudnn, name))
    assert any(f"torch.backends.cudnn.{name}" in sentence for sentence in differences(before, observe()))


def test_grad_mode_and_the_default_dtype_are_seen():
    before = observe()
    with torch.inference_mode():
        assert any("inference mode" in sentence for sentence in differences(before, observe()))
    torch.set_default_dtype(torch.float64)
    try:
        assert any("default dtype" in sentence for sentence in differences(before, observe()))
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_clock_that_was_replaced_is_seen(monkeypatch: pytest.MonkeyPatch):
    before = observe()
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
    assert differences(before, observe()) == ["time.perf_counter was replaced"]


def test_a_thread_is_seen_and_one_that_has_ended_is_not():
    before, stop = observe(), threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    assert differences(before, observe()) == ["1 threads more than before"]
    stop.set()
    thread.join()
    assert differences(before, observe()) == []


def test_every_flag_can_be_read():
    assert set(observe().flags) == set(FLAGS) and "AttributeError" not in observe().flags.values()


@pytest.mark.parametrize("half", [False, True])
def test_a_weight_that_a_program_writes_to_is_seen(half: bool):
    model = nn.Linear(3, 2)
    shared = {name: value.detach().clone() for name, value in model.state_dict().items()}
    model = model.half() if half else model
    kept = KeptWeights(model, shared)
    assert kept.changed() == []
    with torch.no_grad():
        model.bias[1] += 1
    assert kept.changed() == ["weight bias was changed by the program"]


def test_a_function_has_no_weights_and_memory_of_its_own_may_be_written():
    assert KeptWeights(torch.relu, {}).changed() == []
    model = nn.Module()
    model.register_buffer("scratch", torch.zeros(3))
    kept = KeptWeights(model, {})
    model.scratch += 1
    assert kept.changed() == []
