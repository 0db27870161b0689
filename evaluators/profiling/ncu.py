"""Nsight Compute's command line: where it is, how it is called, and what its complaints mean."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

NVIDIA_PARAMS = Path("/proc/driver/nvidia/params")
PROCESS_STATUS = Path("/proc/self/status")
CAP_SYS_ADMIN = 21  # bit of CapEff, capabilities(7)
REPORT = "report.ncu-rep"
SECTIONS = (
    *("SpeedOfLight", "Occupancy", "LaunchStats", "MemoryWorkloadAnalysis"),
    *("WarpStateStats", "SchedulerStats", "ComputeWorkloadAnalysis"),
)
METRICS = ("dram__bytes_read.sum", "dram__bytes_write.sum")  # in no section of those

NO_PERMISSION = "the driver keeps performance counters from this user (ERR_NVGPUCTRPERM)"
HOW_TO_GET_PERMISSION = (
    "run as root or with CAP_SYS_ADMIN (in a container: --cap-add=SYS_ADMIN or --privileged), or let everybody: "
    "options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, then reload the driver or reboot; "
    'see "NVIDIA Development Tools Solutions - ERR_NVGPUCTRPERM: Permission issue with Performance Counters" on '
    "developer.nvidia.com"
)
NOT_FOUND = "ncu (Nsight Compute) is not installed"
MAX_WORDS = 300


def find_ncu() -> str | None:
    """Where Nsight Compute's command is: on PATH, or where CUDA puts it."""
    on_path = shutil.which("ncu")
    if on_path:
        return on_path
    places = [*Path("/usr/local").glob("cuda*/bin/ncu"), *Path("/opt/nvidia/nsight-compute").glob("*/ncu")]
    return str(max(places)) if places else None


def is_profiling_restricted(params: Path = NVIDIA_PARAMS, status: Path = PROCESS_STATUS) -> bool:
    """Whether the driver keeps performance counters from this process: it wants CAP_SYS_ADMIN (RmProfilingAdminOnly),
    which root in a container may lack and others may have. False where either file cannot be read."""
    try:
        is_for_admins = "RmProfilingAdminOnly: 1" in params.read_text()
        return is_for_admins and not _effective_capabilities(status.read_text()) >> CAP_SYS_ADMIN & 1
    except OSError:
        return False


def _effective_capabilities(status: str) -> int:
    """The bits of CapEff in the text of /proc/PID/status; all of them where it has none."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return int(found[1], 16) if found else -1


def profile_command(ncu: str, program: Sequence[str]) -> list[str]:
    """The command that profiles a program between cudaProfilerStart and cudaProfilerStop, into `REPORT`.

    Clocks are left alone: latencies are measured elsewhere, and others use the GPU. Caches are flushed before every
    pass, which is ncu's default and what the timer does. Every launch is kept with the ranges of NVTX that are open.
    """
    sections = [part for name in SECTIONS for part in ("--section", name)]
    how = ["--target-processes", "all", "--clock-control", "none", "--profile-from-start", "off", "--nvtx"]
    return [ncu, *how, *sections, "--metrics", ",".join(METRICS), "-f", "-o", REPORT, *program]


def import_command(ncu: str, page: str) -> list[str]:
    """The command that prints one page of `REPORT`."""
    return [ncu, "--import", REPORT, "--csv", "--page", page, "--print-units", "base"]


class Complaint(NamedTuple):
    """Why there are no counters, in words. `is_lasting`: asking again will not help."""

    words: str
    is_lasting: bool = False


NOTHING_LAUNCHED = Complaint("no kernel was launched while it was profiled")
_COMPLAINTS = (
    (r"ERR_NVGPUCTRPERM", Complaint(f"{NO_PERMISSION}; {HOW_TO_GET_PERMISSION}", True)),
    (
        r"driver resource was unavailable|concurrently collecting|already (?:in use|being profiled)|LibraryNotLoaded",
        Complaint("the counters are in use by another tool (DCGM, another profiler)"),
    ),
    (
        r"driver is not compatible|not supported on this (?:driver|GPU)|unsupported GPU|driver version is insufficient",
        Complaint("this Nsight Compute does not fit the driver or the GPU; install the version of its CUDA", True),
    ),
    (r"No kernels were profiled", NOTHING_LAUNCHED),
    (r"No space left on device", Complaint("no space is left for its report")),
)
_ERROR_LINE = re.compile(r"^==ERROR==\s*(.+)$", re.MULTILINE)


def explain(output: str) -> Complaint:
    """What ncu complained about, from what it printed."""
    for pattern, complaint in _COMPLAINTS:
        if re.search(pattern, output, re.IGNORECASE):
            return complaint
    errors = _ERROR_LINE.findall(output)
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith("==PROF==")]
    last = errors[0].strip() if errors else lines[-1] if lines else "it said nothing"
    return Complaint(f"Nsight Compute made no report: {last[:MAX_WORDS]}")
