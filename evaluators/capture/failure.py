"""Why a candidate could not be captured, in one sentence that an operator can act on."""

from __future__ import annotations

import inspect
import traceback
from pathlib import Path
from typing import Any

from torch._subclasses import fake_tensor
from triton.compiler.errors import CompilationError

CANDIDATE_FILE = "candidate.py"
LONGEST_MESSAGE = 600

# what fake tensors cannot do although a GPU can: shapes and values that depend on data
BEYOND_FAKES = (
    fake_tensor.DynamicOutputShapeException,
    fake_tensor.DataDependentOutputException,
    fake_tensor.UnsupportedOperatorException,
)


class KernelFailure(Exception):  # noqa: N818  carries another error; the name says whose it is
    """A kernel that does not compile. `line` is the line in the candidate's source, 0 when unknown."""

    def __init__(self, function: Any, error: Exception) -> None:
        super().__init__(str(error))
        self.kernel = function.fn.__name__
        self.error = error
        self.line = _line_of(function, error)


def _line_of(function: Any, error: Exception) -> int:
    """Triton counts lines from a kernel's `def`, below its decorators."""
    node = getattr(error, "node", None)
    if not isinstance(error, CompilationError) or node is None or not hasattr(node, "lineno"):
        return 0
    lines, first_line = inspect.getsourcelines(function.fn)
    n_decorators = next(i for i, line in enumerate(lines) if line.lstrip().startswith("def "))
    return int(first_line + n_decorators + node.lineno - 1)


def explain(error: BaseException, source: str) -> dict[str, Any]:
    """{"failed": reason, "is_unsupported": bool} for anything that running or compiling a candidate raised."""
    if isinstance(error, KernelFailure):
        return {"failed": _kernel_reason(error, source), "is_unsupported": False}
    line = _candidate_line(error)
    where = f" at line {line}{_quote(source, line)}" if line else ""
    message = " ".join(str(error).split())[:LONGEST_MESSAGE]
    reason = f"host code raised {type(error).__name__}{where}: {message}"
    return {"failed": reason, "is_unsupported": isinstance(error, BEYOND_FAKES)}


def _kernel_reason(failure: KernelFailure, source: str) -> str:
    where = f" at line {failure.line}{_quote(source, failure.line)}" if failure.line else ""
    return f"kernel {failure.kernel} does not compile{where}: {_root_message(failure.error)}"


def _root_message(error: BaseException) -> str:
    """Triton wraps an error of an inlined function in one of its caller; the innermost says what is wrong."""
    while error.__cause__ is not None and not getattr(error, "error_message", None):
        error = error.__cause__
    message = getattr(error, "error_message", None) or str(error)
    return f"{type(error).__name__}: {' '.join(str(message).split())}"[:LONGEST_MESSAGE]


def _quote(source: str, line: int) -> str:
    lines = source.splitlines()
    return f" ({lines[line - 1].strip()})" if 0 < line <= len(lines) else ""


def _candidate_line(error: BaseException) -> int:
    """The innermost line of the candidate on the way to the error, 0 when there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno or 0 for frame in frames if Path(frame.filename) == Path.cwd() / CANDIDATE_FILE]
    return lines[-1] if lines else 0
