"""What works on this machine: the library twin of `evolve doctor`.

Every finding says what was found and, where that is not good, what to do. Torch and Triton are asked in a process of
their own, so a broken installation is a finding and not a crash.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Any

from db.errors import EvolveError
from db.records import Record
from evaluators.profiling.ncu import HOW_TO_GET_PERMISSION, NO_PERMISSION, find_ncu, is_profiling_restricted

ROOMS = ("evolve", "islands", "evaluators", "db", "configs")
PROBE_S = 120.0
LOW_DISK_BYTES = 2 * 10**9
OLDEST = {"torch": (2, 11), "triton": (3, 6), "duckdb": (2, 0), "ray": (2, 52)}


class Status(StrEnum):
    """`ok`; `warn`: works, with less; `fail`: a run cannot start."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(Record):
    """One thing that was looked at. `advice` is empty where there is nothing to do."""

    name: str
    status: Status
    found: str
    advice: str = ""


def examine(archive: Path) -> list[Finding]:
    """Look at everything a run needs. Takes some seconds: it imports torch and starts a sandbox in other processes.

    Args:
        archive: the archive file that runs would use; it need not exist.
    """
    torch = probe_torch()
    has_gpu = bool(torch.get("gpus"))
    looks: list[Callable[[], Iterator[Finding]]] = [
        _python,
        lambda: _torch(torch),
        lambda: _gpu(torch),
        lambda: _ncu(needed=has_gpu),
        _versions,
        _isolation,
        _packages,
        lambda: _disk(archive),
        lambda: examine_archive(archive),
    ]
    return [finding for look in looks for finding in look()]


def _python() -> Iterator[Finding]:
    fits = (3, 11) <= sys.version_info[:2] <= (3, 13)
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    yield Finding(
        name="python",
        status=Status.OK if fits else Status.FAIL,
        found=found,
        advice="" if fits else "make an environment with Python 3.11, 3.12 or 3.13",
    )


# ---------------------------------------------------------------------------------------------------- torch and GPU

_TORCH_PROBE = """
import json
out = {}
try:
    import torch
    out["torch"], out["built_for"] = torch.__version__, torch.version.cuda or ""
    out["gpus"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    if out["gpus"]:
        (torch.ones(8, device="cuda") + 1).cpu()
except Exception as error:
    out["torch_error"] = f"{type(error).__name__}: {error}"
try:
    import triton
    out["triton"] = triton.__version__
except Exception as error:
    out["triton_error"] = f"{type(error).__name__}: {error}"
print(json.dumps(out))
"""


