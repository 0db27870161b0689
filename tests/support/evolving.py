"""`evolve` as people start it: a process of its own that tests may ask, interrupt and kill."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

COMMAND = (sys.executable, "-m", "evolve.cli.main")
LIMIT_S = 240.0


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> list[str]:
        """What stands on standard error, line by line."""
        return self.err.splitlines()


def evolve(
    *arguments: str | Path, cwd: Path, limit_s: float = LIMIT_S, heeds_permissions: bool = False, **environment: str
) -> Ended:
    """Runs a command to its end; one that `heeds_permissions` of files even where the tests run as root."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
        preexec_fn=_heed_permissions if heeds_permissions else None,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def _heed_permissions() -> None:
    """Gives up what lets root pass over permissions; does nothing for others, who have not got it."""
    drop_from_bounding_set, override, search = 24, 1, 2  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    libc = ctypes.CDLL(None)
    for capability in (override, search):
        libc.prctl(drop_from_bounding_set, capability, 0, 0, 0)


def rows(sql: str, *, archive: Path) -> list[dict[str, Any]]:
    """The answer of `evolve query`, from a process of its own."""
    ended = evolve("query", sql, "--json", "--archive", archive, cwd=archive.parent)
    assert ended.code == 0, ended.err
    return list(json.loads(ended.out))


class Started:
    """A command that goes on beside the test. Ends with the `with` block at the latest."""

    def __init__(self, *arguments: str | Path, cwd: Path) -> None:
        self._out = cwd / "printed.txt"
        with self._out.open("w") as printed:
            # a session of its own: a signal to its group is what a terminal sends at Ctrl-C
            self._process = subprocess.Popen(
                [*COMMAND, *map(str, arguments)],
                cwd=cwd,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    @property
    def printed(self) -> str:
        return self._out.read_text()

    def wait_for(self, text: str, *, limit_s: float = LIMIT_S) -> None:
        """Waits until the command has printed a text."""
        end = time.monotonic() + limit_s
        while text not in self.printed:
            assert self._process.poll() is None, f"it ended by itself: {self.printed}"
            assert time.monotonic() < end, f"it never said {text!r}: {self.printed}"
            time.sleep(0.1)

    def interrupt(self) -> None:
        """Ctrl-C: every process of the group hears it."""
        os.killpg(self._process.pid, signal.SIGINT)

    def kill(self) -> None:
        """`kill -9` of the driver alone."""
        self._process.kill()
        self._process.wait()

    def wait(self, *, limit_s: float = LIMIT_S) -> int:
        return self._process.wait(limit_s)
