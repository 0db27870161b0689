"""The software that a verdict rests on."""

from __future__ import annotations

import platform
import re
from functools import lru_cache
from pathlib import Path

JUDGE = "2"
"""Raised whenever gates refuse what they accepted or time in another way: older verdicts are not reused then."""


@lru_cache(maxsize=1)
def software_versions() -> dict[str, str]:
    """Versions of Python, torch, triton, of the gates and, where there is one, the NVIDIA driver."""
    import torch
    import triton

    driver = _driver_version()
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "judge": JUDGE,
        **({"driver": driver} if driver else {}),
    }


def _driver_version() -> str:
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return ""
    found = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", text)
    return found.group(1) if found else ""
