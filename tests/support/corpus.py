"""The corpus of programs that try to cheat, and of honest ones that look like them (`tests/corpus`).

Each file begins with comments: the problem it is for (of the suite, or a file of the corpus), its kind, what it tries
(or does), and, of a cheat, whether only a GPU can tell.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

ROOT = Path(__file__).resolve().parents[1] / "corpus"


class Specimen(NamedTuple):
    """One program of the corpus."""

    name: str  # of its file, "cached_closure"
    problem: str  # of the suite, or the path of a file of the corpus
    kind: str
    claim: str  # what it tries, or does
    needs_gpu: bool  # only a GPU can tell that it cheats
    source: str


def specimens(folder: Literal["cheats", "honest"]) -> list[Specimen]:
    """All programs of a folder, by name."""
    return [_read(path) for path in sorted((ROOT / folder).glob("*.py"))]


def _read(path: Path) -> Specimen:
    source = path.read_text()
    lines = [line[2:] for line in source.splitlines() if line.startswith("# ") and ": " in line]
    header = {name: text for name, _, text in (line.partition(": ") for line in reversed(lines))}
    problem = header["problem"]
    return Specimen(
        name=path.stem,
        problem=str(ROOT / problem) if problem.endswith(".py") else problem,
        kind=header["kind"],
        claim=header.get("tries") or header["does"],
        needs_gpu=header.get("needs a GPU", "no").startswith("yes"),
        source=source,
    )
