"""Modelled latency against measured latency, and the fit of the model's constants.

    python -m benchmarks.calibration                                   # the variants stored here, no GPU needed
    python -m benchmarks.calibration ARCHIVE... --save VARIANTS        # trace what runs on a GPU have measured
    python -m benchmarks.calibration --fit --hold-out swiglu,rms_norm  # constants from the problems that are left

A variant is a correct program that a run has timed with a cold L2, no duplicate of another. Its captured launches are
those of the archive, under the Triton that was measured; its traces are made here, on the CPU, at 0.1 s each. What
counts is the rank correlation within a problem: without a GPU nothing else is compared.

`--fit` searches constants that give high rank correlations and small errors on the problems that are not held out, by
steps along one constant at a time; the result is printed, and `evaluators/model/constants.py` is edited by hand.
"""

from __future__ import annotations

import argparse
import gzip
import math
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from db.live import open_for_reading
from db.records import Capture, Evaluation, Launch, Outcome, Problem, Record
from evaluators.capture.capture import TRACE_PRELOAD, CaptureFailed, trace_candidate
from evaluators.capture.traffic import LaunchTrace
from evaluators.forwards import forward_of
from evaluators.hardware import load_hardware
from evaluators.model.constants import FITTED, ModelConstants
from evaluators.model.latency import model_latency
from evaluators.sandbox.client import Zygote

STORED = Path(__file__).parent / "results" / "calibration" / "variants.jsonl.gz"
DEADLINE_S = 60.0
NOISE = 0.01  # two timings of one program differ by as much
WORST = 4  # variants listed with --outliers
MEASURED_CONSTANTS = ("read_gain", "write_cost", "l2_gone_at")  # not fitted; see ModelConstants
LEAST = {"wave_norm": 1.0, "least_overlap": 1.0, "most_overlap": 2.0}
DIGITS = 5  # that are kept of a traced figure

Floats = npt.NDArray[np.float64]


class Variant(Record):
    """One program: what was measured, and all that the model is told of it."""

    problem: str
    program_id: str
    technique: str
    target: str
    measured_us: float
    capture: Capture
    traces: tuple[LaunchTrace, ...]


class Agreement(NamedTuple):
    """How well modelled latencies follow measured ones. Errors are natural logarithms of modelled over measured."""

    rank_correlation: float
    rank_correlation_beyond_noise: float  # measured latencies rounded to steps of the noise
    median_error: float
    median_absolute_error: float
    mean_bounded_error: float


def main() -> None:
    arguments = _arguments()
    traced = [v for path in arguments.archives for v in trace_archive(path)]
    variants = _without_repeats(traced) or read_variants(arguments.variants)
    if arguments.save:
        write_variants(arguments.save, variants)
    problems = by_problem(variants)
    held_out = [name for name in arguments.hold_out.split(",") if name]
    constants = FITTED
    if arguments.fit:
        fitted_on = {name: of for name, of in problems.items() if name not in held_out}
        start = scrambled(FITTED, arguments.rng_seed) if arguments.scramble else FITTED
        constants = fit(fitted_on, start, seconds=arguments.seconds, rng_seed=arguments.rng_seed)
        print("\n".join(f"{name:24} {value:9.4g}" for name, value in constants._asdict().items()))
    print(table(problems, constants, held_out))
    for name, of_problem in problems.items() if arguments.outliers else ():
        print(f"\n{name}: measured and modelled rank\n{outliers(of_problem, constants)}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archives", nargs="*", type=Path, help="archives of runs on a GPU; none: --variants")
    parser.add_argument("--variants", type=Path, default=STORED, help="a file that --save has written")
    parser.add_argument("--save", type=Path, help="write what was traced")
    parser.add_argument("--fit", action="store_true", help="search constants; takes --seconds")
    parser.add_argument("--hold-out", default="", help="problems, by comma, that the fit does not see")
    parser.add_argument("--scramble", action="store_true", help="start the fit where each constant is off by up to two")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--rng-seed", type=int, default=0)
    parser.add_argument("--outliers", action="store_true", help="list the variants whose ranks differ most")
    return parser.parse_args()


# ------------------------------------------------------------------------------------------------------------ variants


