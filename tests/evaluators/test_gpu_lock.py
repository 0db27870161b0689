import os
import subprocess
import sys
import threading
import time

from evaluators.gpu_lock import GpuLock

HOLD = """
import sys, time
from evaluators.gpu_lock import GpuLock
with GpuLock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def gpu(number: int) -> str:
    """A device that no other test session knows."""
    return f"GPU-test-{os.getpid()}-{number}"


def holder(name: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, name], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def takes(lock: GpuLock, within_s: float) -> bool:
    taken = threading.Event()

    def take() -> None:
        with lock:
            taken.set()

    threading.Thread(target=take, daemon=True).start()
    return taken.wait(within_s)


def test_another_process_waits_until_the_holder_is_killed() -> None:
    process = holder(gpu(1))
    try:
        lock = GpuLock(gpu(1))
        assert not takes(lock, 0.3)
        process.kill()
        process.wait()
        time.sleep(0.2)
        assert takes(lock, 5.0)
    finally:
        process.kill()


def test_another_gpu_is_free() -> None:
    process = holder(gpu(2))
    try:
        assert takes(GpuLock(gpu(3)), 5.0)
    finally:
        process.kill()


def test_threads_of_one_process_wait_for_each_other() -> None:
    lock = GpuLock(gpu(4))
    with lock:
        assert not takes(lock, 0.3)
    assert takes(lock, 5.0)


def test_who_has_it_may_take_it_again() -> None:
    lock = GpuLock(gpu(5))
    with lock:
        with lock:
            pass
        assert not takes(lock, 0.3)
    assert takes(lock, 5.0)
