"""What a child may use, and the three ways of holding it to that: rlimits, a cgroup, and the supervisor's count."""

from __future__ import annotations

import contextlib
import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Self

GIB = 1024**3
PATIENCE_S = 3.0  # an honest candidate of ordinary size is compiled or interpreted in less


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one child, everything that it starts included.

    `address_space_bytes` (per process) makes an allocation fail inside the child; leave it None where CUDA is used,
    which reserves far more addresses than memory. `resident_bytes` is what all its processes hold beyond what they
    were forked with, `disk_bytes` and `n_files` what lies in its workspace, the only place that it can write to; the
    supervisor samples them and kills above them. `n_processes` counts threads too where an rlimit or a cgroup holds it.
    After `patience_s` a child gives way to others (nice 19); None for one whose host code is timed.
    """

    address_space_bytes: int | None = None
    resident_bytes: int = 8 * GIB
    file_bytes: int = 2 * GIB
    disk_bytes: int = 4 * GIB
    n_files: int = 100_000
    n_processes: int = 256
    output_bytes: int = 16 * 1024 * 1024
    patience_s: float | None = None

    def apply(self) -> None:
        """Set the rlimits of this process. Root is not bound by the number of processes: see `ProcessCgroup`."""
        _lower(resource.RLIMIT_CORE, 0)
        _lower(resource.RLIMIT_FSIZE, self.file_bytes)
        if self.address_space_bytes is not None:
            _lower(resource.RLIMIT_AS, self.address_space_bytes)
        if os.geteuid() != 0:
            _lower(resource.RLIMIT_NPROC, self.n_processes + n_tasks_of_user(os.geteuid()))


def _lower(kind: int, value: int) -> None:
    """Set soft and hard limit to a value, or leave them where they are lower."""
    hard = resource.getrlimit(kind)[1]
    if hard == resource.RLIM_INFINITY or value < hard:
        resource.setrlimit(kind, (value, value))


def n_tasks_of_user(uid: int) -> int:
    """Processes and threads of a user that this /proc shows: outside a user namespace the rlimit counts them all."""
    n_tasks = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.stat().st_uid == uid:
                n_tasks += len(list((process / "task").iterdir()))
    return n_tasks


def resident_bytes(pid: int) -> int:
    """Memory that a process holds: its own and shared memory, without files that it maps (the libraries of CUDA alone
    are gigabytes). 0 when it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    lines = [line.split() for line in status.splitlines()]
    return sum(1024 * int(line[1]) for line in lines if line and line[0] in ("RssAnon:", "RssShmem:"))


def disk_use(folder: Path, most_files: int) -> tuple[int, int]:
    """Bytes on disk and number of files below a folder, links not followed; stops to count above `most_files`."""
    n_bytes, n_files, waiting = 0, 0, [folder]
    while waiting and n_files <= most_files:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                n_files += 1
                if n_files > most_files:
                    break
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                else:
                    n_bytes += 512 * entry.stat(follow_symlinks=False).st_blocks
    return n_bytes, n_files


@dataclass(frozen=True, slots=True)
class ProcessCgroup:
    """A cgroup (v1 or v2) whose `pids.max` bounds the processes of one child, root's too."""

    path: Path

    @classmethod
    def make(cls, parent: Path, name: str, n_processes: int) -> Self:
        """Make a cgroup below `parent`.

        Raises:
            OSError: the cgroup file system is read-only, or the controller is not to be had there.
        """
        path = parent / name
        path.mkdir()
        try:
            (path / "pids.max").write_text(str(n_processes))
        except OSError:
            path.rmdir()
            raise
        return cls(path)

    def enter(self) -> None:
        """Move this process in; what it forks from now on is born there."""
        (self.path / "cgroup.procs").write_text("0")

    def kill(self) -> None:
        """Kill all that is in it at once, where the kernel can (v2)."""
        with contextlib.suppress(OSError), open(self.path / "cgroup.kill", "r+") as file:
            file.write("1")

    def remove(self) -> None:
        """Remove the cgroup; one that is not yet empty is left."""
        with contextlib.suppress(OSError):
            self.path.rmdir()


def cgroup_name(zygote_pid: int, n_jobs: int) -> str:
    return f"evolve-{zygote_pid}-{n_jobs}"


def find_pids_cgroup() -> Path | None:
    """The folder in which this process may make cgroups with a `pids.max`, or None. Empty cgroups that a killed zygote
    left there are removed."""
    for parent in _pids_hierarchies():
        with contextlib.suppress(OSError):
            ProcessCgroup.make(parent, cgroup_name(os.getpid(), 0), 64).remove()
            _sweep(parent)
            return parent
    return None


def _sweep(parent: Path) -> None:
    for path in parent.glob(cgroup_name(0, 0).replace("0", "*")):
        if not Path("/proc", path.name.split("-")[1]).exists():
            ProcessCgroup(path).remove()


def _pids_hierarchies() -> list[Path]:
    """Where this process is in the v1 hierarchy `pids` and in the v2 hierarchy, as far as they are mounted."""
    own = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own[controllers] = path.lstrip("/")
    found = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, folder, kind, options = line.split()[:4]
        if kind == "cgroup" and "pids" in options.split(",") and "pids" in own:
            found.append(Path(folder) / own["pids"])
        elif kind == "cgroup2" and "" in own:
            found.append(Path(folder) / own[""])
    return found
