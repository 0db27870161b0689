"""Does the knowledge base predict better on problems that it has never seen, the more it has learnt on others?

    python -m benchmarks.prediction                            # the attempts stored here, no GPU needed
    python -m benchmarks.prediction ARCHIVE... --save FILE     # collect what runs on a GPU have tried
    python -m benchmarks.prediction --rivals                   # the same question to simple regressions

An attempt is one technique on one program: what it gained, in octaves of latency (failed or slower: nothing). For each
number of learnt problems, problems are drawn at random, a knowledge base starts from what was tried on them, and
predicts every attempt on each of the others, without learning from those. The error is the root mean square over
attempts, averaged over draws and held-out problems, beside that of a knowledge base that knows nothing, on the same
problems, and the correlation of predicted and measured gain.
"""

from __future__ import annotations

import argparse
import gzip
import math
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.calibration import rank_correlation
from db.knowledge import IMPROVED_OCTAVES, KEPT_OCTAVES, MOST_OCTAVES, TechniqueEvidence, summed
from db.live import open_for_reading
from db.records import LatencyKind, Record
from islands.knowledge import KnowledgeBase, PriorKnowledge, Situation
from islands.operators import default_operators
from islands.settings import IslandSettings

STORED = Path(__file__).parent / "results" / "prediction" / "attempts.jsonl.gz"
N_DRAWS = 48


class Tried(Record):
    """One attempt; `octaves` is None for a program that failed."""

    problem: str
    technique: str
    previous: str
    state: str
    hardware_id: str
    octaves: float | None
    headroom_octaves: float | None = None  # of the parent, to the roofline

    @property
    def gain(self) -> float:
        """In octaves, from 0 to 2; less than 1% is none."""
        octaves = min(self.octaves or 0.0, MOST_OCTAVES)
        return octaves if octaves >= IMPROVED_OCTAVES else 0.0


def main() -> None:
    arguments = _arguments()
    tried = [one for path in arguments.archives for one in read_archive(path)] or read_attempts(arguments.attempts)
    if arguments.save:
        write_attempts(arguments.save, tried)
    print(rivals(tried) if arguments.rivals else table(tried))


def read_archive(path: Path) -> list[Tried]:
    """Every measured attempt of an archive whose parent's state is known."""
    with open_for_reading(path) as archive:
        names = tuple(Tried.model_fields)
        return [Tried.model_validate(dict(zip(names, row, strict=True))) for row in archive.query(_ATTEMPTS).rows]


_ATTEMPTS = """
SELECT problems.name, a.technique, coalesce(a.previous, ''), a.state, a.hardware_id, a.octaves,
    -log2(greatest(0.01, least(1, greatest(parent.memory_sol_pct, parent.compute_sol_pct) / 100)))
FROM attempts AS a
JOIN problems USING (problem_id)
JOIN evaluations AS child USING (seq)
JOIN (
    SELECT run_id, program_id, arg_min(memory_sol_pct, seq) AS memory_sol_pct,
        arg_min(compute_sol_pct, seq) AS compute_sol_pct
    FROM evaluations WHERE latency_us IS NOT NULL GROUP BY ALL
) AS parent ON parent.run_id = child.run_id AND parent.program_id = child.parents[1]
WHERE a.state IS NOT NULL AND coalesce(a.latency_kind, 'measured') = 'measured'
ORDER BY a.seq
"""


def read_attempts(path: Path) -> list[Tried]:
    with gzip.open(path, "rt") as file:
        return [Tried.model_validate_json(line) for line in file]


