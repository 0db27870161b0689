"""The zygote: `python -P -m evaluators.sandbox.server FD`, started by `client.Zygote` with a control socket, or forked
from a nursery.

It imports torch and triton, warms up, and then forks one intermediate for every job that comes by the socket. It ends
when the socket ends, that is with the judge. It never asks to be killed with its parent (PR_SET_PDEATHSIG is bound to
the thread that started it, which may be one of a pool).
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import json
import os
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from evaluators.late_dynamo import delay_dynamo
from evaluators.sandbox import namespaces, warmup
from evaluators.sandbox.layers import Layer, layers
from evaluators.sandbox.limits import Limits, ProcessCgroup, cgroup_name, find_pids_cgroup
from evaluators.sandbox.supervisor import Isolation, Job, Supervisor

MAX_HEADER_BYTES = 64 * 1024
MAX_FDS = 250
REAP_S = 0.5


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """What the judge asked for, and what this machine can do."""

    interpret: bool
    preload: tuple[str, ...]
    limits: Limits
    run_folder: Path
    isolation: Isolation
    layers: tuple[Layer, ...]
    own_ipc: bool
    cgroup: Path | None = None
    hidden: tuple[str, ...] = ()  # device files that children with namespaces cannot open


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # both are inherited from the judge, whatever it made of them
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    serve(socket.socket(fileno=int(sys.argv[1])))


def serve(control: socket.socket) -> None:
    """Be the zygote of the judge at the other end, in the environment that this process has, until the judge goes."""
    request = json.loads(control.recv(MAX_HEADER_BYTES))
    warmup.set_single_threaded()
    delay_dynamo()
    for name in request["preload"]:
        _preload(name)
    settings = _settings(request)
    _warm_up(settings)
    warmup.check_no_cuda()
    gc.collect()
    gc.freeze()
    warmup.gather_memory()
    control.send(json.dumps(_ready(settings)).encode())
    alive_fd, alive_end = os.pipe()
    try:
        _serve(control, settings, alive_fd, alive_end)
    finally:
        os.close(alive_end)
        _reap(wait=True)
        shutil.rmtree(settings.run_folder, ignore_errors=True)


def _preload(name: str) -> None:
    """Import `package.module`; `package.module:function` is called too."""
    module_name, _, function = name.partition(":")
    module = importlib.import_module(module_name)
    if function:
        getattr(module, function)()


def _settings(request: dict[str, Any]) -> Settings:
    wanted = Isolation(request["isolation"]) if request["isolation"] else None
    own_ipc = not warmup.has_cuda()  # device memory may be shared within one IPC namespace only
    refused: dict[str, str] | None = None
    if wanted is not Isolation.SUBREAPER:
        refused = _probe_namespaces(request["run_folder"], own_ipc)
        if refused is None and wanted is Isolation.NAMESPACES:
            raise OSError("this machine refuses the namespaces that were asked for")
    cgroup = find_pids_cgroup() if os.geteuid() == 0 else None
    return Settings(
        interpret=request["interpret"],
        preload=tuple(request["preload"]),
        limits=Limits(**request["limits"]),
        run_folder=Path(request["run_folder"]),
        isolation=Isolation.SUBREAPER if refused is None else Isolation.NAMESPACES,
        layers=layers(
            has_namespaces=refused is not None,
            own_ipc=own_ipc,
            refused=refused or {},
            bounds_processes=cgroup is not None or os.geteuid() != 0,
        ),
        own_ipc=own_ipc,
        cgroup=cgroup,
        hidden=tuple(request["hidden"]),
    )


def _probe_namespaces(folder: str, own_ipc: bool) -> dict[str, str] | None:
    """What a child's namespaces lack here (as a rule nothing) and why, or None where there are none to be had."""
    answer, answer_end = os.pipe()
    if os.fork() == 0:
        with contextlib.suppress(OSError):
            namespaces.enter_process_namespaces(own_ipc=own_ipc)
            if os.fork() == 0:
                with contextlib.suppress(OSError):
                    os.write(answer_end, json.dumps(namespaces.enter_mount_namespace(folder)).encode())
                os._exit(0)
            os.wait()
        os._exit(0)
    os.close(answer_end)
    with os.fdopen(answer, "rb") as pipe:
        text = pipe.read()
    os.wait()
    return json.loads(text) if text else None


