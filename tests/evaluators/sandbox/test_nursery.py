"""Zygotes that share one import of torch: each is what it would be by itself, and none needs the others."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from evaluators.sandbox import Nursery, SandboxError, Zygote
from evaluators.sandbox.client import zygote_environment
from tests.evaluators.sandbox.aftermath import JOBS

KERNEL = "import triton\nimport triton.language as tl\n@triton.jit\ndef kernel(x):\n    tl.store(x, 1.0)\n"


def environment_in(zygote: Zygote) -> dict[str, str]:
    with zygote.spawn(JOBS + "describe_surroundings", {}, deadline_s=20) as child:
        found: dict[str, str] = child.receive(20)["environment"]
    return found


def test_one_zygote_compiles_and_the_other_interprets(nursery: Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_HOME", "set later")
    with (
        Zygote(interpret=False, start=nursery.fork) as compiler,
        Zygote(interpret=True, start=nursery.fork) as interpreter,
    ):
        with compiler.spawn(JOBS + "compile_kernel", {"source": KERNEL}, deadline_s=60) as child:
            assert "cubin" in child.receive(60)["kinds"]
        assert environment_in(compiler)["TRITON_INTERPRET"] == "0"
        assert environment_in(interpreter)["TRITON_INTERPRET"] == "1"
        assert environment_in(interpreter)["CUDA_HOME"] == "set later"
        assert compiler.n_threads == interpreter.n_threads == 1


def test_a_zygote_outlives_its_nursery_and_gets_another(nursery: Nursery) -> None:
    with Zygote(interpret=True, renews=True, start=nursery.fork) as zygote:
        first = zygote.pid
        os.kill(nursery.pid, signal.SIGKILL)
        assert environment_in(zygote) and zygote.pid == first
        os.kill(first, signal.SIGKILL)
        while zygote.is_alive:
            time.sleep(0.01)
        assert environment_in(zygote) and zygote.pid != first
    assert not zygote.is_alive


def test_a_forked_zygote_that_cannot_start_says_why(nursery: Nursery) -> None:
    with pytest.raises(SandboxError, match="No module named 'no_such_module'"):
        Zygote(interpret=True, preload=["no_such_module"], start=nursery.fork)


def test_a_nursery_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('this torch is broken')")
    environment = zygote_environment(interpret=False)
    broken = {**environment, "PYTHONPATH": f"{tmp_path}{os.pathsep}{environment['PYTHONPATH']}"}
    with Nursery(broken) as nursery, pytest.raises(SandboxError, match="this torch is broken"):
        Zygote(interpret=True, start=nursery.fork)
    ours, _ = socket.socketpair()
    with pytest.raises(SandboxError, match="was closed"), ours, (tmp_path / "log").open("wb") as log:
        nursery.fork(ours, log, environment)
