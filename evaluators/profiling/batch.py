"""One process of ncu from the judge's side: starts it in the sandbox, lends it the GPU, reads what it brings."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from db.profile import KernelProfile
from evaluators.profiling.costs import LAUNCH_S, START_S
from evaluators.profiling.errors import ProfileError
from evaluators.profiling.ncu import NOTHING_LAUNCHED, Complaint, explain
from evaluators.profiling.progress import Outcome, read_outcomes
from evaluators.profiling.ranges import new_nonce
from evaluators.profiling.report import Launched, read_report
from evaluators.sandbox.client import Child, ChildEnded, Zygote

JOB = "evaluators.profiling.job:run_ncu"
LOAD_S = 180.0  # start of ncu and Python, and compilation of a batch
SECONDS_PER_PROGRAM = 2.5 * LAUNCH_S  # of the GPU, on average over a batch; with `OVERRUN_S`, 16 take 2 s each at most
MOST_SECONDS = START_S + 27 * LAUNCH_S  # of the GPU, for one program; a launch over gigabytes counts for up to six
OVERRUN_S = 10.0  # one launch that is replayed cannot be stopped
WRITE_S = 60.0
WAIT_S = 1800.0  # for the GPU's lock


class Source(NamedTuple):
    """A program that is to be profiled."""

    source: str
    entry_point: str


class Lock(Protocol):
    """What keeps others from measuring on the GPU meanwhile."""

    def acquire(self) -> None: ...
    def release(self) -> None: ...


class _Clocked:
    """A lock, and for how long it was held."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._since = 0.0
        self.held_s = 0.0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._since = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.held_s += time.monotonic() - self._since
        self._lock.release()


class Answer(NamedTuple):
    """What one process brought: for each program its launches, or None; what became of it; why there is nothing.

    `held_s` is for how long it had the GPU's lock.
    """

    launches: list[tuple[KernelProfile, ...] | None]
    outcomes: list[Outcome]
    complaint: Complaint | None
    held_s: float = 0.0


def seconds_for(n_programs: int) -> float:
    """For how long a batch may begin to measure programs, once it has the GPU."""
    return max(MOST_SECONDS, START_S + SECONDS_PER_PROGRAM * n_programs)


def run_batch(
    zygote: Zygote, ncu: str, programs: Sequence[Source], context: dict[str, Any], gpu: Lock, worker: str | None = None
) -> Answer:
    """Profile programs in one process of ncu. Holds the GPU's lock only while they are measured.

    Args:
        context: what the worker has to know beside the programs: inputs, weights, precision.
        worker: the module that ncu runs, if not ours.
    """
    batch = [program._asdict() for program in programs]
    budget_s = seconds_for(len(batch))
    times = {"load_s": LOAD_S, "measure_s": budget_s + OVERRUN_S, "write_s": WRITE_S}
    limits = {"budget_s": budget_s, "program_s": MOST_SECONDS}
    nonce = new_nonce()
    payload = {"ncu": ncu, **times, "batch": {"programs": batch, "nonce": nonce, **limits, **context}}
    if worker:
        payload["worker"] = worker
    deadline_s = LOAD_S + WAIT_S + budget_s + OVERRUN_S + 3 * WRITE_S
    clocked = _Clocked(gpu)
    with zygote.spawn(JOB, payload, deadline_s=deadline_s) as child:
        try:
            return _answer(_converse(child, clocked, times), len(batch), nonce)._replace(held_s=clocked.held_s)
        except ChildEnded as ended:
            why = f"the process around ncu ended ({ended.exit.kind}: {ended.exit.detail or ended.exit.output[-200:]})"
        except TimeoutError:
            why = "ncu did not answer in time"
        except (KeyError, TypeError, ValueError) as error:  # the child ran code of candidates
            why = f"the process around ncu answered what is no answer: {error}"
    return Answer([None] * len(batch), [Outcome()] * len(batch), Complaint(why), clocked.held_s)


def _converse(child: Child, gpu: _Clocked, times: dict[str, float]) -> dict[str, Any]:
    """The job's last message. The lock is given back as soon as it is of no use, or at its deadline."""
    message = child.receive(times["load_s"] + OVERRUN_S)
    if message["stage"] == "ready":
        with gpu:
            child.send({"stage": "go"})
            message = child.receive(times["measure_s"] + OVERRUN_S)
    while message["stage"] != "report":
        message = child.receive(3 * times["write_s"])
    return message


def _answer(report: dict[str, Any], n_programs: int, nonce: str) -> Answer:
    outcomes = read_outcomes(str(report["progress"]), n_programs)
    nothing: list[tuple[KernelProfile, ...] | None] = [None] * n_programs
    pages = [str(page) for page in report["pages"] if page]
    complaint = explain(str(report["output"])) if not pages else None
    if report.get("is_late"):
        complaint = Complaint("ncu did not end in time")
    if complaint == NOTHING_LAUNCHED and any(o.is_measured or o.is_fatal or o.error for o in outcomes):
        complaint = None  # ncu did its part; the programs launched nothing, or did not come so far
    if complaint is not None:
        return Answer(nothing, outcomes, complaint)
    try:
        launches = read_report(*pages, nonce=nonce) if pages else ()
        return Answer(_assign(launches, outcomes), outcomes, None)
    except ProfileError as error:
        return Answer(nothing, outcomes, Complaint(f"its report cannot be read: {error.message}"))


def _assign(launches: Sequence[Launched], outcomes: Sequence[Outcome]) -> list[tuple[KernelProfile, ...] | None]:
    """The launches of each program that ran to its end. A launch outside of all programs is nobody's.

    Raises:
        ProfileError: there are launches, and all of them are nobody's.
    """
    if launches and all(launch.program is None for launch in launches):
        raise ProfileError(f"of its {len(launches)} launches, none is in the NVTX range of a program")
    return [
        tuple(launch.kernel for launch in launches if launch.program == n) if outcome.is_measured else None
        for n, outcome in enumerate(outcomes)
    ]
