"""Folders of the sandbox: one per zygote, in it one per child, and the Triton caches that are carried between them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "triton-evolve-zygote-"
MAX_CACHE_BYTES = 256 * 1024 * 1024
_LOCK = "lock"


class RunFolder:
    """The folder of a zygote. Locked while its judge lives; folders that nobody locks are swept by the next."""

    def __init__(self) -> None:
        _sweep(Path(tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        # it gets its name when it is locked: a sweep that comes in between would take the folder for a left one
        unnamed = self.path / f"{_LOCK}.new"
        self._lock = os.open(unnamed, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        unnamed.rename(self.path / _LOCK)
        self._n_made = 0

    def make_workspace(self) -> Path:
        """A new empty folder. The caller has one thread at a time in here."""
        self._n_made += 1
        path = self.path / f"child-{self._n_made}"
        path.mkdir(mode=0o700)
        return path

    def read_libraries(self) -> dict[str, bytes]:
        """The host libraries (`*.so`) that the warm-up built, by relative path. They are kept in the judge's memory:
        there no candidate can plant code for the next."""
        return {path: data for path, data in _read_files(self.path / "libraries") if path.endswith(".so")}

    def remove(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        remove_folder(self.path)


def _sweep(parent: Path) -> None:
    """Remove the folders of judges and zygotes that were killed."""
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError), open(folder / _LOCK) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_folder(folder)


def remove_folder(path: Path) -> None:
    """Remove a folder that a candidate filled, whatever its permissions, and without following links."""
    for parent, folders, _ in os.walk(path):
        for folder in (Path(parent, name) for name in folders):
            with contextlib.suppress(OSError):
                if not folder.is_symlink():
                    folder.chmod(stat.S_IRWXU)
    shutil.rmtree(path, ignore_errors=True)


def fill_cache(target: Path, libraries: dict[str, bytes], source: Path | None) -> None:
    """Fill a Triton cache with host libraries and with what an earlier child of the same candidate left in `source`.

    Groups in a Triton cache name their files by absolute path, so they are pointed at the copies.
    """
    files = dict(libraries)
    if source is not None:
        files.update(_read_files(source))
    for name, data in files.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, _point_at(path.parent, data) if path.name.startswith("__grp__") else data)


def _write(path: Path, data: bytes) -> None:
    """Write a file that nobody has prepared: what a link there points at stays as it is."""
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(fd, "wb") as file:
        file.write(data)


def _point_at(folder: Path, group: bytes) -> bytes:
    try:
        names = json.loads(group)["child_paths"]
        return json.dumps({"child_paths": {str(name): str(folder / Path(name).name) for name in names}}).encode()
    except (ValueError, KeyError, TypeError):
        return b"{}"


def _read_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Regular files below a folder with their relative paths, up to `MAX_CACHE_BYTES`: no links, no pipes."""
    n_bytes = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            status = path.lstat()
            n_bytes += status.st_size
            if stat.S_ISREG(status.st_mode) and n_bytes <= MAX_CACHE_BYTES:
                yield str(path.relative_to(folder)), path.read_bytes()
