"""Jobs by name, limits that tests can reach, and the question whether anything of a folder is still alive."""

import time
from pathlib import Path

from evaluators.sandbox import Limits

JOBS = "tests.evaluators.sandbox.jobs:"
TEST_LIMITS = Limits(
    resident_bytes=512 * 1024**2, n_processes=64, output_bytes=8 * 1024**2, disk_bytes=128 * 1024**2, n_files=2000
)


def living_in(folder: Path) -> list[int]:
    """Processes whose working folder is below a folder, removed or not."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str((process / "cwd").readlink()).startswith(str(folder)):
                found.append(int(process.name))
        except OSError:
            continue
    return found


def wait_until_dead(folder: Path, seconds: float) -> list[int]:
    """Who still lives below a folder after so many seconds, as a rule nobody."""
    end = time.monotonic() + seconds
    while (alive := living_in(folder)) and time.monotonic() < end:
        time.sleep(0.02)
    return alive