def _warm_up(settings: Settings) -> None:
    os.environ["TRITON_CACHE_DIR"] = str(settings.run_folder / "zygote")
    if settings.interpret:
        warmup.warm_up_interpreter()
        return
    warmup.warm_up_compiler()
    if warmup.has_cuda():
        os.environ["TRITON_CACHE_DIR"] = str(settings.run_folder / "libraries")
        pid = os.fork()
        if pid == 0:
            try:
                warmup.launch_once()
            except BaseException:  # the boundary of the process: children will say it again, with their candidate
                traceback.print_exc()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)


def _ready(settings: Settings) -> dict[str, Any]:
    return {
        "isolation": settings.isolation,
        "layers": [dataclasses.asdict(layer) for layer in settings.layers],
        "n_threads": len(list(Path("/proc/self/task").iterdir())),
    }


def _serve(control: socket.socket, settings: Settings, alive_fd: int, alive_end: int) -> None:
    """Fork an intermediate for each job until the judge has gone. Only the zygote keeps `alive_end` open."""
    control.settimeout(REAP_S)
    n_jobs = 0
    while True:
        _reap()
        try:
            header, fds, _, _ = socket.recv_fds(control, MAX_HEADER_BYTES, MAX_FDS)
        except TimeoutError:
            continue
        if not header:
            return
        n_jobs += 1
        if os.fork() == 0:
            control.close()
            os.close(alive_end)
            _run_intermediate(json.loads(header), fds, settings, alive_fd, n_jobs)
        for fd in fds:
            os.close(fd)


def _job(header: dict[str, Any], fds: list[int], settings: Settings, alive_fd: int, name: str) -> Job:
    control_fd, channel_fd, *others = fds
    cgroup = None
    if settings.cgroup:
        cgroup = ProcessCgroup.make(settings.cgroup, name, settings.limits.n_processes)
    return Job(
        function=header["job"],
        deadline_s=header["deadline_s"],
        workspace=header["workspace"],
        limits=settings.limits,
        control=socket.socket(fileno=control_fd),
        channel=socket.socket(fileno=channel_fd),
        fds=tuple(others),
        alive_fd=alive_fd,
        cgroup=cgroup,
    )


def _run_intermediate(
    header: dict[str, Any], fds: list[int], settings: Settings, alive_fd: int, n_jobs: int
) -> NoReturn:
    """Run a job and end. While this process lives it holds the job's control socket, and it ends last: the end of that
    socket is the proof that nothing of the job is left."""
    try:
        job = _job(header, fds, settings, alive_fd, cgroup_name(os.getppid(), n_jobs))
        if settings.isolation is Isolation.NAMESPACES:
            _run_in_namespaces(job, settings)
        else:
            namespaces.become_subreaper()
            _supervise(job, settings.isolation)
        if job.cgroup:
            job.cgroup.remove()
    except BaseException as error:  # the boundary of the process: the judge is told what this machine refused
        _send_broken(fds[0], error)
    finally:
        os._exit(0)


def _run_in_namespaces(job: Job, settings: Settings) -> None:
    namespaces.enter_process_namespaces(own_ipc=settings.own_ipc)
    pid = os.fork()
    if pid == 0:
        _run_pid_1(job, settings.hidden)
    job.channel.close()
    for fd in (job.alive_fd, *job.fds):
        os.close(fd)
    os.waitpid(pid, 0)  # returns when the kernel has emptied the namespace


def _run_pid_1(job: Job, hidden: Sequence[str]) -> NoReturn:
    try:
        namespaces.die_with_parent()
        if job.cgroup:
            job.cgroup.enter()
        namespaces.enter_mount_namespace(job.workspace)
        namespaces.hide_devices(hidden)
        _supervise(job, Isolation.NAMESPACES)
    except BaseException as error:  # the boundary of the process
        _send_broken(job.control.fileno(), error)
    finally:
        os._exit(0)


def _supervise(job: Job, isolation: Isolation) -> None:
    _send(job.control.fileno(), Supervisor(job, isolation).run())


def _send_broken(control_fd: int, error: BaseException) -> None:
    _send(control_fd, {"kind": "broken", "detail": f"{type(error).__name__}: {error}", "output": ""})


def _send(control_fd: int, report: dict[str, str]) -> None:
    with contextlib.suppress(OSError):  # the judge may be gone
        os.write(control_fd, json.dumps(report).encode())


def _reap(wait: bool = False) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, 0 if wait else os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    main()
