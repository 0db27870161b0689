"""Which device files a child of one GPU does not get to see."""

import subprocess
import sys
from pathlib import Path

import pytest

from evaluators.sandbox import gpus


def listed(driver: Path, *uuids: str) -> Path:
    for minor, uuid in enumerate(uuids):
        (driver / f"0000:{minor}").mkdir()
        text = f"Model: \t NVIDIA H200\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n"
        (driver / f"0000:{minor}" / "information").write_text(text)
    return driver


def test_the_other_gpus_are_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = listed(tmp_path, "GPU-a", "GPU-b", "GPU-c")
    monkeypatch.setattr(Path, "exists", lambda path: path.name != "nvidia2")  # a container may lack one
    assert gpus.hidden_devices("GPU-b", driver) == ["/dev/nvidia0"]


def test_nothing_is_hidden_where_the_driver_does_not_know_the_gpu(tmp_path: Path) -> None:
    assert gpus.hidden_devices("MIG-a", listed(tmp_path, "GPU-a")) == []
    assert gpus.hidden_devices("GPU-a", tmp_path / "none") == []


HIDE = """
import os, sys
from evaluators.sandbox import namespaces
try:
    namespaces.enter_process_namespaces(own_ipc=True)
    if os.fork() == 0:
        namespaces.enter_mount_namespace(sys.argv[1])
        namespaces.hide_devices(["/dev/zero"])
        with open("/dev/zero", "rb") as device:
            print("read", len(device.read(8)), flush=True)
        os._exit(0)
    os.wait()
except OSError:
    print("refused")
"""


def test_a_hidden_device_is_empty(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HIDE, str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
    if said == "refused\n":
        pytest.skip("no namespaces here")
    assert said == "read 0\n"
