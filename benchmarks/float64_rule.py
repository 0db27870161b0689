"""The float64 rule on programs whose label is known: does each come out as what it is?

    python -m benchmarks.float64_rule [--device cuda|cpu] [--out FILE] [REFERENCE ...]

Every folder of `float64_programs` holds a reference and programs. A program's first line says what it is:

    reference  float32 in another order, or with what TF32 loses made up for: of class reference, with an error at most
               10 times the reference's own against float64
    exact      an operation without rounding, where the reference has no error of its own: the other branch of the rule
    relaxed    less exact: of class relaxed, or refused
    wrong      something else: refused

The project's own evaluator judges them, in the relaxed class, where a program that is less exact has a class and not
only a refusal. Those "on a GPU" are left out without one: the interpreter knows no TF32. Ends with 1 when a label is
not met.
"""

from __future__ import annotations

import argparse
import ast
import json
import multiprocessing
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from db.records import Candidate, DeviceKind, EntryPoint, Gate, Lineage, Outcome, PrecisionClass, Verdict
from evaluators.evaluator import EvaluatorSettings
from evaluators.gates.model_gate import MAX_RATIO
from evaluators.opening import open_evaluator
from evaluators.problems import load_problem
from evolve.device import count_local_gpus

PROGRAMS = Path(__file__).parent / "float64_programs"
LABELS = ("reference", "exact", "relaxed", "wrong")
ON_GPU = " on a GPU"
RUN = "float64"
JOBS_ON_GPU = 4  # baselines are compiled on the CPU; what is timed waits for the lock of the GPU


class Labelled(NamedTuple):
    """A program and what it is known to be."""

    reference: str
    name: str
    label: str
    needs_gpu: bool
    about: str
    source: str


class Judged(NamedTuple):
    """What came out. `found` is a precision class, "refused", or "unsupported" where the device cannot tell."""

    reference: str
    name: str
    label: str
    found: str
    ratio: float | None
    is_as_labelled: bool
    gate: str
    reason: str


def labelled(reference: str) -> list[Labelled]:
    """The programs of a folder."""
    files = sorted(path for path in (PROGRAMS / reference).glob("*.py") if path.stem != "reference")
    return [_read(path) for path in files]


def _read(path: Path) -> Labelled:
    source = path.read_text()
    said, _, about = (ast.get_docstring(ast.parse(source)) or "").partition(": ")
    label = said.removesuffix(ON_GPU)
    if label not in LABELS:
        raise SystemExit(f"{path} does not begin with one of {', '.join(LABELS)}")
    return Labelled(path.parent.name, path.stem, label, said.endswith(ON_GPU), about, source)


def judged(reference: str, device: DeviceKind) -> list[Judged]:
    """Verdicts on all programs of one reference that can be judged on the device."""
    problem = load_problem(str(PROGRAMS / reference / "reference.py"))
    programs = [program for program in labelled(reference) if device is DeviceKind.CUDA or not program.needs_gpu]
    settings = EvaluatorSettings(precision=PrecisionClass.RELAXED)
    with open_evaluator(problem, settings, device) as evaluator:
        return [_row(program, evaluator.judge(_candidate(program, problem.problem_id))) for program in programs]


def _candidate(program: Labelled, problem_id: str) -> Candidate:
    return Candidate(
        candidate_id=f"{RUN}-0-{program.reference}-{program.name}",
        run_id=RUN,
        problem_id=problem_id,
        island=0,
        source=program.source,
        entry_point=EntryPoint.MODEL,
        lineage=Lineage(operator="seed"),
    )


def _row(program: Labelled, verdict: Verdict) -> Judged:
    found, ratio = class_of(verdict), verdict.error_ratio
    refusing = next((gate for gate in verdict.gates if not gate.passed and gate.gate is not Gate.SPEED), None)
    gate, reason = (str(refusing.gate), refusing.reason) if refusing else ("", "")
    is_as_labelled = meets(program.label, found, ratio, gate)
    return Judged(program.reference, program.name, program.label, found, ratio, is_as_labelled, gate, reason)


def class_of(verdict: Verdict) -> str:
    """The precision class that the model gate found, "refused", or "unsupported"."""
    if verdict.outcome is not Outcome.CORRECT:
        return "unsupported" if verdict.outcome is Outcome.UNSUPPORTED else "refused"
    return str(next(gate for gate in verdict.gates if gate.gate is Gate.MODEL).evidence["precision"])


def meets(label: str, found: str, ratio: float | None, gate: str) -> bool:
    """Whether what came out is what the label asks for. A refusal counts where values were compared."""
    is_refused = found == "refused" and gate in (Gate.CORRECTNESS, Gate.MODEL)
    return {
        "reference": found == PrecisionClass.REFERENCE and ratio is not None and ratio <= MAX_RATIO,
        "exact": found == PrecisionClass.REFERENCE and ratio is None,
        "relaxed": found == PrecisionClass.RELAXED or is_refused,
        "wrong": is_refused,
    }[label]


def report(rows: Sequence[Judged]) -> str:
    """The table as people read it."""
    head = ("program", "label", "came out", "ratio", "")
    cells = [
        (f"{r.reference}/{r.name}", r.label, r.found, "" if r.ratio is None else f"{r.ratio:.3g}", _remark(r))
        for r in rows
    ]
    table = [head, *cells]
    widths = [max(len(row[i]) for row in table) for i in range(4)]
    lines = ["  ".join([*map(str.ljust, row[:4], widths), row[4]]).rstrip() for row in table]
    return "\n".join(lines)


def _remark(row: Judged) -> str:
    said = f"{row.gate}: {row.reason}"[:100] if row.reason else ""
    return said if row.is_as_labelled else f"NOT AS LABELLED {said}".rstrip()


def main() -> None:
    names = sorted(path.name for path in PROGRAMS.iterdir() if (path / "reference.py").exists())
    parser = argparse.ArgumentParser(description="The float64 rule on programs whose label is known.")
    parser.add_argument("references", nargs="*", metavar="REFERENCE", help=f"of {', '.join(names)}; all unless named")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if count_local_gpus() else "cpu")
    parser.add_argument("--jobs", type=int, default=0, help="references at once")
    parser.add_argument("--out", type=Path, help="a file for the rows as JSON")
    asked = parser.parse_args()
    if unknown := set(asked.references) - set(names):
        parser.error(f"no reference {min(unknown)}; there are {', '.join(names)}")
    device = DeviceKind(asked.device)
    wanted = asked.references or names
    jobs = asked.jobs or (JOBS_ON_GPU if device is DeviceKind.CUDA else 1)
    start = time.monotonic()
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        rows = [row for found in pool.map(partial(judged, device=device), wanted) for row in found]
    left_out = sum(p.needs_gpu for name in wanted for p in labelled(name)) if device is DeviceKind.CPU else 0
    print(report(rows))
    n_met, took_s = sum(row.is_as_labelled for row in rows), time.monotonic() - start
    print(f"{n_met} of {len(rows)} programs over {len(wanted)} references came out as labelled")
    print(f"on {device} in {took_s:.0f} s; {left_out} more need a GPU")
    if asked.out:
        values: dict[str, Any] = {"device": device.value, "left_out": left_out, "rows": [r._asdict() for r in rows]}
        asked.out.write_text(json.dumps(values, indent=2) + "\n")
    sys.exit(n_met < len(rows))


if __name__ == "__main__":
    main()
