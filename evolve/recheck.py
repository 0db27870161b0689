"""The best programs of an archive before the judge again, in fresh processes: the library twin of `evolve recheck`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

from db.errors import ArchiveError, ProblemError, UntrustedError
from db.reading import ArchiveReader
from db.records import DeviceKind, Evaluation, LatencyKind, Outcome, PrecisionClass, Problem, Record, Verdict
from evaluators.opening import open_evaluator
from evaluators.problems import load_problem, suite_names
from evaluators.settings import EvaluatorSettings
from evolve.device import resolve_device

TOLERANCE = 0.05  # a speed-up that shrinks by less than this share holds

# the last judgement of every correct program, itself no repetition, the fastest of each grid
_FASTEST = """
WITH judged AS (
    SELECT grid, problem_id, hardware_id, latency_kind, precision, program_id,
        max(seq) AS seq, arg_max(latency_us, seq) AS latency_us
    FROM evaluations WHERE outcome = 'correct' AND duplicate_of = '' AND {condition}
    GROUP BY ALL
)
SELECT problem_id, hardware_id, latency_kind, precision, program_id FROM judged
QUALIFY row_number() OVER (PARTITION BY grid ORDER BY latency_us, program_id) <= {top}
ORDER BY problem_id, hardware_id, latency_kind, precision, latency_us, program_id
"""


class Grid(NamedTuple):
    """Programs that may be compared: of one problem, on one GPU, by one kind of latency, in one precision class."""

    problem_id: str
    hardware_id: str
    latency_kind: LatencyKind
    precision: PrecisionClass


class Rechecked(Record):
    """What an archive claims of a program, and what judging it again found."""

    problem_name: str
    hardware_id: str
    latency_kind: LatencyKind
    precision: PrecisionClass
    program_id: str
    claimed_us: float
    claimed_speedup: float
    verdict: Verdict

    @property
    def speedup(self) -> float | None:
        """The speed-up that was found now; None for a program that a gate refused."""
        return self.verdict.latency.speedup if self.verdict.latency else None

    @property
    def holds(self) -> bool:
        """Whether it is correct, and its speed-up no more than 5% smaller than claimed."""
        return self.speedup is not None and self.speedup >= (1 - TOLERANCE) * self.claimed_speedup


class Skipped(Record):
    """Programs that this machine cannot judge as they were, and why."""

    problem_name: str
    hardware_id: str
    latency_kind: LatencyKind
    precision: PrecisionClass
    n_programs: int
    reason: str


class RecheckReport(Record):
    """Every program that was judged again, grid by grid, the fastest of each first."""

    rechecked: tuple[Rechecked, ...]
    skipped: tuple[Skipped, ...] = ()

    @property
    def n_held(self) -> int:
        return sum(one.holds for one in self.rechecked)

    @property
    def share_held(self) -> float | None:
        """Of the speed-ups that were judged again; None when there were none."""
        return self.n_held / len(self.rechecked) if self.rechecked else None


def recheck(
    archive: ArchiveReader,
    *,
    top: int = 20,
    problem: str | None = None,
    hardware_id: str | None = None,
    device: Literal["auto", "cuda", "cpu"] = "auto",
    settings: EvaluatorSettings | None = None,
    trust: bool = False,
    watch: Callable[[Rechecked], None] = lambda _: None,
) -> RecheckReport:
    """Runs every gate again on the `top` fastest programs of each grid.

    Modelled latencies are modelled again for the GPU that they were for, on the CPU; measured ones are measured again,
    beside baselines of this session, on a GPU of the same name. Nothing is written.

    Args:
        settings: in the place of those that each program was judged by.
        trust: run references that are no built-in problem's, too. They are code of the archive, and run as the user.
        watch: called with each program as it has been judged.

    Raises:
        UntrustedError: a reference would have to be trusted. Nothing has been run.
        NotFoundError: `problem` is not in the archive.
        DeviceError: CUDA was asked for and there is no GPU.
    """
    where = resolve_device(device)
    rechecked: list[Rechecked] = []
    skipped: list[Skipped] = []
    grids = list(_grids(archive, top, problem, hardware_id))
    if not trust:
        _check_trusted(archive, [grid for grid, _ in grids if not _why_not(grid, where)])
    for grid, evaluations in grids:
        reason = _why_not(grid, where)
        if reason:
            skipped.append(_skipped(archive, grid, len(evaluations), reason))
            continue
        for chosen, group in groupby(evaluations, key=lambda one: settings or _settings_of(archive, one)):
            for one in _judge_again(archive, grid, list(group), where, chosen):
                rechecked.append(one)
                watch(one)
    return RecheckReport(rechecked=tuple(rechecked), skipped=tuple(skipped))


def _check_trusted(archive: ArchiveReader, grids: Sequence[Grid]) -> None:
    for problem in map(archive.problem, dict.fromkeys(grid.problem_id for grid in grids)):
        if not _is_built_in(problem):
            raise UntrustedError(
                f"problem {problem.name!r} of {archive.path} is none of the built-in ones, and its reference would"
                " run as you, outside the sandbox",
                f"read it (evolve query \"SELECT record->>'source' FROM problems WHERE problem_id ="
                f" '{problem.problem_id}'\" --archive {archive.path}), then add --trust",
            )


def _is_built_in(problem: Problem) -> bool:
    """Whether the problem is one of the suite, at any sizes: the same reference, workloads and tolerances."""
    if problem.name not in suite_names():
        return False
    try:
        own = load_problem(problem.name, sizes=problem.full.sizes)
    except ProblemError:
        return False
    return own.problem_id == problem.problem_id


def _settings_of(archive: ArchiveReader, evaluation: Evaluation) -> EvaluatorSettings:
    """How the run of an evaluation judged, on secret inputs of now.

    Raises:
        ArchiveError: what is stored of that is no such settings.
    """
    stored = archive.run(evaluation.candidate.run_id).config.get("judging", {})
    try:
        return EvaluatorSettings.model_validate(stored).model_copy(update={"secret_seed": None})
    except ValueError as error:
        reason = " ".join(str(error).split())[:200]
        raise ArchiveError(f"a run in {archive.path} has no such settings of judging: {reason}", "") from error


def _grids(
    archive: ArchiveReader, top: int, problem: str | None, hardware_id: str | None
) -> Iterator[tuple[Grid, list[Evaluation]]]:
    """Each grid with the judgements that its fastest programs stand on."""
    name = archive.problem(problem).name if problem is not None else None
    ids = [found.problem_id for found in archive.problems() if name is None or found.name == name]
    condition = f"problem_id IN ({', '.join('?' * len(ids)) or 'NULL'})"
    condition += " AND hardware_id = ?" if hardware_id else ""
    sql = _FASTEST.format(condition=condition, top=int(top))
    rows = archive.query(sql, [*ids, *([hardware_id] if hardware_id else [])]).rows
    for key, group in groupby(rows, key=lambda row: row[:4]):
        grid = Grid(key[0], key[1], LatencyKind(key[2]), PrecisionClass(key[3]))
        yield grid, [_judged_in(archive, grid, row[4]) for row in group]


def _judged_in(archive: ArchiveReader, grid: Grid, program_id: str) -> Evaluation:
    """The last judgement of a program in a grid."""
    return [e for e in archive.evaluations_of(program_id) if _grid_of(e) == grid and not e.verdict.duplicate_of][-1]


def _grid_of(evaluation: Evaluation) -> Grid | None:
    verdict = evaluation.verdict
    if verdict.latency is None:
        return None
    return Grid(verdict.problem_id, verdict.hardware_id, verdict.latency.kind, verdict.precision)


def _why_not(grid: Grid, device: DeviceKind) -> str:
    """Why this machine cannot judge a grid again; empty when it can."""
    if grid.latency_kind is LatencyKind.MODELLED:
        if device is DeviceKind.CUDA:
            return "modelled: judge it again with --device cpu"
        return "" if _target_of(grid.hardware_id) else f"no GPU of the hardware table is {grid.hardware_id}"
    if device is DeviceKind.CPU:
        return f"measured: judge it again on a machine with {grid.hardware_id}"
    from evaluators.hardware import detect_hardware

    own = detect_hardware().hardware_id
    return "" if own == grid.hardware_id else f"measured on {grid.hardware_id}, this machine has {own}"


def _target_of(hardware_id: str) -> str | None:
    from evaluators.hardware import load_hardware, target_names

    return next((name for name in target_names() if load_hardware(name).hardware_id == hardware_id), None)


def _judge_again(
    archive: ArchiveReader,
    grid: Grid,
    evaluations: Sequence[Evaluation],
    device: DeviceKind,
    settings: EvaluatorSettings,
) -> Iterator[Rechecked]:
    problem = archive.problem(grid.problem_id)
    target = _target_of(grid.hardware_id) or settings.target
    chosen = settings.model_copy(update={"precision": grid.precision, "target": target})
    with open_evaluator(problem, chosen, device) as evaluator:
        for evaluation in evaluations:
            claimed = evaluation.verdict.latency
            assert claimed is not None and evaluation.verdict.outcome is Outcome.CORRECT
            yield Rechecked(
                problem_name=problem.name,
                hardware_id=grid.hardware_id,
                latency_kind=grid.latency_kind,
                precision=grid.precision,
                program_id=evaluation.verdict.program_id,
                claimed_us=claimed.device_us,
                claimed_speedup=claimed.speedup,
                verdict=evaluator.judge(evaluation.candidate),
            )


def _skipped(archive: ArchiveReader, grid: Grid, n_programs: int, reason: str) -> Skipped:
    return Skipped(
        problem_name=archive.problem(grid.problem_id).name,
        hardware_id=grid.hardware_id,
        latency_kind=grid.latency_kind,
        precision=grid.precision,
        n_programs=n_programs,
        reason=reason,
    )