def probe_torch() -> dict[str, Any]:
    """What torch and Triton say of themselves, asked in a process of their own: versions, GPUs, errors."""
    done = _run([sys.executable, "-P", "-c", _TORCH_PROBE])
    try:
        answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return {"torch_error": _last_line(done.stderr) or f"the process ended with {done.returncode}"}
    return answer


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """A command's output; a missing program or a deadline shows as return code 127 or 124."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=PROBE_S, check=False)
    except FileNotFoundError as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"no answer in {PROBE_S:.0f} s")


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


def _torch(probe: dict[str, Any]) -> Iterator[Finding]:
    yield _library(probe, "torch")
    yield _library(probe, "triton")
    wanted = required_triton()
    installed = probe.get("triton", "")
    if wanted and installed and installed.split("+")[0] != wanted:
        yield Finding(
            name="torch with triton",
            status=Status.WARN,
            found=f"this torch was made for triton {wanted}, installed is {installed}",
            advice=f"pip install triton=={wanted}",
        )
    elif installed and "torch" in probe:
        found = f"triton {wanted} is what this torch asks for" if wanted else "this torch asks for no certain triton"
        yield Finding(name="torch with triton", status=Status.OK, found=found)


def _library(probe: dict[str, Any], name: str) -> Finding:
    if f"{name}_error" in probe:
        return Finding(
            name=name, status=Status.FAIL, found=probe[f"{name}_error"], advice=f"reinstall it: pip install {name}"
        )
    return _version_finding(name, str(probe.get(name, "")))


def required_triton() -> str:
    """The version of Triton that the installed torch pins, or the empty string."""
    try:
        requirements = metadata.requires("torch") or []
    except metadata.PackageNotFoundError:
        return ""
    for requirement in requirements:
        name, equals, version = requirement.partition(";")[0].replace(" ", "").partition("==")
        if name == "triton" and equals:
            return version
    return ""


def _gpu(probe: dict[str, Any]) -> Iterator[Finding]:
    smi = _run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"])
    seen = [line.strip() for line in smi.stdout.splitlines() if line.strip()] if smi.returncode == 0 else []
    usable = probe.get("gpus", [])
    if usable:
        yield Finding(name="GPU", status=Status.OK, found="; ".join(seen or usable))
    elif seen:
        built_for = probe.get("built_for") or "no CUDA"
        yield Finding(
            name="GPU",
            status=Status.WARN,
            found=f"{'; '.join(seen)}, but torch (built for {built_for}) cannot use it",
            advice="install a torch built for CUDA that this driver supports",
        )
    else:
        yield Finding(
            name="GPU",
            status=Status.WARN,
            found="none: correctness runs in the interpreter and latency is modelled",
            advice="choose the GPU that is modelled with --target, or run on a CUDA machine",
        )


def _ncu(*, needed: bool) -> Iterator[Finding]:
    path = find_ncu()
    if path is None:
        yield Finding(
            name="ncu",
            status=Status.WARN if needed else Status.OK,
            found="not found" if needed else "not found, and not needed without a GPU",
            advice="install Nsight Compute and put ncu on PATH; tiers come from the compiled kernel until then"
            if needed
            else "",
        )
        return
    version = _last_line(_run([path, "--version"]).stdout)
    restricted = is_profiling_restricted()
    yield Finding(
        name="ncu",
        status=Status.WARN if restricted else Status.OK,
        found=f"{path}, {version}" + (f", but {NO_PERMISSION}" if restricted else ""),
        advice=HOW_TO_GET_PERMISSION if restricted else "",
    )


# --------------------------------------------------------------------------------------------- libraries and sandbox


def _versions() -> Iterator[Finding]:
    for name in ("ray", "duckdb"):
        try:
            yield _version_finding(name, metadata.version(name))
        except metadata.PackageNotFoundError:
            yield _version_finding(name, "")


def _version_finding(name: str, version: str) -> Finding:
    oldest = OLDEST[name]
    wanted = ".".join(map(str, oldest))
    if not version:
        return Finding(name=name, status=Status.FAIL, found="not installed", advice=f"pip install '{name}>={wanted}'")
    is_new_enough = _as_numbers(version) >= oldest
    return Finding(
        name=name,
        status=Status.OK if is_new_enough else Status.FAIL,
        found=version,
        advice="" if is_new_enough else f"pip install '{name}>={wanted}'",
    )


def _as_numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: "2.13.0+cpu" is (2, 13, 0)."""
    numbers: list[int] = []
    for part in version.split("+")[0].split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


_ISOLATION_PROBE = """
import dataclasses, json
from evaluators.sandbox import Zygote
with Zygote(interpret=True) as zygote:
    layers = [dataclasses.asdict(layer) for layer in zygote.layers]
    print(json.dumps({"isolation": zygote.isolation, "layers": layers}))
"""


def _isolation() -> Iterator[Finding]:
    done = _run([sys.executable, "-P", "-c", _ISOLATION_PROBE])
    try:
        answer: dict[str, Any] = json.loads(_last_line(done.stdout))
    except ValueError:
        yield Finding(
            name="isolation",
            status=Status.FAIL,
            found=f"no sandbox can be started: {_last_line(done.stderr)}",
            advice="see the messages above; candidates run only inside a sandbox",
        )
        return
    yield from describe_sandbox(answer["isolation"], answer["layers"])