def trace_archive(path: Path) -> list[Variant]:
    """Every measured variant of an archive, traced; those that cannot be traced are left out and named."""
    with open_for_reading(path) as archive:
        problems = {p.problem_id: p for p in archive.problems()}
        evaluations = [e for run in archive.runs() for e in archive.evaluations(run.run_id) if _is_measured(e)]
    found: dict[str, Variant] = {}
    with Zygote(interpret=True, preload=[*TRACE_PRELOAD]) as zygote:
        for evaluation in evaluations:
            verdict = evaluation.verdict
            if verdict.program_id in found:
                continue
            try:
                found[verdict.program_id] = _trace(zygote, evaluation, problems[verdict.problem_id])
            except CaptureFailed as failed:
                print(f"{path}: {verdict.program_id} is left out: {failed.reason}")
    return list(found.values())


def _without_repeats(variants: Sequence[Variant]) -> list[Variant]:
    """A program that several archives have counts once, as the first has measured it."""
    return list({(v.problem, v.program_id): v for v in reversed(variants)}.values())[::-1]


def _is_measured(evaluation: Evaluation) -> bool:
    verdict = evaluation.verdict
    is_first = not verdict.duplicate_of and evaluation.candidate.lineage.operator != "confirm"
    return verdict.outcome is Outcome.CORRECT and is_first and bool(verdict.captures) and verdict.latency is not None


def _trace(zygote: Zygote, evaluation: Evaluation, problem: Problem) -> Variant:
    candidate, verdict = evaluation.candidate, evaluation.verdict
    assert verdict.latency is not None
    capture = verdict.captures[0]
    hardware = load_hardware(capture.target)
    forward = forward_of(problem, problem.full, hardware)
    traces = trace_candidate(
        zygote,
        source=candidate.source,
        entry_point=candidate.entry_point.value,
        init_args=forward["init_args"],
        input_specs=forward["input_specs"],
        weight_specs=forward["weight_specs"],
        workload_name=forward["workload"],
        hardware=hardware,
        deadline_s=DEADLINE_S,
    )
    return Variant(
        problem=problem.name,
        program_id=verdict.program_id,
        technique=candidate.lineage.technique or candidate.lineage.operator,
        target=capture.target,
        measured_us=verdict.latency.device_us,
        capture=capture.model_copy(update={"launches": tuple(_bare(launch) for launch in capture.launches)}),
        traces=tuple(traces),
    )


def _bare(launch: Launch) -> Launch:
    """Without what the model does not read."""
    return launch.model_copy(update={"text_hash": "", "binding_hash": "", "constexprs": {}, "traffic": None})


def write_variants(path: Path, variants: Sequence[Variant]) -> None:
    """One line of JSON each, without defaults. The same variants always give the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as file:
        for variant in variants:
            file.write(_rounded(variant).model_dump_json(exclude_defaults=True).encode() + b"\n")


def _rounded(variant: Variant) -> Variant:
    return Variant.model_validate(_to_digits(variant.model_dump()))


def _to_digits(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _to_digits(item) for key, item in value.items()}
    return [_to_digits(item) for item in value] if isinstance(value, list | tuple) else value


def read_variants(path: Path) -> list[Variant]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [Variant.model_validate_json(line) for line in file]


def by_problem(variants: Sequence[Variant]) -> dict[str, list[Variant]]:
    """In the order of their names."""
    names = sorted({v.problem for v in variants})
    return {name: [v for v in variants if v.problem == name] for name in names}


# ----------------------------------------------------------------------------------------------------------- agreement


def modelled_us(variants: Sequence[Variant], constants: ModelConstants) -> Floats:
    """Shape (variants,)."""
    return np.array(
        [model_latency(v.capture, v.traces, load_hardware(v.target), constants).device_us for v in variants]
    )


def agreement(variants: Sequence[Variant], constants: ModelConstants) -> Agreement:
    """Of one problem's variants."""
    measured, modelled = np.array([v.measured_us for v in variants]), modelled_us(variants, constants)
    errors = np.log(modelled / measured)
    steps = np.round(np.log(measured) / NOISE)
    return Agreement(
        rank_correlation=rank_correlation(measured, modelled),
        rank_correlation_beyond_noise=rank_correlation(steps, modelled),
        median_error=float(np.median(errors)),
        median_absolute_error=float(np.median(np.abs(errors))),
        mean_bounded_error=float(np.mean(np.minimum(np.abs(errors), math.log(2)))),
    )


