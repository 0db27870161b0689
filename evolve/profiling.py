"""Why a program in a file is not faster: the library twin of `evolve profile`. Judges nothing, keeps nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from db.errors import SeedError
from db.measures import classify
from db.profile import BottleneckReport, Profile
from db.records import Candidate, Capture, DeviceKind, Hardware, Problem, Record
from evaluators.evaluator import Evaluator, EvaluatorSettings
from evaluators.hardware import load_hardware
from evaluators.opening import open_evaluator
from evaluators.preparer import Preparer
from evaluators.problems import load_problem
from evaluators.profiling.batch import Source
from evaluators.profiling.diagnosis import architecture_of, diagnose
from evaluators.profiling.opening import open_profiler
from evaluators.profiling.profiler import Profiler
from evaluators.profiling.scores import dominant_launch
from evolve.checking import candidate_of, read_program
from evolve.device import resolve_device
from islands.operators.freeze import freeze_autotune

_RESOURCES = ("n_registers", "spill_bytes", "shared_bytes", "occupancy", "occupancy_limiter")


class ProfileResult(Record):
    """What limits the program of a file; of several configurations of `@triton.autotune`, the fastest."""

    problem: str
    device: DeviceKind
    hardware: Hardware  # that it was profiled on, or that it is modelled for
    profile: Profile
    report: BottleneckReport
    n_configurations: int = 1

    @property
    def is_known(self) -> bool:
        """Whether there is a profile at all; if not, its note says why."""
        return self.profile.source != "none"


def profile_file(
    file: Path,
    problem: str,
    *,
    shapes: Mapping[str, int | float] | None = None,
    device: Literal["auto", "cuda", "cpu"] = "auto",
    settings: EvaluatorSettings | None = None,
) -> ProfileResult:
    """Profile the program in `file` on the timed workload of a problem (a suite name or a file).

    On a GPU by its counters; without a GPU, or where counters are not to be had, from the compiled kernels and a model
    of the GPU.

    Raises:
        EvolveError: the file cannot be read, the problem is none, the device is not there.
    """
    source = read_program(file)
    loaded = load_problem(problem, sizes=dict(shapes or {}))
    candidates = [candidate_of(n, text, loaded, file) for n, text in enumerate(freeze_autotune(source))]
    settings = settings or EvaluatorSettings()
    where = resolve_device(device)
    if where is DeviceKind.CPU:
        return _modelled(loaded, candidates, settings)
    counted = _counted(loaded, candidates, settings)
    if counted.profile.source == "ncu":
        return counted
    settings = settings.model_copy(update={"target": counted.hardware.target})
    modelled = _modelled(loaded, candidates, settings)
    note = counted.profile.note
    profile = modelled.profile.model_copy(update={"note": "; ".join(filter(None, (note, modelled.profile.note)))})
    return modelled.model_copy(update={"device": where, "profile": profile})


def _counted(problem: Problem, candidates: Sequence[Candidate], settings: EvaluatorSettings) -> ProfileResult:
    """By counters of the GPU that is here."""
    with open_profiler(problem, settings) as (profiler, hardware):
        return read_counters(problem, candidates, settings, profiler, hardware)


def read_counters(
    problem: Problem,
    candidates: Sequence[Candidate],
    settings: EvaluatorSettings,
    profiler: Profiler,
    hardware: Hardware,
) -> ProfileResult:
    """By a profiler's counters and by what the compiler says, which alone knows how much a thread spills."""
    with contextlib.closing(Preparer(problem, settings, hardware, keeps_cache=False)) as preparer:
        captures = [preparer.prepare(candidate).captures for candidate in candidates]
    sources = [Source(c.source, c.entry_point.value) for c in candidates]
    profiles = profiler.profile(sources, [_compiled(found) for found in captures])
    return _fastest(problem, DeviceKind.CUDA, hardware, settings, candidates, profiles, captures)


def _compiled(captures: Sequence[Capture]) -> Profile | None:
    """Resources of the dominant launch; None where the program could not be captured."""
    launch = dominant_launch(captures)
    if launch is None:
        return None
    return Profile(source="compiled", **{name: getattr(launch, name) for name in _RESOURCES})


def _modelled(problem: Problem, candidates: Sequence[Candidate], settings: EvaluatorSettings) -> ProfileResult:
    """By the model of the target."""
    try:
        evaluator = _opened(problem, candidates, settings)
    except SeedError as error:
        hardware = load_hardware(settings.target)
        nothing = [Profile(source="none", note=str(error.__cause__ or error.message))] * len(candidates)
        return _fastest(problem, DeviceKind.CPU, hardware, settings, candidates, nothing, [()] * len(candidates))
    with evaluator:
        profiles = evaluator.profile(candidates)
        captures = [evaluator.prepare(candidate).captures for candidate in candidates]
        return _fastest(problem, DeviceKind.CPU, evaluator.hardware, settings, candidates, profiles, captures)


def _opened(problem: Problem, candidates: Sequence[Candidate], settings: EvaluatorSettings) -> Evaluator:
    """Compares nothing: where the problem has no baseline that can be modelled, the file is its own.

    Raises `SeedError` where the file cannot be modelled either, from what it says.
    """
    try:
        return open_evaluator(problem, settings, DeviceKind.CPU)
    except SeedError:
        of_file = problem.model_copy(update={"seeds": tuple(c.source for c in candidates)})
        return open_evaluator(of_file, settings, DeviceKind.CPU)


def _fastest(
    problem: Problem,
    device: DeviceKind,
    hardware: Hardware,
    settings: EvaluatorSettings,
    candidates: Sequence[Candidate],
    profiles: Sequence[Profile],
    captures: Sequence[tuple[Capture, ...]],
) -> ProfileResult:
    def rank(n: int) -> tuple[bool, float]:
        return profiles[n].source == "none", profiles[n].duration_us or float("inf")

    best = min(range(len(profiles)), key=rank)
    profile = profiles[best]
    report = diagnose(
        profile,
        candidates[best].source,
        captures[best],
        architecture_of(hardware.compute_capability),
        classify(profile.compute_sol_pct, profile.memory_sol_pct),
        settings.precision,
    )
    return ProfileResult(
        problem=problem.name,
        device=device,
        hardware=hardware,
        profile=profile,
        report=report,
        n_configurations=len(candidates),
    )
