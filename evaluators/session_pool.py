"""Sessions that are ready before their candidate is: sandboxed children, each with a CUDA context and a slot."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from db.errors import DeviceError
from db.records import Hardware, PrecisionClass
from evaluators.gpu_session import GpuSession, SessionLost, Slot
from evaluators.sandbox.client import Child, Exit, Zygote
from evaluators.sandbox.limits import GIB, Limits
from evaluators.sandbox.workspace import fill_cache

PRELOAD = ("evaluators.cuda_session",)
JOB = "evaluators.cuda_session:session"
LIFETIME_S = 24 * 3600.0  # a child waits for a candidate as long as it takes; every request has its own deadline
OPEN_DEADLINE_S = 120.0
END_DEADLINE_S = 120.0  # the driver takes its time with what a killed process held
LIMITS = Limits(resident_bytes=32 * GIB)  # the resident memory of a CUDA process counts what the driver maps


class OpenSession(GpuSession):
    """A session with its child."""

    def __init__(self, child: Child, slot: Slot, *, deadline_s: float, load_deadline_s: float) -> None:
        super().__init__(child, slot, deadline_s=deadline_s, load_deadline_s=load_deadline_s)
        self.child = child
        self.context_s = 0.0

    def give_cache(self, folder: str) -> None:
        """Copies compiled kernels into the child's Triton cache, where its candidate will look for them."""
        if folder:
            fill_cache(self.child.cache_dir, {}, Path(folder))

    def end(self) -> Exit:
        """Kills the child and waits until nothing of it is left."""
        self.child.kill()
        return self.child.wait(END_DEADLINE_S)


class SessionPool:
    """Keeps one opened session per slot. `take` lends one to a candidate; it is used once and replaced.

    Ends its children, not the zygote, which is its caller's.
    """

    def __init__(
        self,
        zygote: Zygote,
        slots: list[Slot],
        hardware: Hardware,
        precision: PrecisionClass,
        *,
        deadline_s: float,
        load_deadline_s: float,
    ) -> None:
        self._zygote = zygote
        self._payload = {"precision": precision.value, "l2_bytes": hardware.l2_bytes}
        self._deadlines = {"deadline_s": deadline_s, "load_deadline_s": load_deadline_s}
        self._ready: queue.Queue[OpenSession | Exception] = queue.Queue()
        self._workers = ThreadPoolExecutor(len(slots), thread_name_prefix="session")
        self._is_closed = False
        for slot in slots:
            self._workers.submit(self._open, slot)

    @property
    def isolation(self) -> str:
        return self._zygote.isolation

    @property
    def missing(self) -> tuple[str, ...]:
        return self._zygote.missing

    @contextlib.contextmanager
    def take(self) -> Iterator[OpenSession]:
        """A session with its context made. Raises `DeviceError` when no child can be opened."""
        found = self._ready.get()
        while isinstance(found, OpenSession) and found.child.is_orphaned:
            self._workers.submit(self._replace, found)
            found = self._ready.get()
        if isinstance(found, Exception):
            self._ready.put(found)
            raise found
        try:
            yield found
        finally:
            if not self._is_closed:
                self._workers.submit(self._replace, found)

    def close(self) -> None:
        """Ends every child."""
        self._is_closed = True
        self._workers.shutdown(wait=True, cancel_futures=True)
        with contextlib.suppress(queue.Empty):
            while True:
                found = self._ready.get_nowait()
                if isinstance(found, OpenSession):
                    found.end()

    def _replace(self, used: OpenSession) -> None:
        try:
            used.end()
        except Exception as error:  # a thread's boundary: whoever takes next must hear of it
            self._ready.put(error)
            return
        self._open(used.slot)

    def _open(self, slot: Slot) -> None:
        for is_last in (False, False, True):
            try:
                self._ready.put(self._opened(slot))
                return
            except Exception as error:  # a thread's boundary: whoever takes next must hear of it
                if is_last or self._is_closed:
                    self._ready.put(error)
                    return

    def _opened(self, slot: Slot) -> OpenSession:
        torch.cuda.set_device(slot.inputs.device)
        # half a millisecond of copying, unlocked: a median does not see it, and waiting for the lock would cost more
        slot.reset()
        child = self._zygote.spawn(JOB, {**self._payload, **slot.describe()}, deadline_s=LIFETIME_S)
        session = OpenSession(child, slot, **self._deadlines)
        try:
            session.context_s = session.wait_open(OPEN_DEADLINE_S)
        except SessionLost as lost:
            raise DeviceError(f"a child cannot use the GPU: {lost}", "see `evolve doctor`") from lost
        return session
