"""What can be found out before anything is started: a run that cannot end well should not begin.

Ray and the actors take seconds to start; every question here is answered in a fraction of one.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from db.archive import ProgramArchive
from db.errors import ArchiveBusyError, ArchiveError
from db.records import DeviceKind
from evaluators.hardware import load_hardware
from evolve.cluster import check_reachable
from evolve.config import RunConfig
from islands.migration import make_topology

READER_WAIT_S = 2.0  # what a command that reads the archive may take to let go of it


def check_start(config: RunConfig, device: DeviceKind, *, may_be_held: bool = False) -> bool:
    """Make sure that a run has a place to keep what it finds and that what it names exists.

    Args:
        may_be_held: that another process holds the archive is no error yet.

    Returns:
        Whether nobody holds it.

    Raises:
        ConfigError: an unknown topology or target.
        ClusterError: nobody listens at the address of the cluster.
        ArchiveBusyError: another process holds the archive.
        ArchiveError: it cannot be opened for writing, or its folder or that for results cannot be made.
    """
    make_topology(config.topology)
    if device is DeviceKind.CPU:
        load_hardware(config.target)
    check_reachable(config.cluster.address)
    _check_folder(Path(config.out or "evolve-out"))
    _make_folder_of(Path(config.archive))
    try:
        wait_for_archive(config.archive, 0.0 if may_be_held else READER_WAIT_S)
    except ArchiveBusyError:
        if not may_be_held:
            raise
        return False
    return True


def wait_for_archive(archive: str, wait_s: float) -> None:
    """Wait until nobody holds an archive; one that is not there is made.

    Raises:
        ArchiveBusyError: somebody does, and has not let go of it by then.
        ArchiveError: it cannot be opened for writing.
    """
    with contextlib.closing(ProgramArchive.open(archive, wait_s=wait_s)):
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
