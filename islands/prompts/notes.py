"""What a model should know of the installed Triton: short texts, one a version that changed something."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_NAME = re.compile(r"triton-(\d+)\.(\d+)\.md")


@cache
def notes_on(version: str) -> str:
    """Notes on a version of Triton ("3.7.1"): what holds for all, and what changed up to it.

    A version that is newer than every note takes the newest, one that is older or unknown the oldest.
    """
    folder = resources.files("islands.prompts").joinpath("notes")
    noted = sorted((int(m[1]), int(m[2])) for file in folder.iterdir() if (m := _NAME.fullmatch(file.name)))
    found = re.match(r"(\d+)\.(\d+)", version)
    wanted = (int(found[1]), int(found[2])) if found else noted[0]
    major, minor = max((one for one in noted if one <= wanted), default=noted[0])
    parts = [folder.joinpath(name).read_text(encoding="utf-8") for name in ("common.md", f"triton-{major}.{minor}.md")]
    return "\n".join(part.strip() for part in parts)
