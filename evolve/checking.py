"""One file through all gates, without a search: the library twin of `evolve check`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from db.errors import ConfigError, SeedError
from db.records import Candidate, DeviceKind, Hardware, Lineage, Problem, Record, Verdict
from evaluators.evaluator import BaselineReport, Evaluator
from evaluators.opening import open_evaluator
from evaluators.problems import load_problem
from evaluators.settings import EvaluatorSettings
from evolve.device import resolve_device
from islands.operators.freeze import freeze_autotune

CHECK_RUN = "check"  # the run id of candidates that belong to no run


class CheckResult(Record):
    """The answers for one file; one verdict for each configuration of `@triton.autotune`, one in all without it."""

    problem: Problem
    device: DeviceKind
    hardware: Hardware
    baseline: BaselineReport
    verdicts: tuple[Verdict, ...]

    @property
    def best(self) -> Verdict:
        """The fastest correct verdict, else the first."""
        return min(self.verdicts, key=lambda v: v.latency.device_us if v.latency else float("inf"))

    @property
    def is_correct(self) -> bool:
        """Whether some configuration passed every gate that a program must pass; speed is not one of them."""
        return self.best.is_correct


def check_file(
    file: Path,
    problem: str,
    *,
    shapes: Mapping[str, int | float] | None = None,
    device: Literal["auto", "cuda", "cpu"] = "auto",
    settings: EvaluatorSettings | None = None,
) -> CheckResult:
    """Judge the program in `file` for a problem (a suite name or a file). Nothing is kept.

    Raises:
        EvolveError: the file cannot be read, the problem is none, the device is not there.
    """
    source = read_program(file)
    loaded = load_problem(problem, sizes=dict(shapes or {}))
    where = resolve_device(device)
    with _opened(loaded, source, settings or EvaluatorSettings(), where) as evaluator:
        baseline = evaluator.baseline
        candidates = [candidate_of(n, text, loaded, file) for n, text in enumerate(freeze_autotune(source))]
        verdicts = tuple(evaluator.judge(candidate) for candidate in candidates)
        return CheckResult(
            problem=loaded, device=where, hardware=evaluator.hardware, baseline=baseline, verdicts=verdicts
        )


def _opened(problem: Problem, source: str, settings: EvaluatorSettings, device: DeviceKind) -> Evaluator:
    """Where the problem has no program of its own and its reference cannot be modelled, the file is the baseline."""
    try:
        return open_evaluator(problem, settings, device)
    except SeedError:
        if problem.seeds:
            raise
        return open_evaluator(problem.model_copy(update={"seeds": (source,)}), settings, device)


def read_program(file: Path) -> str:
    """The text of a file. Raises `ConfigError` where there is none."""
    try:
        return file.read_text()
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}", "give a file with a program") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is no text", "give a Python file with a program") from None


def candidate_of(n: int, source: str, problem: Problem, file: Path) -> Candidate:
    """A candidate that belongs to no run: configuration `n` of the program in a file."""
    return Candidate(
        candidate_id=f"{CHECK_RUN}-0-{n:06d}",
        run_id=CHECK_RUN,
        problem_id=problem.problem_id,
        island=0,
        source=source,
        entry_point=problem.entry_point,
        lineage=Lineage(operator="seed", seeded_from=str(file)),
    )
