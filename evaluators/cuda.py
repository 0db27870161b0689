"""Judging on one GPU: the judge holds inputs and what is expected of them, candidates run in children of a zygote."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch

from db.errors import DeviceError
from db.records import Candidate, PrecisionClass, Problem, Profile, Verdict
from evaluators.baselines import Baseline, BaselineProcess
from evaluators.cascade import Cascade, Refusal
from evaluators.evaluator import BaselineReport, Evaluator, EvaluatorSettings, Prepared
from evaluators.gpu_judgement import Bench, Judgement
from evaluators.gpu_lock import GpuLock
from evaluators.gpu_session import Slot
from evaluators.hardware import detect_hardware
from evaluators.input_sets import ReferenceSets, n_bytes_of, sets_of
from evaluators.measured_profile import measured_profile, work_of
from evaluators.precision import apply_precision
from evaluators.preparer import Preparer, discard_cache
from evaluators.profiling.batch import Source
from evaluators.profiling.inputs import shared_inputs
from evaluators.profiling.profiler import Profiler
from evaluators.sandbox.client import Zygote
from evaluators.session_pool import LIMITS, PRELOAD, OpenSession, SessionPool
from evaluators.timing import plan_rotation
from evaluators.versions import software_versions

KEPT_SHARE = 0.3  # of free device memory: inputs and expected values
SLOT_SHARE = 0.3  # of free device memory: memory shared with children
N_SPARE_SLOTS = 4  # sessions that get their context while all others are in use
GPU_DEADLINE_S = 10.0  # for one request while nobody else can use the GPU, beside time for slow problems
DEADLINE_BASELINES = 2000  # as many runs of the baseline are waited for on top


class CudaEvaluator(Evaluator):
    """Measures candidates of one problem on the first visible GPU."""

    def __init__(self, problem: Problem, settings: EvaluatorSettings) -> None:
        """Draws inputs, runs the reference, measures the baselines and opens the first sessions.

        Raises:
            DeviceError: no GPU, or the problem does not fit in its memory.
        """
        if not torch.cuda.is_available():
            raise DeviceError("no CUDA device is visible", "use --device cpu, or see `evolve doctor`")
        self.problem = problem
        self.settings = settings
        self.hardware = detect_hardware(0)
        self._uuid = str(torch.cuda.get_device_properties(0).uuid)
        self._gpu = GpuLock(self._uuid)
        self._resources = contextlib.ExitStack()
        self._preparer: Preparer | None = None
        self._preparing = threading.Lock()
        try:
            self._open()
        except torch.OutOfMemoryError as error:
            self.close()
            raise DeviceError(f"the problem does not fit on the GPU: {error}", "use smaller sizes: --shape") from error
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        # both import torch while inputs are drawn and baselines are compiled
        starting = ThreadPoolExecutor(1).submit(self._start_zygote)
        self._resources.callback(lambda: starting.result().close())
        process = BaselineProcess()
        self._resources.callback(process.kill)
        self._bench = self._make_bench(process)
        slots = self._make_slots()
        self._resources.callback(process.kill)  # before memory that it has mapped is freed
        slots[0].reset()
        report = self._bench.baseline.open(slots[0], self._bench.rotation)
        deadline_s = GPU_DEADLINE_S + DEADLINE_BASELINES * report.device_us * 1e-6
        deadline_s = min(deadline_s, self.settings.evaluate_deadline_s)
        zygote = starting.result()
        self._pool = SessionPool(
            zygote,
            slots[1:],
            self.hardware,
            self.settings.precision,
            deadline_s=deadline_s,
            load_deadline_s=self.settings.prepare_deadline_s,
        )
        self._resources.callback(self._pool.close)
        inputs = partial(shared_inputs, self._bench.sets, self.settings.precision)
        self._profiler = Profiler(zygote, self._gpu, inputs)

    def _start_zygote(self) -> Zygote:
        """Its children see this GPU alone."""
        return Zygote(interpret=False, preload=PRELOAD, limits=LIMITS, gpu=f"GPU-{self._uuid}", renews=True)

    def _make_bench(self, process: BaselineProcess) -> Bench:
        apply_precision(PrecisionClass.REFERENCE)  # what is expected does not depend on the class that is searched
        budget = int(torch.cuda.mem_get_info()[0] * KEPT_SHARE)
        wanted = sets_of(self.problem, [self.problem.small, self.problem.full], self.settings.secret_seed)
        sets = ReferenceSets(self.problem, wanted, "cuda", budget)
        self._resources.callback(sets.close)
        first = sets.drawn(next(s for s in sets.sets if s.workload.role == "full"))
        work = work_of(sets.references[self.problem.full.name], first, self.settings.precision)
        output_bytes = n_bytes_of(first.expected)
        torch.cuda.empty_cache()
        return Bench(
            problem=self.problem,
            hardware=self.hardware,
            precision=self.settings.precision,
            sets=sets,
            work=work,
            rotation=plan_rotation(work.moved_bytes, output_bytes, self.hardware.l2_bytes, self.hardware.dram_gb_s),
            baseline=Baseline(
                self.problem, self.hardware, self.settings.precision, process, self._gpu, self.settings.baselines
            ),
        )

    def _make_slots(self) -> list[Slot]:
        """One slot for the baseline and one for each session, as many as fit the budget; two at least."""
        budget = int(torch.cuda.mem_get_info()[0] * SLOT_SHARE)
        slots: list[Slot] = []
        while len(slots) < self.settings.n_concurrent_sessions + N_SPARE_SLOTS + 1:
            slot = Slot(self._bench.sets, self._bench.rotation.n_sets)
            self._resources.callback(slot.close)
            slots.append(slot)
            budget -= slot.inputs.n_bytes + slot.outputs.n_bytes
            if len(slots) >= 2 and budget < slot.inputs.n_bytes + slot.outputs.n_bytes:
                break
        return slots

    @property
    def baseline(self) -> BaselineReport:
        return self._bench.baseline.report

    @property
    def isolation(self) -> str:
        """How children are isolated here: "namespaces" or "subreaper"."""
        return self._pool.isolation

    @property
    def missing(self) -> tuple[str, ...]:
        return self._pool.missing

    def prepare(self, candidate: Candidate) -> Prepared:
        with self._preparing:
            if self._preparer is None:
                extern_ops = self.baseline.extern_ops
                self._preparer = Preparer(self.problem, self.settings, self.hardware, extern_ops=extern_ops)
                self._resources.callback(self._preparer.close)
        return self._preparer.prepare(candidate)

    def evaluate(self, prepared: Prepared) -> Verdict:
        if prepared.verdict is not None:
            return prepared.verdict
        cascade = Cascade(prepared, self.hardware, software_versions(), self.settings.precision)
        try:
            with contextlib.ExitStack() as lent:
                with cascade.phase("wait_session"):
                    session = lent.enter_context(self._pool.take())
                return self._judge(cascade, session)
        except Refusal as refusal:
            return cascade.failed(refusal)
        finally:
            discard_cache(prepared)

    def _judge(self, cascade: Cascade, session: OpenSession) -> Verdict:
        cascade.seconds["context"] = session.context_s
        judgement = Judgement(self._bench, cascade, session)
        judgement.load()
        with cascade.phase("wait_gpu"):
            self._gpu.acquire()
        try:
            torch.cuda.set_device(0)
            session.allow(self.settings.evaluate_deadline_s)
            latency = judgement.decide()
        finally:
            self._gpu.release()
        profile = measured_profile(self._bench.work, latency, cascade.prepared.captures, self.hardware)
        return cascade.correct(latency, profile)

    def profile(self, candidates: Sequence[Candidate], provisional: Sequence[Profile] = ()) -> list[Profile]:
        sources = [Source(candidate.source, candidate.entry_point.value) for candidate in candidates]
        return self._profiler.profile(sources, provisional)

    def close(self) -> None:
        self._resources.close()
