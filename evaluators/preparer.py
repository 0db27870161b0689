"""Preparation: all that is decided about a candidate before a device is needed.

The host-code policy, then one forward on fake tensors per workload, which compiles every kernel for the target and
records what is launched. Runs on CPU cores, several candidates at once, each in a sandboxed child of its own. Light:
torch is imported only where nobody has said what an evaluator knows of the workloads.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from db.hashing import content_hash
from db.records import Candidate, Capture, Gate, GateResult, Hardware, Problem, Verdict
from evaluators.capture.capture import CaptureFailed, capture_with_cache
from evaluators.cascade import Cascade, Refusal
from evaluators.evaluator import EvaluatorSettings, Prepared
from evaluators.forwards import Forward, forwards_of
from evaluators.gates.static import check_capture, check_policy
from evaluators.modeller import Modeller
from evaluators.problems.sizes import with_sizes
from evaluators.sandbox.client import Zygote
from evaluators.sandbox.workspace import remove_folder
from evaluators.versions import software_versions
from evaluators.zygotes import start_compiler, start_interpreter

MAX_KEPT = 256  # folders with compiled kernels; an older one is compiled again


class Preparer:
    """Prepares candidates of one problem for one GPU. Any thread may prepare; children run side by side."""

    def __init__(
        self,
        problem: Problem,
        settings: EvaluatorSettings,
        hardware: Hardware,
        *,
        extern_ops: Sequence[str] = (),
        keeps_cache: bool = True,
        zygote: Zygote | None = None,
        forwards: Sequence[Forward] = (),
        versions: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            extern_ops: operations of libraries that the compiled baseline calls, which host code may call as well.
            keeps_cache: leave what was compiled in `Prepared.cache_dir`, for an evaluator on this machine.
            zygote: of `start_compiler`, when it was started ahead; closed with the preparer.
            forwards: as `forwards_of` finds them, which takes torch; empty: found here.
            versions: of the software that verdicts rest on; None: of what is installed, which takes torch as well.
        """
        self._problem = problem
        self._settings = settings
        self._hardware = hardware
        self._extern_ops = tuple(extern_ops)
        self._keeps_cache = keeps_cache
        self.forwards = tuple(forwards) or forwards_of(problem, hardware)
        self._versions = dict(software_versions() if versions is None else versions)
        self._kept: deque[str] = deque()
        self._zygote = zygote or start_compiler()
        self._interpreter = start_interpreter() if settings.pre_rank else None
        self._modeller: Modeller | None = None
        if self._interpreter is not None:
            deadline_s = settings.prepare_deadline_s
            self._modeller = Modeller(problem, hardware, self._interpreter, deadline_s=deadline_s)

    def prepare(self, candidate: Candidate) -> Prepared:
        """The candidate with its captures and fingerprint, or with the verdict of the gate that refused it."""
        start = time.perf_counter()
        prepared = Prepared(candidate=candidate)
        try:
            policy = check_policy(candidate.source, candidate.entry_point, self._extern_ops)
            if not policy.passed:
                raise Refusal.of(policy)
            prepared = self._captured(prepared)
        except Refusal as refusal:
            prepared = prepared.model_copy(update={"verdict": self._refused(prepared, refusal, start)})
        return prepared.model_copy(update={"seconds": {"prepare": time.perf_counter() - start}})

    def capture_reference(self) -> Capture:
        """What the reference does at the timed workload, captured as a candidate is.

        Raises:
            CaptureFailed: fake tensors cannot run it.
        """
        full = self._problem.full
        source = with_sizes(self._problem.source, full.sizes)
        payload = {"source": source, "entry_point": "Model", "cache_from": "", **self.forwards[0]}
        deadline_s = self._settings.prepare_deadline_s
        return capture_with_cache(self._zygote, payload, deadline_s=deadline_s, keep_workspace=False)[0]

    def close(self) -> None:
        self._zygote.close()
        if self._interpreter is not None:
            self._interpreter.close()

    def _captured(self, prepared: Prepared) -> Prepared:
        captures, cache = [], ""
        for forward in self.forwards:
            capture, cache = self._capture(prepared.candidate, forward, cache)
            captures.append(capture)
        for capture in captures:
            answer = check_capture(capture, self._extern_ops, self._hardware)
            if not answer.passed:
                _discard(cache)
                raise Refusal.of(answer)
        fingerprint = content_hash(*(capture.fingerprint for capture in captures))
        gate = GateResult(gate=Gate.STATIC, passed=True, evidence=_resources(captures))
        found = {"captures": tuple(captures), "fingerprint": fingerprint, "gates": (gate,), "cache_dir": cache}
        return prepared.model_copy(update={**found, "modelled_us": self._modelled_us(prepared.candidate, captures[0])})

    def _modelled_us(self, candidate: Candidate, capture: Capture) -> float | None:
        """What the model expects, where it is asked and has an answer."""
        if self._modeller is None:
            return None
        try:
            return self._modeller.model(candidate, capture).device_us
        except (CaptureFailed, ValueError):
            return None

    def _capture(self, candidate: Candidate, forward: dict[str, Any], cache: str) -> tuple[Capture, str]:
        """One forward, captured; starts from the Triton cache of the one before and says where its own is."""
        payload = {"source": candidate.source, "entry_point": candidate.entry_point.value, **forward}
        deadline_s, keeps = self._settings.prepare_deadline_s, self._keeps_cache
        try:
            capture, folder = capture_with_cache(
                self._zygote, {**payload, "cache_from": cache}, deadline_s=deadline_s, keep_workspace=keeps
            )
        except CaptureFailed as failed:
            # what fake tensors cannot do makes the host wait for data, which the policy refuses where it is seen
            waits = "; its launches depend on data that the host has to read" if failed.is_unsupported else ""
            raise Refusal(Gate.STATIC, f"{failed.reason}{waits}") from failed
        finally:
            _discard(cache)
        return capture, self._keep(str(folder)) if keeps else ""

    def _keep(self, cache: str) -> str:
        """Remembers a folder that nobody may ever ask for: a duplicate is answered from the archive."""
        self._kept.append(cache)
        if len(self._kept) > MAX_KEPT:
            _discard(self._kept.popleft())
        return cache

    def _refused(self, prepared: Prepared, refusal: Refusal, start: float) -> Verdict:
        timed = prepared.model_copy(update={"seconds": {"prepare": time.perf_counter() - start}})
        return Cascade(timed, self._hardware, self._versions, self._settings.precision).failed(refusal)


def _resources(captures: list[Capture]) -> dict[str, object]:
    """What the compiler says of the launches, as evidence of the static gate."""
    launches = [launch for capture in captures for launch in capture.launches]
    return {
        "n_launches": len(captures[0].launches),
        "n_registers": max((launch.n_registers for launch in launches), default=0),
        "spill_bytes": max((launch.spill_bytes for launch in launches), default=0),
        "shared_bytes": max((launch.shared_bytes for launch in launches), default=0),
    }


def discard_cache(prepared: Prepared) -> None:
    """Removes the compiled kernels that came with a prepared candidate, once they are of no use any more."""
    _discard(prepared.cache_dir)


def _discard(cache: str) -> None:
    if cache:
        remove_folder(Path(cache).parent)
