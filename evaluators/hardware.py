"""GPUs: the rows of configs/hardware.yaml as `Hardware` records, and the one that is plugged in."""

from __future__ import annotations

import difflib
import re
from functools import cache
from importlib import resources
from typing import Any

import yaml

from db.errors import ConfigError, DeviceError
from db.records import Hardware

TENSOR_KINDS = ("tf32", "fp16", "bf16", "int8")


@cache
def _table() -> dict[str, Any]:
    text = resources.files("configs").joinpath("hardware.yaml").read_text(encoding="utf-8")
    table: dict[str, Any] = yaml.safe_load(text)
    return table


def target_names() -> list[str]:
    """The targets that `--target` takes, in the order of the table."""
    return list(_table()["targets"])


def load_hardware(target: str) -> Hardware:
    """The row for a target name, upper or lower case: "h100".

    Raises:
        ConfigError: no such target; the hint suggests the nearest name.
    """
    key = target.strip().lower()
    rows = _table()["targets"]
    if key not in rows:
        near = difflib.get_close_matches(key, rows, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(f"unknown target {target!r}", f"{hint}known targets: {', '.join(rows)}")
    return _hardware_of(key, rows[key])


def _hardware_of(target: str, row: dict[str, Any]) -> Hardware:
    achieved = {**_table()["achieved"], **row.get("achieved", {})}
    peak = dict(row["peak"])
    dram_gb_s = peak.pop("dram_gb_s") * achieved["dram"]
    tflops = {kind: rate * achieved["tensor" if kind in TENSOR_KINDS else "fp32"] for kind, rate in peak.items()}
    capability = tuple(row["compute_capability"])
    limits = _table()["limits"][f"{capability[0]}.{capability[1]}"]
    same = ("name", "n_sms", "sm_clock_ghz", "l2_bytes", "l2_gb_s", "dram_bytes")
    return Hardware(
        target=target,
        compute_capability=capability,
        dram_gb_s=dram_gb_s,
        tflops=tflops,
        launch_us=row.get("launch_us", _table()["launch_us"]),
        **limits,
        **{name: row[name] for name in same},
    )


def target_named(device_name: str) -> str | None:
    """The target whose words are in the device's name. The longest wins, so that "H100 PCIe" is not an H100."""
    lowered = device_name.lower()
    names = [(name, target) for target, row in _table()["targets"].items() for name in row["names"]]
    matches = [(name, target) for name, target in names if re.search(rf"\b{re.escape(name)}\b", lowered)]
    return max(matches, key=lambda match: len(match[0]))[1] if matches else None


def detect_hardware(index: int = 0) -> Hardware:
    """The CUDA device `index`: rates from its row of the table, sizes and limits as the driver reports them.

    A device that has no row takes the rates of the row with the nearest compute capability, scaled by its SMs.

    Raises:
        DeviceError: there is no such device.
    """
    import torch

    if not torch.cuda.is_available() or index >= torch.cuda.device_count():
        raise DeviceError(f"no CUDA device {index}", "run `evolve doctor`, or use --device cpu")
    properties = torch.cuda.get_device_properties(index)
    target = target_named(properties.name)
    row = load_hardware(target) if target else _nearest_row((properties.major, properties.minor), properties)
    return row.model_copy(update=_reported(properties))


def _reported(properties: Any) -> dict[str, Any]:
    """What the driver knows better than the table."""
    found = {
        "name": properties.name,
        "compute_capability": (properties.major, properties.minor),
        "n_sms": properties.multi_processor_count,
        "dram_bytes": properties.total_memory,
    }
    optional = {
        "l2_bytes": "L2_cache_size",
        "shared_bytes_per_sm": "shared_memory_per_multiprocessor",
        "shared_bytes_per_block": "shared_memory_per_block_optin",
        "max_threads_per_sm": "max_threads_per_multi_processor",
        "registers_per_sm": "regs_per_multiprocessor",
    }
    found.update({field: getattr(properties, name) for field, name in optional.items() if getattr(properties, name, 0)})
    return found


def _nearest_row(capability: tuple[int, int], properties: Any) -> Hardware:
    rows = [load_hardware(target) for target in target_names()]
    nearest = min(rows, key=lambda row: abs(_as_number(row.compute_capability) - _as_number(capability)))
    scale = properties.multi_processor_count / nearest.n_sms
    rates = {"dram_gb_s": nearest.dram_gb_s * scale, "l2_gb_s": nearest.l2_gb_s * scale, "target": "unknown"}
    return nearest.model_copy(update={**rates, "tflops": {k: v * scale for k, v in nearest.tflops.items()}})


def _as_number(capability: tuple[int, int]) -> float:
    return capability[0] + capability[1] / 10
