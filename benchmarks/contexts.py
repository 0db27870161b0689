"""How many CUDA contexts a second the driver of a host makes and ends: what a process for every candidate costs.

    python -m benchmarks.contexts

Children that do nothing else (cuInit, primary context, 2 MB, end), several at once, on one GPU and on two: as CUDA does
it by default, with one queue of work, and with the device files of the other GPUs hidden (as root, Linux).
"""

from __future__ import annotations

import ctypes
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

N_ROUNDS = 3
N_AT_ONCE = 8  # children of one GPU
CHILD = "--child"


def main() -> None:
    from evaluators.sandbox.client import LEAN_CONTEXT  # not for the children, which know nothing of the project

    n_gpus = len(list(Path("/dev").glob("nvidia[0-9]*")))
    one_child([], {"CUDA_VISIBLE_DEVICES": "0"})  # the driver wakes up
    for gpus in (range(1), range(n_gpus))[: 2 if n_gpus > 1 else 1]:
        for n_at_once in (1, N_AT_ONCE):
            for what, environment, is_hidden in (("default", {}, False), ("lean", LEAN_CONTEXT, False)):
                print(measured(what, gpus, n_at_once, environment, is_hidden=is_hidden), flush=True)
            if n_gpus > 1:
                print(measured("lean, others hidden", gpus, n_at_once, LEAN_CONTEXT, is_hidden=True), flush=True)


def measured(what: str, gpus: Sequence[int], n_at_once: int, environment: dict[str, str], *, is_hidden: bool) -> str:
    """One line: contexts a second over all GPUs, and the median milliseconds of each step."""
    began = time.monotonic()
    with ThreadPoolExecutor(n_at_once * len(gpus)) as threads:
        jobs = [threads.submit(several, gpu, environment, is_hidden) for gpu in gpus for _ in range(n_at_once)]
        steps = [one for job in jobs for one in job.result()]
    rate = len(steps) / (time.monotonic() - began)
    names = ("cuInit", "context", "allocate", "end")
    medians = ", ".join(f"{name} {1e3 * statistics.median(s[k] for s in steps):.0f}" for k, name in enumerate(names))
    return f"{len(gpus)} GPUs, {n_at_once} at once on each, {what}: {rate:.1f} a second; median ms: {medians}"


def several(gpu: int, environment: dict[str, str], is_hidden: bool) -> list[list[float]]:
    """Children of one GPU, one after the other."""
    others = [path for path in Path("/dev").glob("nvidia[0-9]*") if path.name != f"nvidia{gpu}"] if is_hidden else []
    hide = " && ".join(f"mount --bind /dev/null {path}" for path in others)
    before = ["unshare", "-m", "sh", "-c", f'{hide} && exec "$@"', "sh"] if others else []
    visible = {"CUDA_VISIBLE_DEVICES": "0" if others else str(gpu)}
    return [one_child(before, {**environment, **visible}) for _ in range(N_ROUNDS)]


def one_child(before: Sequence[str], environment: dict[str, str]) -> list[float]:
    """Seconds of each step of one child, and of its end."""
    command = [*before, sys.executable, "-I", str(Path(__file__).resolve()), CHILD]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **environment})
    assert process.stdout is not None
    steps = [float(text) for text in process.stdout.readline().split()]
    began = time.monotonic()
    process.communicate()
    return [*steps, time.monotonic() - began]


def child() -> None:
    """Makes a context, says how long that took, and is killed, as candidates are."""
    driver = ctypes.CDLL("libcuda.so.1")
    context, device, address = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_uint64()
    times = [time.monotonic()]
    for call in (
        lambda: driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0),
        lambda: driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) or driver.cuCtxSetCurrent(context),
        lambda: driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(2 << 20)),
    ):
        if code := call():
            sys.exit(f"the driver answered {code}")
        times.append(time.monotonic())
    print(*(later - earlier for earlier, later in pairwise(times)), flush=True)
    os.kill(os.getpid(), 9)


if __name__ == "__main__":
    child() if sys.argv[1:] == [CHILD] else main()
