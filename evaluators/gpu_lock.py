"""One timing at a time on a GPU, whoever runs it: two runs that share a GPU must not measure each other."""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
from pathlib import Path
from types import TracebackType


class GpuLock:
    """A lock over the threads of this process and over all processes of this machine that name the same GPU.

    The kernel releases the file's lock with the process, so a killed run blocks nobody.
    """

    def __init__(self, gpu: str) -> None:
        """`gpu` names the device for every process alike: its UUID."""
        self.name = gpu
        name = "".join(c if c.isalnum() else "-" for c in gpu)
        path = Path(tempfile.gettempdir()) / f"triton-evolve-{os.getuid()}-{name}.lock"
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._threads = threading.RLock()
        self._depth = 0

    def acquire(self) -> None:
        """Wait for the GPU. The thread that has it may take it again."""
        self._threads.acquire()
        if self._depth == 0:
            fcntl.flock(self._file, fcntl.LOCK_EX)
        self._depth += 1

    def release(self) -> None:
        """Give it back, as often as it was taken, from the thread that took it."""
        self._depth -= 1
        if self._depth == 0:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self._threads.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()
