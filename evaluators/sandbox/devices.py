"""Which device files a child may use: those without a state of the machine behind them, and those of NVIDIA GPUs."""

from __future__ import annotations

import os

HARMLESS = ("null", "zero", "full", "random", "urandom")
OF_GPUS = ("nvidia", "nvhost", "nvmap", "nvgpu", "dxg")  # beginnings of names; the last is a GPU under WSL


def usable_devices(folder: str = "/dev") -> list[str]:
    """Paths below `folder`: device files, and folders of them. Links are left out."""
    with os.scandir(folder) as entries:
        return sorted(
            entry.path
            for entry in entries
            if (entry.name in HARMLESS or entry.name.startswith(OF_GPUS)) and not entry.is_symlink()
        )
