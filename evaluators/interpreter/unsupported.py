"""Whose fault an exception is: the candidate's, or the interpreter's, which lacks a part of the language.

A candidate that reaches the interpreter has been compiled for a GPU already, so what only the interpreter refuses says
nothing against it.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path

import triton
from triton.runtime import interpreter

# messages of Triton's own code for what it cannot do in this mode
_MESSAGES = (
    "unsupported",
    "not supported",
    "Did you forget to add @triton.jit",  # a function of the language imported by its bare name: never patched
    "outside of the scope of a kernel",
    "triton.language must be visible",
)
_FOLDERS = (Path(triton.__file__).parent, Path(__file__).parent)
_OWN_FAULTS = (NotImplementedError, AttributeError, TypeError, KeyError)


def why_unsupported(error: BaseException) -> str | None:
    """In words what the interpreter cannot do, or None when the exception is the candidate's own."""
    for link in _chain(error):
        if _is_of_triton(link) and _is_a_gap(link):
            return f"the interpreter cannot run it: {type(link).__name__}: {' '.join(str(link).split())}"[:500]
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and what caused it. What was raised for another reason while it was handled is left out."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__


def _raised_in(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return frames[-1].filename if frames else ""


def _is_of_triton(error: BaseException) -> bool:
    """Raised by code of Triton or of the shims, not by the candidate's and not by torch's or numpy's."""
    where = _raised_in(error)
    return any(Path(where).is_relative_to(folder) for folder in _FOLDERS)


def _is_a_gap(error: BaseException) -> bool:
    if isinstance(error, NotImplementedError):
        return True
    if isinstance(error, AttributeError) and isinstance(error.obj, interpreter.InterpreterBuilder):
        return True
    if isinstance(error, _OWN_FAULTS) and _raised_in(error) == interpreter.__file__:
        return True
    return isinstance(error, ValueError | AssertionError) and any(text in str(error) for text in _MESSAGES)
