"""From the last fork to the job: what a process loses and is given before candidate code runs in it."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from evaluators.sandbox import namespaces
from evaluators.sandbox.channel import Channel
from evaluators.sandbox.limits import Limits

MAX_DETAIL = 2000
_MAX_FRAMES = 4
_FOLDERS = {
    "HOME": "home",
    "TMPDIR": "tmp",
    "XDG_CACHE_HOME": "cache",
    "CUDA_CACHE_PATH": "cache/cuda",
    "TRITON_HOME": "home",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
}


def run_job(
    function: str,
    workspace: str,
    limits: Limits,
    channel: socket.socket,
    fds: Sequence[int],
    output_fd: int,
    report_fd: int,
    confine: Callable[[str], None],
) -> NoReturn:
    """Run `package.module:function` on the channel and end the process. The report says how it ended: `ok`, `error`
    (an exception) or `exit` (SystemExit). A process that ends otherwise writes none. `confine` is called with the
    workspace, last of all."""
    code = 1
    pid = os.getpid()
    try:
        _settle(workspace, limits, output_fd, (channel.fileno(), *fds, report_fd))
        confine(workspace)
        report = _call(function, Channel(channel, fds))
        if os.getpid() == pid:  # what the job has forked may come back here too
            _flush()
            os.write(report_fd, json.dumps(report).encode())
            code = 0
    finally:
        os._exit(code)


def _call(function: str, channel: Channel) -> dict[str, str]:
    try:
        payload = channel.receive()
        module_name, _, name = function.partition(":")
        getattr(importlib.import_module(module_name), name)(channel, payload)
    except SystemExit as error:
        return {"kind": "exit", "detail": f"SystemExit({error.code!r}) before the job returned"[:MAX_DETAIL]}
    except BaseException as error:  # the boundary of the process: whatever a candidate raises becomes a report
        return {"kind": "error", "detail": describe(error)}
    return {"kind": "ok", "detail": ""}


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def _settle(workspace: str, limits: Limits, output_fd: int, kept_fds: Sequence[int]) -> None:
    """Own session, own streams, own folders, no other descriptors, limits, no privileges."""
    os.setsid()
    stdin = os.open("/dev/null", os.O_RDONLY)
    for source, target in ((stdin, 0), (output_fd, 1), (output_fd, 2)):
        os.dup2(source, target)
    _close_others(kept_fds)
    for variable, folder in _FOLDERS.items():
        path = Path(workspace, folder)
        path.mkdir(parents=True, exist_ok=True)
        os.environ[variable] = str(path)
    os.chdir(workspace)
    sys.dont_write_bytecode = True
    tempfile.tempdir = None
    random.seed()
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # when memory is short, this and not the judge
    limits.apply()
    namespaces.drop_privileges()


def _close_others(kept: Sequence[int]) -> None:
    for entry in list(Path("/proc/self/fd").iterdir()):
        fd = int(entry.name)
        if fd > 2 and fd not in kept:
            with contextlib.suppress(OSError):
                os.close(fd)


def describe(error: BaseException) -> str:
    """The exception, what caused it, and the last frames in the candidate's own files: those in the working folder."""
    lines = [_one_line(link) for link in _chain(error)]
    workspace = str(Path.cwd()) + os.sep
    for link in _chain(error):
        frames = [f for f in traceback.extract_tb(link.__traceback__) if f.filename.startswith(workspace)]
        lines += [f"  at {Path(f.filename).name}:{f.lineno} in {f.name}: {f.line}" for f in frames[-_MAX_FRAMES:]]
    return "\n".join(dict.fromkeys(lines))[:MAX_DETAIL]


def _chain(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return chain


def _one_line(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()[: MAX_DETAIL // 2]