def write_attempts(path: Path, tried: Sequence[Tried]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(one.model_dump_json() + "\n" for one in tried)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def evidence_of(tried: Sequence[Tried]) -> list[TechniqueEvidence]:
    """What an archive with these attempts would know."""
    return summed(_evidence(one) for one in tried)


def _evidence(one: Tried) -> TechniqueEvidence:
    octaves = max(-MOST_OCTAVES, min(MOST_OCTAVES, one.octaves)) if one.octaves is not None else 0.0
    passed = one.octaves is not None
    return TechniqueEvidence(
        technique=one.technique,
        state=one.state,
        previous=one.previous,
        latency_kind=LatencyKind.MEASURED,
        hardware_id=one.hardware_id,
        n_tried=1,
        n_passed=int(passed),
        n_kept=int(passed and octaves >= KEPT_OCTAVES),
        n_improved=int(passed and octaves >= IMPROVED_OCTAVES),
        octaves=octaves,
        squared_octaves=octaves**2,
        gained_octaves=one.gain,
    )


def table(tried: Sequence[Tried]) -> str:
    """One row for each number of learnt problems."""
    by_problem: dict[str, list[Tried]] = defaultdict(list)
    for one in tried:
        by_problem[one.problem].append(one)
    names, rng = sorted(by_problem), random.Random(0)
    without = {name: _predict([], own)[0] for name, own in by_problem.items()}
    rows = [
        "| problems learnt | error, octaves | knowing nothing | ratio | of a constant | rank correlation | attempts |",
        "|---|---|---|---|---|---|---|",
    ]
    for n in range(len(names)):
        errors, nothing, constants, ranks, n_attempts = [], [], [], [], 0
        for _ in range(N_DRAWS if n else 1):
            learnt = rng.sample(names, n)
            known = [one for name in learnt for one in by_problem[name]]
            for held_out in sorted(set(names) - set(learnt)):
                error, constant, rank = _predict(known, by_problem[held_out])
                errors.append(error)
                nothing.append(without[held_out])
                constants.append(constant)
                ranks.append(rank)
                n_attempts += len(by_problem[held_out])
        figures = f"{_mean(errors):.4f} | {_mean(nothing):.4f} | {_mean(errors) / _mean(nothing):.2f}"
        figures += f" | {_mean(constants):.4f} | {_mean(ranks):.2f}"
        rows.append(f"| {n} | {figures} | {n_attempts} |")
    return "\n".join(rows)


def _predict(known: Sequence[Tried], asked: Sequence[Tried]) -> tuple[float, float, float]:
    """Root mean square error of the predictions, that of the mean gain of what is known, and the rank correlation."""
    operators = {operator.name: operator for operator in default_operators()}
    base = KnowledgeBase(operators, IslandSettings(), PriorKnowledge(tuple(evidence_of(known)), at_s=1.0))
    kept = [one for one in asked if one.technique in operators]
    predicted = [base.expect(_situation(one), one.technique) for one in kept]
    gains = [one.gain for one in kept]
    constant = _mean([one.gain for one in known]) if known else 0.0
    error = math.sqrt(_mean([(p - g) ** 2 for p, g in zip(predicted, gains, strict=True)]))
    plain = math.sqrt(_mean([(constant - g) ** 2 for g in gains]))
    return error, plain, rank_correlation(np.array(predicted), np.array(gains))


def rivals(tried: Sequence[Tried]) -> str:
    """What regressions that learn on all other problems make of each, over a knowledge base that knows nothing."""
    operators = {operator.name: operator for operator in default_operators()}
    kept = [one for one in tried if one.technique in operators]
    base = KnowledgeBase(operators, IslandSettings(), PriorKnowledge((), at_s=1.0))
    asked = _Asked(
        nothing=np.array([base.expect(_situation(one), one.technique) for one in kept]),
        gains=np.array([one.gain for one in kept]),
        problems=np.array([one.problem for one in kept]),
        techniques=np.array([[float(one.technique == name) for name in sorted(operators)] for one in kept]),
        headroom=np.array([[min(one.headroom_octaves or 0.0, 1.0)] for one in kept]),
    )
    far = np.hstack([asked.techniques * asked.headroom, asked.headroom, np.ones((len(kept), 1))])
    named: dict[str, Callable[[Any], Any]] = {"one factor for all predictions": asked.scaled}
    for strength in (10.0, 100.0):
        named[f"ridge over techniques, {strength:g}"] = asked.ridge(asked.techniques, strength)
        named[f"ridge over techniques by headroom, {strength:g}"] = asked.ridge(far, strength)
    rows = [f"| {name} | {asked.ratio(fit):.2f} |" for name, fit in named.items()]
    return "\n".join(["| learnt on all other problems | error over knowing nothing |", "|---|---|", *rows])


class _Asked(NamedTuple):
    """Attempts, one a row, and fits that predict those of one problem (`mask`) from the others."""

    nothing: Any
    gains: Any
    problems: Any
    techniques: Any
    headroom: Any

    def scaled(self, mask: Any) -> Any:
        plain, gains = self.nothing[~mask], self.gains[~mask]
        return self.nothing[mask] * (plain @ gains) / (plain @ plain)

    def ridge(self, features: Any, strength: float) -> Callable[[Any], Any]:
        """What is added to the predictions of a knowledge base that knows nothing."""

        def fit(mask: Any) -> Any:
            known, left = features[~mask], (self.gains - self.nothing)[~mask]
            weights = np.linalg.solve(known.T @ known + strength * np.eye(known.shape[1]), known.T @ left)
            return self.nothing[mask] + features[mask] @ weights

        return fit

    def ratio(self, fit: Callable[[Any], Any]) -> float:
        masks = [self.problems == name for name in sorted(set(self.problems))]
        learnt = [_root_mean_square(fit(mask) - self.gains[mask]) for mask in masks]
        plain = [_root_mean_square(self.nothing[mask] - self.gains[mask]) for mask in masks]
        return _mean(learnt) / _mean(plain)


def _root_mean_square(values: Any) -> float:
    return float(np.sqrt((values**2).mean()))


def _situation(one: Tried) -> Situation:
    return Situation(one.state, one.previous, one.hardware_id, LatencyKind.MEASURED, one.headroom_octaves)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archives", nargs="*", type=Path, help="archives of runs on a GPU; none: --attempts")
    parser.add_argument("--attempts", type=Path, default=STORED, help="a file that --save has written")
    parser.add_argument("--save", type=Path, help="write what was collected")
    parser.add_argument("--rivals", action="store_true", help="ask simple regressions instead")
    return parser.parse_args()


if __name__ == "__main__":
    main()
