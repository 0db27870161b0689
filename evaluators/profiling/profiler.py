"""Counters for programs that are worth them: batches, second tries, and words where there are none."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

from db.profile import KernelProfile, Profile
from evaluators.profiling.batch import Answer, Lock, Source, run_batch
from evaluators.profiling.errors import ProfileError
from evaluators.profiling.ncu import (
    HOW_TO_GET_PERMISSION,
    NO_PERMISSION,
    NOT_FOUND,
    Complaint,
    find_ncu,
    is_profiling_restricted,
)
from evaluators.profiling.progress import Outcome
from evaluators.profiling.whole import combine
from evaluators.sandbox.client import Zygote

MAX_BATCH = 16
MAX_PROCESSES = 3  # of ncu, for one batch: a program that ends its process costs one
MAX_FAILURES = 3  # batches in a row without any report
NO_NAMESPACES = "ncu cannot start a program that uses CUDA in a sandbox without namespaces; see `evolve doctor`"

Context = Callable[[], contextlib.AbstractContextManager[dict[str, Any]]]


class Profiler:
    """Profiles programs of one problem on one GPU with Nsight Compute. Any thread may call; one batch runs at a time.

    Nothing here raises for what a program, ncu or the driver does: who gets no counters keeps the profile that it had,
    with a note that says why.
    """

    def __init__(
        self,
        zygote: Zygote,
        gpu: Lock,
        context: Context,
        *,
        ncu: str | None = None,
        worker: str | None = None,
    ) -> None:
        """
        Args:
            context: makes what workers have to know of the problem, for as long as one batch runs: where inputs and
                weights lie on the GPU, and the precision class.
            ncu: the command, if not the one that `find_ncu` finds.
            worker: the module that ncu runs, if not ours.
        """
        self._zygote = zygote
        self._gpu = gpu
        self._context = context
        self._ncu = ncu or find_ncu()
        self._worker = worker
        self._lasting = self._look()
        self._n_failures = 0
        self._one_at_a_time = threading.Lock()

    def availability(self) -> str:
        """Why there are no counters here; empty where they are to be had, as far as is known without asking."""
        return self._lasting

    def profile(self, programs: Sequence[Source], provisional: Sequence[Profile | None] = ()) -> list[Profile]:
        """A profile for each program, in order.

        Args:
            provisional: what the compiler says of each, which stands where there are no counters.
        """
        known = [*provisional, *[None] * (len(programs) - len(provisional))]
        found: list[Profile] = []
        for start in range(0, len(programs), MAX_BATCH):
            with self._one_at_a_time:
                found += self._profile_batch(programs[start : start + MAX_BATCH], known[start : start + MAX_BATCH])
        return found

    def _look(self) -> str:
        if self._ncu is None:
            return NOT_FOUND
        if self._zygote.isolation != "namespaces":
            return NO_NAMESPACES
        return f"{NO_PERMISSION}; {HOW_TO_GET_PERMISSION}" if is_profiling_restricted() else ""

    def _profile_batch(self, programs: Sequence[Source], known: Sequence[Profile | None]) -> list[Profile]:
        if self._lasting:
            return [without_counters(profile, self._lasting) for profile in known]
        profiles: dict[int, Profile] = {}
        waiting = list(range(len(programs)))
        why = Complaint("its turn did not come")
        held_s = 0.0
        for _ in range(MAX_PROCESSES):
            answer = self._run([programs[n] for n in waiting])
            held_s += answer.held_s
            for n, launches, outcome in zip(waiting, answer.launches, answer.outcomes, strict=True):
                if (profile := _settled(launches, outcome, known[n])) is not None:
                    profiles[n] = profile
            why = answer.complaint or why
            waiting = [n for n in waiting if n not in profiles]
            if not waiting or not _is_worth_another(answer):
                break
        self._remember(why, has_counters=any(p.source == "ncu" for p in profiles.values()))
        found = (profiles.get(n) or without_counters(known[n], why.words) for n in range(len(programs)))
        share = {"gpu_s": held_s / len(programs)}
        return [profile.model_copy(update=share) for profile in found]

    def _run(self, programs: Sequence[Source]) -> Answer:
        assert self._ncu is not None
        nothing: list[tuple[KernelProfile, ...] | None] = [None] * len(programs)
        try:
            with self._context() as context:
                return run_batch(self._zygote, self._ncu, programs, context, self._gpu, self._worker)
        except RuntimeError as error:  # the sandbox has ended, or the GPU has no room for inputs
            words = f"the profiler cannot start: {str(error).splitlines()[0]}"
            return Answer(nothing, [Outcome()] * len(programs), Complaint(words))

    def _remember(self, why: Complaint, *, has_counters: bool) -> None:
        """A complaint that lasts, or that has come too often in a row, is the answer from now on."""
        self._n_failures = 0 if has_counters else self._n_failures + 1
        if not has_counters and (why.is_lasting or self._n_failures >= MAX_FAILURES):
            self._lasting = why.words


def _is_worth_another(answer: Answer) -> bool:
    """Whether the programs whose turn did not come may have better luck: without counters, only if one of the others
    was in the way."""
    if answer.complaint is None:
        return True
    return not answer.complaint.is_lasting and any(outcome.is_fatal or outcome.error for outcome in answer.outcomes)


def _settled(launches: tuple[KernelProfile, ...] | None, outcome: Outcome, known: Profile | None) -> Profile | None:
    """The profile of a program that need not be run again; None for one whose turn did not come."""
    if outcome.is_fatal:
        return without_counters(known, "it ended the process in which it was profiled")
    if outcome.error:
        return without_counters(known, f"it failed under the profiler: {outcome.error}")
    if launches is None:
        return None
    try:
        return _completed(combine(launches), known)
    except ProfileError as error:
        return without_counters(known, error.message)


def _completed(profile: Profile, known: Profile | None) -> Profile:
    """With the spilled bytes of the compiler, which no counter tells."""
    if known is None or profile.spill_bytes is not None:
        return profile
    return profile.model_copy(update={"spill_bytes": known.spill_bytes})


def without_counters(known: Profile | None, why: str) -> Profile:
    """What is known of a program without counters, and why there are none."""
    return (known or Profile(source="none")).model_copy(update={"note": why})
