"""Running a problem's file: trusted code, whose faults are told as faults of the file."""

from __future__ import annotations

import linecache
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import torch
from triton.errors import TritonError

from db.errors import DeviceError, EvolveError, ProblemError

# what code that somebody wrote raises when it is wrong
_FAULTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    OSError,
    RuntimeError,
    TritonError,  # its compiler's, its launcher's and its interpreter's
    TypeError,
    ValueError,
)
BY_ITSELF = "the file fails by itself too: call its functions in plain Python to see the whole traceback"
ON_PATH = "a module of your own has to be on the import path: PYTHONPATH=FOLDER evolve ..."
SMALLER = "make it smaller: --shape name=value for a size of the problem"


def load_module(source: str, name: str) -> ModuleType:
    """Runs a source as a module of that name.

    The text is kept in `linecache`, because Triton reads the source of a kernel from its file, and the module in
    `sys.modules`, because torch.compile looks it up there.
    """
    file_name = f"<{name}>"
    linecache.cache[file_name] = (len(source), None, source.splitlines(keepends=True), file_name)
    module = ModuleType(name)
    module.__file__ = file_name
    sys.modules[name] = module
    exec(compile(source, file_name, "exec"), module.__dict__)
    return module


@contextmanager
def telling_faults(problem_name: str, doing: str) -> Iterator[None]:
    """Inside, an exception of the problem's code becomes a ProblemError with its line in the file.

    Raises:
        ProblemError: the code raised.
        DeviceError: it asked for more memory than there is.
    """
    try:
        yield
    except EvolveError:
        raise
    except MemoryError as fault:
        raise DeviceError(f"problem {problem_name!r} does not fit in memory while {doing}", SMALLER) from fault
    except _FAULTS as fault:
        line = _line_of(fault)
        if isinstance(fault, torch.OutOfMemoryError) or "allocate memory" in line:
            message = f"problem {problem_name!r} does not fit in memory while {doing}: {line}"
            raise DeviceError(message, SMALLER) from fault
        message = f"problem {problem_name!r}: {doing} failed{_where(fault)}: {type(fault).__name__}: {line}"
        raise ProblemError(message, ON_PATH if isinstance(fault, ModuleNotFoundError) else BY_ITSELF) from fault


def _line_of(fault: BaseException) -> str:
    """What it says, in a line. Triton shows the kernel first and says what is wrong with it last."""
    lines = (str(fault).strip() or "no message").splitlines()
    return lines[-1 if isinstance(fault, TritonError) else 0].strip()


def _where(fault: BaseException) -> str:
    """ " at line 12", the innermost line of the problem's file that took part."""
    lines = [
        frame.lineno for frame in traceback.extract_tb(fault.__traceback__) if frame.filename.startswith("<problem")
    ]
    return f" at line {lines[-1]}" if lines else ""
