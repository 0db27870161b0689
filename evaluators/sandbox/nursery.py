"""The nursery: `python -P -m evaluators.sandbox.nursery FD`, started by `starting.Nursery` with a control socket.

It imports torch, once for several zygotes, and forks a zygote for every request. It never imports triton: whether that
interprets or compiles is settled when it is imported, by the environment that a request brings. It runs no job, and
ends when its socket ends, that is with the judge; its zygotes have sockets of their own.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Mapping
from typing import NoReturn

from evaluators.late_dynamo import delay_dynamo

MAX_REQUEST_BYTES = 256 * 1024
REAP_S = 0.5


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    control = socket.socket(fileno=int(sys.argv[1]))
    _import_torch()
    control.settimeout(REAP_S)
    while True:
        _reap()
        try:
            request, fds, _, _ = socket.recv_fds(control, MAX_REQUEST_BYTES, 2)
        except TimeoutError:
            continue
        if not request:
            return
        _answer(control, _fork_zygote(control, json.loads(request), *fds))
        for fd in fds:
            os.close(fd)


def _import_torch() -> None:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    torch.set_num_threads(1)  # before any operation: a child forked after a parallel one hangs in its own first
    delay_dynamo()
    with FakeTensorMode():  # imports what every zygote would when it first makes and copies one
        torch.empty(4).copy_(torch.empty(4))
    gc.collect()
    gc.freeze()  # zygotes need not walk, and so copy, what was made here


def _fork_zygote(control: socket.socket, environment: Mapping[str, str], zygote_end: int, log: int) -> int:
    pid = os.fork()
    if pid == 0:
        control.close()
        _become_zygote(environment, zygote_end, log)
    return pid


def _become_zygote(environment: Mapping[str, str], control: int, log: int) -> NoReturn:
    """As if it had been executed with this environment and this log."""
    code = 1
    try:
        os.setsid()
        for stream in (1, 2):
            os.dup2(log, stream)
        os.close(log)
        os.environ.clear()
        os.environ.update(environment)
        from evaluators.sandbox.server import serve

        serve(socket.socket(fileno=control))
        code = 0
    except BaseException:  # the boundary of the process: the judge reads the log
        traceback.print_exc()
    finally:
        os._exit(code)


def _answer(control: socket.socket, pid: int) -> None:
    """The judge is given the process itself: it is not the judge's child, and its number may be used again."""
    handle = os.pidfd_open(pid)
    with contextlib.suppress(OSError):  # the judge may be gone
        socket.send_fds(control, [str(pid).encode()], [handle])
    os.close(handle)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    main()
