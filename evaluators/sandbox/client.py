"""The judge's side of the sandbox. Imports neither torch nor triton."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import socket
import subprocess
import sysconfig
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, cast, get_args

from evaluators.sandbox.channel import ZYGOTE_ENDED, Channel, ChannelError
from evaluators.sandbox.gpus import hidden_devices
from evaluators.sandbox.layers import Layer
from evaluators.sandbox.limits import Limits
from evaluators.sandbox.starting import Process, SandboxError, Start, execute
from evaluators.sandbox.workspace import RunFolder, fill_cache, remove_folder

START_DEADLINE_S = 180.0
END_SHOWS_S = 0.2
GRACE_S = 30.0  # for killing what a candidate left, beyond the job's own deadline
MAX_REPORT_BYTES = 1 << 20
MAX_RENEWALS = 64  # of one zygote: something kills them
DEFAULT_LIMITS = Limits()

# A child sees these variables of the judge and no others: keys and tokens have other names.
PASSED_VARIABLES = (
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "CC", "CXX", "VIRTUAL_ENV"),
    *("CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"),
    *("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "TRITON_PTXAS_PATH", "TRITON_LIBCUDA_PATH"),
)
LEAN_CONTEXT = {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "CUDA_DEVICE_MAX_COPY_CONNECTIONS": "1"}
"""One queue of work instead of eight. The driver makes and ends contexts one at a time for all GPUs of a host, and with
these it needs half as long (benchmarks/RESULTS.md, "Two GPUs"). Streams of one process no longer overlap; whatever is
compared runs so, baselines as well."""

SET_VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # asking for a GPU must not initialise CUDA before the fork
    **LEAN_CONTEXT,
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
}

ExitKind = Literal["ok", "error", "exit", "signal", "timeout", "killed"]


class ZygoteEndedError(SandboxError):
    """A zygote has ended, and with it all its children: of the candidates in them nothing is known."""


class Exit(NamedTuple):
    """How a child ended. No verdict may rest on it: a candidate can end its process as it likes.

    `kind`: `ok` (the job returned), `error` (an exception; `detail` has its text and the candidate's frames), `exit`
    (the process ended itself before the job returned), `signal` (`detail` names it), `timeout`, `killed` (by the judge
    or for exceeding a limit). `output` is the last 4 KiB of what it printed.
    """

    kind: ExitKind
    detail: str
    output: str


class ChildEnded(Exception):  # noqa: N818  an end is no error of the judge
    """Raised where a message was awaited and the child has ended. `exit` says how."""

    def __init__(self, exit: Exit) -> None:
        super().__init__(f"the child has ended: {exit.kind}: {exit.detail}")
        self.exit = exit


class Child:
    """One running job. Use as a context manager, or call `wait`: it kills what is left and removes the workspace."""

    def __init__(
        self,
        control: socket.socket,
        channel: Channel,
        workspace: Path,
        zygote: Process,
        *,
        keep_workspace: bool,
        deadline_s: float,
    ) -> None:
        self.workspace = workspace
        self._zygote = zygote
        self._control = control
        self._channel = channel
        self._keep_workspace = keep_workspace
        self._give_up = time.monotonic() + deadline_s + GRACE_S
        self._report = bytearray()
        self._exit: Exit | None = None
        self._waiting = threading.Lock()

    @property
    def cache_dir(self) -> Path:
        """The child's Triton cache; outlives the child only if its payload had `keep_workspace`."""
        return self.workspace / "triton"

    def send(self, message: dict[str, Any]) -> None:
        """Send a message to the job.

        Raises:
            ChildEnded: the child is gone.
            ZygoteEndedError: its zygote is, and took it along.
        """
        try:
            self._channel.send(message)
        except (BrokenPipeError, ConnectionResetError):
            raise self._ended() from None

    def receive(self, timeout_s: float | None = None) -> dict[str, Any]:
        """The next message of the job. What it says is the candidate's word.

        Raises:
            ChildEnded: the child has ended, or sent what is no message and was stopped.
            ZygoteEndedError: its zygote has ended, and took it along.
            TimeoutError: no message within `timeout_s`; the child goes on.
        """
        try:
            return self._channel.receive(timeout_s)
        except EOFError:
            raise self._ended() from None
        except ChannelError as error:
            self.kill()
            self._exit = Exit("error", f"sent a malformed message: {error}", self.wait().output)
            raise ChildEnded(self._exit) from None

    def _ended(self) -> ChildEnded | ZygoteEndedError:
        exit = self.wait()
        if self._report and exit.detail != ZYGOTE_ENDED:
            return ChildEnded(exit)
        with contextlib.suppress(subprocess.TimeoutExpired):  # its end closes its files before it shows
            self._zygote.wait(END_SHOWS_S)
            return ZygoteEndedError(f"{ZYGOTE_ENDED} while a candidate was in its child")
        return ChildEnded(exit)

    @property
    def is_orphaned(self) -> bool:
        """Whether its zygote has ended, which takes it along."""
        return self._zygote.poll() is not None

    def wait(self, timeout_s: float | None = None) -> Exit:
        """Wait until every process of the job has ended.

        Raises:
            TimeoutError: not within `timeout_s`; the child goes on.
            SandboxError: the child outlived its deadline by far, or its machine refused to isolate it.
        """
        with self._waiting:
            if self._exit is None:
                self._read_report(self._give_up if timeout_s is None else time.monotonic() + timeout_s)
                self._exit = _exit_of(bytes(self._report))
                self._clean_up()
            return self._exit

    def kill(self) -> None:
        """Order the supervisor to kill every process of the job. Returns at once; `wait` says when it is done."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)

    def _read_report(self, end: float) -> None:
        """Read the control socket to its end, which comes when the last process that holds it is gone."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        while True:
            if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
                if time.monotonic() < self._give_up:
                    raise TimeoutError("the child is still running")
                raise SandboxError("a child outlived its deadline", "close the zygote and start a new one")
            piece = self._control.recv(1 << 16)
            if not piece:
                return
            if len(self._report) < MAX_REPORT_BYTES:
                self._report += piece

    def _clean_up(self) -> None:
        self._control.close()
        self._channel.close()
        if not self._keep_workspace:
            remove_folder(self.workspace)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.kill()
        self.wait()


def _exit_of(report: bytes) -> Exit:
    if not report:
        return Exit("killed", "the supervisor was killed from outside, as the kernel does when memory is short", "")
    fields = json.loads(report)
    if fields["kind"] not in get_args(ExitKind):
        raise SandboxError(
            f"no child could be isolated: {fields['detail']}", "evolve doctor shows what this machine allows"
        )
    return Exit(cast(ExitKind, fields["kind"]), str(fields["detail"]), str(fields["output"]))


class Zygote:
    """A preloaded process that forks one isolated child per job. Any thread may spawn; children run side by side.

    `interpret` decides whether its children run kernels under Triton's interpreter or compile them: one process cannot
    do both. `preload` names modules that it imports before the first fork; `package.module:function` is called too.
    One that `renews` starts another process in the place of one that was killed, when the next job comes.

    Raises:
        SandboxError: it did not start.
    """

    def __init__(
        self,
        *,
        interpret: bool,
        preload: Sequence[str] = (),
        limits: Limits = DEFAULT_LIMITS,
        isolation: Literal["namespaces", "subreaper"] | None = None,
        gpu: str = "",
        renews: bool = False,
        start: Start = execute,
    ) -> None:
        """`gpu` is the UUID of the only GPU that children see, where they have namespaces; empty: any that this
        process sees. `start`: `Nursery.fork`, where several zygotes share one import of torch."""
        self._execute_or_fork = start
        self._request = {
            "interpret": interpret,
            "preload": list(preload),
            "limits": dataclasses.asdict(limits),
            "isolation": isolation,
            "hidden": hidden_devices(gpu) if gpu else [],
        }
        self._environment = zygote_environment(interpret=interpret, gpu=gpu)
        self._renewals_left = MAX_RENEWALS if renews else 0
        self._spawning = threading.Lock()
        self._start()

    def _start(self) -> None:
        self._folder = RunFolder()
        self._control, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with server_end, open(self._folder.path / "zygote.log", "wb") as log:
            self._process = self._execute_or_fork(server_end, log, self._environment)
        ready = self._greet({**self._request, "run_folder": str(self._folder.path)})
        self.isolation: str = ready["isolation"]
        self.layers = tuple(Layer(**fields) for fields in ready["layers"])
        self.n_threads: int = ready["n_threads"]
        self._libraries = self._folder.read_libraries()

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the layers that this machine refuses."""
        return tuple(layer.name for layer in self.layers if not layer.is_active)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def folder(self) -> Path:
        """Where its children have their workspaces; removed with it."""
        return self._folder.path

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def spawn(self, job: str, payload: Mapping[str, Any], *, deadline_s: float, fds: Sequence[int] = ()) -> Child:
        """Run `package.module:function` as `function(channel, payload)` in a new child.

        Two keys of the payload are for the sandbox: `keep_workspace` (its folder outlives it) and `cache_from` (a
        folder that an earlier child of the same candidate used as its Triton cache, copied in). `fds` arrive as
        `channel.fds`, in this order; the caller keeps and closes its own.

        Raises:
            ZygoteEndedError: the zygote has ended, and does not renew itself, or did so too often.
        """
        control, control_end = socket.socketpair()
        channel, channel_end = socket.socketpair()
        header = {"job": job, "deadline_s": deadline_s}
        fds = [control_end.fileno(), channel_end.fileno(), *fds]
        with control_end, channel_end:
            workspace, zygote = self._hand_over(header, fds, payload.get("cache_from"))
        keep = bool(payload.get("keep_workspace"))
        child = Child(control, Channel(channel), workspace, zygote, keep_workspace=keep, deadline_s=deadline_s)
        with contextlib.suppress(ChildEnded, ZygoteEndedError):  # the caller learns of it from the child
            child.send(dict(payload))
        return child

    def _hand_over(self, header: dict[str, Any], fds: Sequence[int], cache_from: str | None) -> tuple[Path, Process]:
        """The workspace of a job, and the process that has heard of it."""
        while True:
            process = self._process
            try:
                workspace = self._make_workspace(cache_from)
                self._send(process, {**header, "workspace": str(workspace)}, fds)
            except ZygoteEndedError as error:
                self._renew(process, error)
            else:
                return workspace, process

    def _renew(self, dead: Process, error: ZygoteEndedError) -> None:
        """Another process in the place of one that was killed, unless somebody was faster."""
        with self._spawning:
            if self._process is not dead:
                return
            if not self._renewals_left:
                raise error
            self._renewals_left -= 1
            self._end()
            self._start()

    def close(self) -> None:
        """End the zygote and with it every child that still runs. May be called again."""
        self._renewals_left = 0
        self._end()

    def _end(self) -> None:
        self._control.close()
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.remove()

    def _make_workspace(self, cache_from: str | None) -> Path:
        try:
            with self._spawning:
                workspace = self._folder.make_workspace()
            fill_cache(workspace / "triton", self._libraries, Path(cache_from) if cache_from else None)
        except FileNotFoundError as error:
            raise self._ended(error) from error
        return workspace

    def _ended(self, error: OSError) -> ZygoteEndedError:
        status = _status(self._process)
        return ZygoteEndedError(f"the zygote has ended ({status}): {error}", "close it and start a new one")

    def _send(self, process: Process, header: dict[str, Any], fds: Sequence[int]) -> None:
        """To this process alone: another one has taken the folder of its jobs along."""
        try:
            with self._spawning:
                if self._process is not process:
                    raise BrokenPipeError("another has taken its place")
                socket.send_fds(self._control, [json.dumps(header).encode()], fds)
        except OSError as error:
            raise self._ended(error) from error

    def _greet(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send the settings and wait for the answer that it is ready."""
        self._control.settimeout(START_DEADLINE_S)
        try:
            self._control.send(json.dumps(request).encode())
            answer = self._control.recv(1 << 16)
        except OSError:
            answer = b""
        if not answer:
            self._process.kill()
            self._process.wait()
            log = (self._folder.path / "zygote.log").read_text(errors="replace")
            self._folder.remove()
            raise SandboxError(f"the zygote did not start ({_status(self._process)}): {log[-1500:].strip()}")
        self._control.settimeout(None)
        return cast(dict[str, Any], json.loads(answer))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _status(process: Process) -> str:
    code = process.poll()
    if code is None:
        return "still running"
    return f"exit status {code}" if isinstance(process, subprocess.Popen) else "nobody saw how"


def zygote_environment(*, interpret: bool, gpu: str = "") -> dict[str, str]:
    """The environment of a zygote, or of a nursery: an allow-list, and where this package is to be found."""
    passed = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
    if gpu:  # a number would mean another one where some are hidden
        passed["CUDA_VISIBLE_DEVICES"] = gpu
    return {**passed, **SET_VARIABLES, "TRITON_INTERPRET": "1" if interpret else "0", "PYTHONPATH": _import_path()}


def _import_path() -> str:
    """The judge's PYTHONPATH, made absolute, and the folder of this package unless it is installed."""
    entries = [str(Path(entry).absolute()) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    root = str(Path(__file__).resolve().parents[2])
    if root not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        entries.append(root)
    return os.pathsep.join(entries)
