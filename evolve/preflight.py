"""What can be found out before anything is started: a run that cannot end well should not begin.

Ray and the actors take seconds to start; every question here is answered in a fraction of one.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from db.archive import ProgramArchive
from db.errors import ArchiveError
from db.records import DeviceKind
from evaluators.hardware import load_hardware
from evolve.cluster import check_reachable
from evolve.config import RunConfig
from islands.migration import make_topology

READER_WAIT_S = 2.0  # what a command that reads the archive may take to let go of it


def check_start(config: RunConfig, device: DeviceKind, *, wait_s: float = 0.0) -> None:
    """Make sure that a run has a place to keep what it finds and that what it names exists.

    Args:
        wait_s: how long to wait for an archive that another process holds.

    Raises:
        ConfigError: an unknown topology or target.
        ClusterError: nobody listens at the address of the cluster.
        ArchiveError: the archive cannot be opened for writing, or its folder or that for results cannot be made.
    """
    make_topology(config.topology)
    if device is DeviceKind.CPU:
        load_hardware(config.target)
    check_reachable(config.cluster.address)
    _check_folder(Path(config.out or "evolve-out"))
    _make_folder_of(Path(config.archive))
    with contextlib.closing(ProgramArchive.open(config.archive, wait_s=max(wait_s, READER_WAIT_S))):
        pass


def _make_folder_of(archive: Path) -> None:
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot make the folder of the archive {archive}: {error.strerror}"
        raise ArchiveError(message, "name another file: --archive FILE") from None


def _check_folder(folder: Path) -> None:
    """Results are written last: a folder that cannot be made must not be found out then."""
    existing = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    try:
        tempfile.TemporaryFile(dir=existing).close()  # permissions alone do not tell: they never stop root
    except OSError as error:
        message = f"cannot write results to {folder}: {existing}: {error.strerror}"
        raise ArchiveError(message, "name another folder: --out DIR") from None