def describe_sandbox(isolation: str, layers: list[dict[str, Any]]) -> Iterator[Finding]:
    """The isolation as a whole, and each of its layers (`sandbox.Layer`, as a dict)."""
    missing = [layer["name"] for layer in layers if not layer["is_active"]]
    means = "each candidate sees only itself"
    if isolation != "namespaces":
        means = "a candidate's processes are found and killed, but it shares files, and ncu cannot profile it"
    yield Finding(
        name="isolation",
        status=Status.WARN if missing else Status.OK,
        found=f"{isolation}: {means}",
        advice=f"missing: {', '.join(missing)}; see below" if missing else "",
    )
    for layer in layers:
        status = Status.OK if layer["is_active"] else Status.WARN
        found = layer["found"] if layer["is_active"] else f"missing: {layer['found']}"
        yield Finding(name=f"sandbox {layer['name']}", status=status, found=found, advice=layer["advice"])


# ------------------------------------------------------------------------------------------------ packages and disk


def _packages() -> Iterator[Finding]:
    home = Path(__file__).resolve().parent.parent
    for room in ROOMS:
        spec = importlib.util.find_spec(room)
        origin = Path(spec.origin).resolve().parent if spec and spec.origin else None
        others = [p for p in shadows(room) if p != origin]
        if origin is None or origin.parent != home:
            yield Finding(
                name=f"package {room}",
                status=Status.FAIL,
                found=f"imported from {origin}, while evolve is in {home}",
                advice="another package of this name is in the way: rename it, or run from another folder",
            )
        elif others:
            yield Finding(
                name=f"package {room}",
                status=Status.WARN,
                found=f"{origin}; {others[0]} has the same name",
                advice="start Python with -P, or run from another folder",
            )
        else:
            yield Finding(name=f"package {room}", status=Status.OK, found=str(origin))


def shadows(name: str, places: list[str] | None = None) -> list[Path]:
    """Every package or module of this name on the import path and in the current folder, resolved, without repeats."""
    found: list[Path] = []
    for place in [*(sys.path if places is None else places), ""]:
        folder = Path(place or ".").resolve() / name
        module = folder.with_suffix(".py")
        if (folder / "__init__.py").is_file() and folder not in found:
            found.append(folder)
        elif module.is_file() and module not in found:
            found.append(module)
    return found


def _disk(archive: Path) -> Iterator[Finding]:
    folder = next(place for place in archive.resolve().parents if place.exists())  # a run makes the others
    for name, place in (("disk for the archive", folder), ("disk for temporary files", Path(_temporary()))):
        if not place.is_dir():
            yield Finding(name=name, status=Status.FAIL, found=f"{place} is no folder", advice=f"mkdir -p {place}")
            continue
        free = shutil.disk_usage(place).free
        is_writable = os.access(place, os.W_OK)
        low = free < LOW_DISK_BYTES
        yield Finding(
            name=name,
            status=Status.FAIL if not is_writable else Status.WARN if low else Status.OK,
            found=f"{free / 1e9:.1f} GB free in {place}" + ("" if is_writable else ", which cannot be written"),
            advice="choose a folder that can be written" if not is_writable else "make room" if low else "",
        )


def _temporary() -> str:
    import tempfile

    return tempfile.gettempdir()


def examine_archive(path: Path) -> Iterator[Finding]:
    """Whether the archive at `path` can be read, and what it holds."""
    if not path.exists():
        yield Finding(name="archive", status=Status.OK, found=f"{path} does not exist yet; the first run makes it")
        return
    from evolve.queries import reading

    try:
        with reading(path) as archive:
            runs = archive.runs()
            n_programs = archive.query("SELECT count(*) FROM programs").rows[0][0]
    except EvolveError as error:
        yield Finding(name="archive", status=Status.FAIL, found=error.message, advice=error.hint)
        return
    unfinished = [run.run_id for run in runs if run.status in ("running", "interrupted")]
    yield Finding(
        name="archive",
        status=Status.OK,
        found=f"{path}: {len(runs)} run{'s' * (len(runs) != 1)}, {n_programs} program{'s' * (n_programs != 1)}"
        + (f", unfinished: {', '.join(unfinished[-3:])}" if unfinished else ""),
        advice=f"evolve resume {unfinished[-1]} --archive {path}" if unfinished else "",
    )
