"""How a zygote's process comes to be: executed by itself, or forked from a process that has torch already."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import IO, Protocol, Self

from db.errors import EvolveError

NURSERY_ENDS_S = 5.0
FORK_DEADLINE_S = 180.0  # importing torch included


class SandboxError(EvolveError, RuntimeError):
    """The sandbox itself failed: a zygote that does not start or has ended. Never a candidate's doing alone."""


class Process(Protocol):
    """What a judge has to know of a zygote's process, whoever its parent is."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Raises `subprocess.TimeoutExpired`."""

    def kill(self) -> None: ...


class Start(Protocol):
    """Starts a zygote that serves `control` in an environment. What it prints goes to the log."""

    def __call__(self, control: socket.socket, log: IO[bytes], environment: Mapping[str, str]) -> Process: ...


def execute(control: socket.socket, log: IO[bytes], environment: Mapping[str, str]) -> Process:
    """A process of its own, which imports torch: a second of a core."""
    return _execute("server", control, log, environment)


def _execute(
    module: str, control: socket.socket, log: IO[bytes], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", f"evaluators.sandbox.{module}", str(control.fileno())],
        pass_fds=[control.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=dict(environment),
        start_new_session=True,
    )


class ForkedZygote:
    """A zygote that is a child of a nursery."""

    def __init__(self, pid: int, handle: int) -> None:
        self.pid = pid
        self._handle = handle
        self._poll = select.poll()
        self._poll.register(handle, select.POLLIN)
        weakref.finalize(self, os.close, handle)

    def poll(self) -> int | None:
        """0 when it has ended: how, only its parent could say."""
        return 0 if self._poll.poll(0) else None

    def wait(self, timeout: float | None = None) -> int:
        if not self._poll.poll(None if timeout is None else timeout * 1000):
            raise subprocess.TimeoutExpired("a zygote", timeout or 0.0)
        return 0

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)


class Nursery:
    """A process that imports torch at once, for all zygotes that are forked from it. One that was killed is replaced.

    Any thread may ask for a zygote. Its zygotes do not end with it.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment`: what matters when torch is imported; that of a zygote takes its place."""
        self._environment = environment
        self._asking = threading.Lock()
        self._is_closed = False
        self._start()

    def _start(self) -> None:
        self._control, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(FORK_DEADLINE_S)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the process
        with server_end:
            self._process = _execute("nursery", server_end, self._log, self._environment)

    @property
    def pid(self) -> int:
        return self._process.pid

    def fork(self, control: socket.socket, log: IO[bytes], environment: Mapping[str, str]) -> ForkedZygote:
        """A `Start`. Waits until torch is imported.

        Raises:
            SandboxError: the nursery does not start.
        """
        with self._asking:
            for is_last in (False, True):
                with suppress(OSError):
                    return self._asked(control, log, environment)
                if self._is_closed:
                    raise SandboxError("the process that zygotes are forked from was closed")
                if not is_last:
                    self._end()
                    self._start()
        raise SandboxError(f"the process that zygotes are forked from does not start: {self._last_words()}")

    def _asked(self, control: socket.socket, log: IO[bytes], environment: Mapping[str, str]) -> ForkedZygote:
        request = json.dumps(dict(environment)).encode()
        socket.send_fds(self._control, [request], [control.fileno(), log.fileno()])
        answer, handles, _, _ = socket.recv_fds(self._control, 64, 1)
        if not answer:
            raise BrokenPipeError("the nursery has ended")
        return ForkedZygote(int(answer), handles[0])

    def _last_words(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-1500:].strip()

    def _end(self) -> None:
        self._control.close()
        try:
            self._process.wait(NURSERY_ENDS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def close(self) -> None:
        """End the process; zygotes go on. May be called again."""
        with self._asking:
            self._is_closed = True
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
