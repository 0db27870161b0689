"""The device files of NVIDIA GPUs: which of them belong to GPUs that a child has nothing to do with."""

from __future__ import annotations

from pathlib import Path

DRIVER = Path("/proc/driver/nvidia/gpus")


def hidden_devices(gpu: str, driver: Path = DRIVER) -> list[str]:
    """Device files of all GPUs but the one with this UUID; none where the driver does not list it (a slice of MIG).

    Source: NVIDIA driver README, "The /proc interface": gpus/*/information names UUID and minor number.
    """
    minors = dict(_read(path) for path in driver.glob("*/information"))
    if gpu not in minors:
        return []
    devices = [f"/dev/nvidia{minor}" for uuid, minor in sorted(minors.items()) if uuid != gpu]
    return [device for device in devices if Path(device).exists()]


def _read(path: Path) -> tuple[str, str]:
    """UUID and minor number of one GPU."""
    fields = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
    return fields.get("GPU UUID", "").strip(), fields.get("Device Minor", "").strip()
