"""The software that a verdict rests on."""

from __future__ import annotations

import platform
import re
from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=1)
def software_versions() -> dict[str, str]:
    """Versions of Python, torch, triton and, where there is one, the NVIDIA driver."""
    import torch
    import triton

    versions = {"python": platform.python_version(), "torch": torch.__version__, "triton": triton.__version__}
    driver = _driver_version()
    return {**versions, "driver": driver} if driver else versions


def _driver_version() -> str:
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return ""
    found = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", text)
    return found.group(1) if found else ""
