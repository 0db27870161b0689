"""The processes that children of a judge without a GPU are forked from. Light: imports neither torch nor triton."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

from evaluators.capture.capture import CAPTURE_PRELOAD, TRACE_PRELOAD
from evaluators.sandbox.client import Zygote, zygote_environment
from evaluators.sandbox.limits import PATIENCE_S, Limits
from evaluators.sandbox.starting import Nursery, SandboxError, Start, execute

TRACED_WITH = "numpy.ma"  # what sorting out addresses imports, in every child that traces
INTERPRET_PRELOAD = ("evaluators.interpreter.job", "evaluators.interpreter.shims:apply")
LIMITS = Limits(patience_s=PATIENCE_S)


def start_compiler(start: Start = execute) -> Zygote:
    """The process that a preparer forks its children from. Takes seconds, and needs to know no problem."""
    return Zygote(interpret=False, preload=CAPTURE_PRELOAD, limits=LIMITS, renews=True, start=start)


def start_interpreter(preload: tuple[str, ...] = (), start: Start = execute) -> Zygote:
    """The process that children which trace are forked from: one that interprets cannot compile. Takes seconds."""
    return Zygote(
        interpret=True, preload=[*TRACE_PRELOAD, TRACED_WITH, *preload], limits=LIMITS, renews=True, start=start
    )


class StartingZygotes:
    """A compiler and an interpreter that start side by side, while their judge imports torch itself. They import it
    once, in a nursery: a second of a core is a second where there are two."""

    def __init__(self) -> None:
        self._nursery = Nursery(zygote_environment(interpret=False))
        threads = ThreadPoolExecutor(2)
        self._compiler = threads.submit(start_compiler, self._nursery.fork)
        self._interpreter = threads.submit(start_interpreter, INTERPRET_PRELOAD, self._nursery.fork)
        threads.shutdown(wait=False)

    @property
    def compiler(self) -> Zygote:
        """Waits until it has started. Raises `SandboxError` where it does not."""
        return self._compiler.result()

    @property
    def interpreter(self) -> Zygote:
        """Waits until it has started; it runs whole programs, too. Raises `SandboxError` where it does not start."""
        return self._interpreter.result()

    def close(self) -> None:
        """End all of them, once they have started. May be called again."""
        for starting in (self._compiler, self._interpreter):
            with contextlib.suppress(SandboxError):
                starting.result().close()
        self._nursery.close()
