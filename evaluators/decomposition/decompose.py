"""The door: a model taken apart, winners put back. Light: what needs torch runs in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import db.errors
from db.errors import DeviceError, ProblemError
from db.records import PrecisionClass, Problem
from evaluators.decomposition.errors import DecompositionError
from evaluators.decomposition.records import Decomposition
from evaluators.decomposition.stitch import stitched

DEADLINE_S = 900.0

Way = Literal["compile", "max-autotune"]


def decompose(
    problem: Problem,
    *,
    folder: Path,
    way: Way = "compile",
    precision: PrecisionClass = PrecisionClass.REFERENCE,
    deadline_s: float = DEADLINE_S,
) -> Decomposition:
    """The parts of a model on the GPU of this machine. A model that cannot be taken apart is an answer with a reason.

    Args:
        problem: its reference is a `Model`.
        folder: where weights that the parts' problems read are kept; it must outlive the search.
        way: of compiling. It should be the fastest baseline's.

    Raises:
        ProblemError: the reference fails, or is a Triton function, which has no parts.
        DeviceError: there is no GPU, or the process that has it ended or took too long.
    """
    if problem.kind != "kernelbench":
        raise ProblemError(f"{problem.name} is a kernel already", "give a module to take apart")
    request = {"problem": problem.model_dump(mode="json"), "way": way, "precision": precision.value}
    with tempfile.TemporaryDirectory(prefix="evolve-decompose-") as place:
        asked, answered = Path(place) / "request.json", Path(place) / "answer.json"
        asked.write_text(json.dumps({**request, "folder": str(folder.resolve())}))
        log = _run([str(asked), str(answered)], deadline_s)
        if not answered.exists():
            raise DeviceError(f"taking {problem.name} apart failed: {log}", "see `evolve doctor`")
        return _read(json.loads(answered.read_text()))


def stitch(decomposition: Decomposition, winners: Mapping[str, str]) -> str:
    """One importable file: `ModelNew` with the winners in the place of their parts.

    It has the state dict of the original, takes its inputs, and needs torch and triton alone. Without winners it is the
    compiled model in plain Triton.

    Args:
        winners: sources by the name of the part.

    Raises:
        DecompositionError: the model was not taken apart, two winners overlap, or a step cannot be written so.
    """
    if decomposition.graph is None:
        raise DecompositionError(f"{decomposition.problem.name} was not taken apart: {decomposition.reason}")
    unknown = winners.keys() - {p.part.name for p in decomposition.parts}
    if unknown:
        raise DecompositionError(f"{decomposition.problem.name} has no part {min(unknown)}")
    known = decomposition.versions
    versions = ", ".join(f"{name} {known[name]}" for name in ("python", "torch", "triton") if name in known)
    won = f"{len(winners)} of {len(decomposition.parts)} parts replaced" if winners else "no part replaced"
    if decomposition.left_out:
        won += f"; left out: {'; '.join(decomposition.left_out)}"
    title = f"{decomposition.problem.name}: {won}. Written from what torch.compile made of it ({versions})."
    return stitched(decomposition.graph, [p.part for p in decomposition.parts], winners, title)


def _run(arguments: list[str], deadline_s: float) -> str:
    """The end of what the process wrote to stderr."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(p for p in (os.environ.get("PYTHONPATH", ""), root) if p)
    command = [sys.executable, "-P", "-m", "evaluators.decomposition.job", *arguments]
    environment = {**os.environ, "PYTHONPATH": path}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=deadline_s, check=False)
    except subprocess.TimeoutExpired:
        raise DeviceError(f"taking the model apart took more than {deadline_s:g} s", "a smaller model") from None
    return done.stderr.decode(errors="replace")[-1500:].strip()


def _read(answer: dict[str, Any]) -> Decomposition:
    if "decomposition" in answer:
        return Decomposition.model_validate(answer["decomposition"])
    kind = getattr(db.errors, answer["error"], DeviceError)
    raise kind(answer["message"], answer["hint"])