def rank_correlation(a: Floats, b: Floats) -> float:
    """Spearman's: the correlation of the ranks, of which equal values share the mean."""
    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])


def ranks(values: Floats) -> Floats:
    """From 0. Shape (values,)."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    middles = np.cumsum(counts) - (counts + 1) / 2
    result: Floats = middles[group]
    return result


def table(problems: dict[str, list[Variant]], constants: ModelConstants, held_out: Sequence[str] = ()) -> str:
    """A line for each problem, then medians over the fitted and the held-out ones."""
    found = {name: agreement(of, constants) for name, of in problems.items()}
    lines = [f"{'problem':22}    n  rank corr.  beyond noise  median error  median |error|"]
    for name, a in found.items():
        marker = "  held out" if name in held_out else ""
        lines.append(
            f"{name:22} {len(problems[name]):4} {a.rank_correlation:11.3f} {a.rank_correlation_beyond_noise:13.3f}"
            f" {math.expm1(a.median_error):+13.1%} {math.expm1(a.median_absolute_error):14.1%}{marker}"
        )
    fitted = [name for name in found if name not in held_out]
    for label, names in (("all", list(found)), ("fitted", fitted), ("held out", list(held_out))):
        correlations = [found[name].rank_correlation for name in names if name in found]
        if correlations and (label == "all" or held_out):
            lines.append(f"{label}: median {np.median(correlations):.3f}, worst {min(correlations):.3f}")
    return "\n".join(lines)


def outliers(variants: Sequence[Variant], constants: ModelConstants) -> str:
    """The variants whose modelled rank is furthest from the measured one."""
    modelled = modelled_us(variants, constants)
    measured_ranks, modelled_ranks = ranks(np.array([v.measured_us for v in variants])), ranks(modelled)
    furthest = np.argsort(-np.abs(modelled_ranks - measured_ranks))[:WORST]
    return "\n".join(
        f"  {measured_ranks[i]:4.0f} {modelled_ranks[i]:4.0f}  {variants[i].measured_us:8.1f} us measured "
        f"{modelled[i]:8.1f} us modelled  {variants[i].program_id} {variants[i].technique}"
        for i in furthest
    )


# ----------------------------------------------------------------------------------------------------------------- fit


def loss(problems: dict[str, list[Variant]], constants: ModelConstants) -> float:
    """What the fit makes small: missing rank correlation plus error, of at most a factor of two; mean over problems."""
    found = [agreement(of, constants) for of in problems.values()]
    return float(np.mean([1.0 - a.rank_correlation + a.mean_bounded_error for a in found]))


def fit(problems: dict[str, list[Variant]], start: ModelConstants, *, seconds: float, rng_seed: int) -> ModelConstants:
    """Steps along one constant at a time, up and down, by a factor that grows with success and shrinks without."""
    rng = random.Random(rng_seed)
    steps = {name: 0.3 for name in start._fields if name not in MEASURED_CONSTANTS}
    best, best_loss = start, loss(problems, start)
    until = time.monotonic() + seconds
    for name in _again_and_again(list(steps), until):
        tried = [_stepped(best, name, sign * steps[name] * rng.uniform(0.3, 1.0)) for sign in (1, -1)]
        losses = [loss(problems, constants) for constants in tried]
        if min(losses) < best_loss - 1e-6:
            best, best_loss = tried[losses.index(min(losses))], min(losses)
            steps[name] = min(0.6, steps[name] * 1.3)
        else:
            steps[name] = steps[name] * 0.6 if steps[name] > 0.01 else 0.1
    return best


def scrambled(constants: ModelConstants, rng_seed: int) -> ModelConstants:
    """Every constant that is fitted, off by a factor of up to two: a fit from here owes nothing to an earlier one."""
    rng = random.Random(rng_seed)
    for name in constants._fields:
        if name not in MEASURED_CONSTANTS:
            constants = _stepped(constants, name, math.log(2) * rng.uniform(-1.0, 1.0))
    return constants


def _again_and_again(names: list[str], until: float) -> Iterator[str]:
    while True:
        for name in names:
            if time.monotonic() > until:
                return
            yield name


def _stepped(constants: ModelConstants, name: str, step: float) -> ModelConstants:
    value = getattr(constants, name) * math.exp(step)
    return constants._replace(**{name: max(value, LEAST.get(name, 0.0))})


if __name__ == "__main__":
    main()
