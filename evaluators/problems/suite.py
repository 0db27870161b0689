"""Which problems are built in."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from db.errors import ProblemError

SUITE_DIRECTORY = Path(__file__).parent.parent / "suite"
_NOT_PROBLEMS = {"__init__", "mutants"}


def suite_names() -> list[str]:
    """The names of the built-in problems, sorted."""
    return sorted(path.stem for path in SUITE_DIRECTORY.glob("*.py") if path.stem not in _NOT_PROBLEMS)


def unknown_problem(spec: str) -> ProblemError:
    """The error for a name that is neither in the suite nor a file."""
    names = suite_names()
    wanted = spec.lower().removesuffix(".py")
    near = get_close_matches(wanted, names, n=1, cutoff=0.5)
    guess = f"did you mean {near[0]!r}? " if near else ""
    listed = "`evolve problems list` shows the built-in ones" if near else f"built in: {', '.join(names)}"
    return ProblemError(f"no problem and no file named {spec!r}", f"{guess}{listed}; a path must end in .py")
