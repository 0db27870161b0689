"""What every operator that asks a language model lands, with stored good answers, beside structural operators alone.

    python -m benchmarks.llm_operators --device cuda --jobs 3       # on one GPU
    python -m benchmarks.llm_operators --gpus 0 1 2 3 --jobs 4      # on four
    python -m benchmarks.llm_operators --device cpu [PROBLEM ...]   # on modelled latencies
    python -m benchmarks.llm_operators --table                      # the table of what was measured

Each problem of `llm_problems` is searched twice by `evolve run`, with the same settings and the same number of
verdicts: once with structural operators alone, once with a scripted model beside them, which answers the operator under
test with a stored answer and every other question with nothing. On a GPU it does so only to prompts that show the
counters of all parents (`--counters-within`). Results are kept per problem in OUT/NAME.json; the prompt that made the
elite stands beside its archive in OUT/runs, named by the hash that the archive has of it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from queue import Queue
from typing import Any

from benchmarks.scripted_model import ScriptedModel
from benchmarks.stored_answers import CASES, FOLDER, Case, Prompt, StoredAnswers
from db.live import open_for_reading
from db.measures import Cell, MeasureSpace
from db.reading import ArchiveReader
from db.records import CONFIRM, Evaluation, Latency

STRUCTURAL, MODEL = "structural", "model"
DEADLINE_S = 600.0
STAGGER_S = 1.5  # between the starts of the first searches: each starts a Ray of its own
ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "TORCHINDUCTOR_COMPILE_THREADS": "4",  # of each search that compiles its baselines; several do at a time
}
SETTINGS = (
    "search.in_flight=1",  # structural proposals do not use the budget up before counters are read
    "stop_at_roofline=1",
    "stop_when_stagnant=false",
    "counters.share=1",
    "counters.patience_s=1",
    "judging.n_concurrent_sessions=2",
    "llm.in_flight=2",
    "llm.reflect_every=0",
)


def main() -> None:
    arguments = _arguments()
    out: Path = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if not arguments.table:
        named = arguments.problems or [case.problem for case in CASES if not case.only_named]
        cases = [case for case in CASES if case.problem in named]
        measure(cases, arguments, out)
    print(table([json.loads(path.read_text()) for path in sorted(out.glob("*.json"))]))


def measure(cases: Sequence[Case], arguments: argparse.Namespace, out: Path) -> None:
    """Both searches of every problem, `--jobs` at a time. Those with the model come first: the others find the
    baselines that these have compiled. What is known of a problem is written after each of its searches."""
    answers = StoredAnswers(arguments.counters_within if arguments.device == "cuda" else 0.0)
    walls: dict[tuple[Case, str], float] = {}
    began = time.monotonic()
    gpus: Queue[dict[str, str]] = Queue()
    for gpu in arguments.gpus or [""] * arguments.jobs:
        gpus.put({"CUDA_VISIBLE_DEVICES": gpu} if gpu else {})
    with ScriptedModel(answers) as model, ThreadPoolExecutor(arguments.jobs) as pool:
        searches = {}
        for n, (arm, case) in enumerate(product((MODEL, STRUCTURAL), cases)):
            command = command_of(case, arm, arguments, out) + (["--model", model.name] if arm == MODEL else [])
            not_before = began + STAGGER_S * (n % arguments.jobs)
            searches[pool.submit(run_on_free_gpu, gpus, command, folder_of(out, case, arm), not_before)] = case, arm
        for done in as_completed(searches):
            case, arm = searches[done]
            end, walls[case, arm] = done.result()
            print(f"{case.problem}, {arm}: {end} after {walls[case, arm]:.0f} s", flush=True)
            result = figures(case, out, answers.prompts, {a: s for (c, a), s in walls.items() if c == case})
            (out / f"{case.problem}.json").write_text(json.dumps(result, indent=2) + "\n")
    print(f"{time.monotonic() - began:.0f} s in all", flush=True)


def command_of(case: Case, arm: str, arguments: argparse.Namespace, out: Path) -> list[str]:
    """The `evolve run` of one search."""
    folder = folder_of(out, case, arm)
    command = [sys.executable, "-P", "-m", "evolve.cli.main", "run", case.source, "--islands", "1", "--quiet"]
    command += ["--archive", str(folder / "archive.duckdb"), "--out", str(folder)]
    command += ["--device", arguments.device, "--target", arguments.target, "--rng-seed", str(arguments.rng_seed)]
    command += ["--evaluations", str(arguments.evaluations), "--time", arguments.time]
    for seed in case.seeds:
        command += ["--seed-program", str(FOLDER / "seeds" / seed)]
    for setting in (*SETTINGS, f"llm.operators=[{case.begins}]"):
        command += ["--set", setting]
    return command


def folder_of(out: Path, case: Case, arm: str) -> Path:
    return out / "runs" / case.problem / arm


def run_on_free_gpu(
    gpus: Queue[dict[str, str]], command: Sequence[str], folder: Path, not_before: float
) -> tuple[str, float]:
    """As `run`, with the environment of a GPU that no other search has meanwhile."""
    gpu = gpus.get()
    try:
        return run(command, folder, not_before, gpu)
    finally:
        gpus.put(gpu)


def run(command: Sequence[str], folder: Path, not_before: float, gpu: Mapping[str, str]) -> tuple[str, float]:
    """How a search ended and how many seconds it took. Its output is in run.log of its folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    time.sleep(max(0.0, not_before - time.monotonic()))
    began = time.monotonic()
    with (folder / "run.log").open("w") as file:
        environment = {**ENVIRONMENT, **os.environ, **gpu}
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
        try:
            end = f"exit {process.wait(DEADLINE_S)}"
        except subprocess.TimeoutExpired:
            process.terminate()  # as Ctrl-C: it closes its archive and its cluster
            process.wait()
            end = "too late"
    return end, time.monotonic() - began


# ------------------------------------------------------------------------------------------------------------ figures


def figures(case: Case, out: Path, prompts: Mapping[str, Prompt], walls: Mapping[str, float]) -> dict[str, Any]:
    """What both searches reached, and what the operator under test landed."""
    structural, model = (_summary(folder_of(out, case, arm)) for arm in (STRUCTURAL, MODEL))
    some = model or structural
    result: dict[str, Any] = {
        "problem": case.problem,
        "operator": case.operator,
        "hardware": some.get("hardware"),
        "kind": some.get("latency_kind"),
        "judged": {STRUCTURAL: structural.get("judged", 0), MODEL: model.get("judged", 0)},
        "baseline": {"name": some["latency"]["baseline_name"], "us": some["latency"]["baseline_us"]} if some else None,
        "structural_us": structural["latency"]["device_us"] if structural else None,
        "wall_s": {arm: round(seconds, 1) for arm, seconds in walls.items()},
    }
    if model:
        folder = folder_of(out, case, MODEL)
        with open_for_reading(folder / "archive.duckdb") as archive:
            result |= landed(case, archive, str(model["run"]), prompts, folder)
        result |= {"model_best_us": model["latency"]["device_us"], "counters": model["counters"]}
    return result


def _summary(folder: Path) -> dict[str, Any]:
    """Empty where a run found nothing."""
    path = folder / "summary.json"
    summary: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return summary if summary.get("latency") else {}


def landed(
    case: Case, archive: ArchiveReader, run_id: str, prompts: Mapping[str, Prompt], folder: Path
) -> dict[str, Any]:
    """The fastest program of the operator that took a cell, and what its prompt showed; the prompt goes to a file.

    Timed once more at the end of a run, its latency is that of the second time.
    """
    judged = archive.evaluations(run_id)
    calls = archive.llm_calls(run_id)
    made = [e for e in entrants(judged) if e.candidate.lineage.model and e.candidate.lineage.operator == case.operator]
    if not made:
        return {"n_calls": len(calls)}
    last = {e.verdict.program_id: latency_of(e) for e in judged if e.verdict.is_correct}
    elite = min(made, key=lambda e: last[e.verdict.program_id].device_us)
    lineage, latency = elite.candidate.lineage, last[elite.verdict.program_id]
    prompt = prompts.get(lineage.prompt_hash)
    if prompt is not None:
        (folder / f"prompt-{prompt.hash}.txt").write_text(prompt.text)
    return {
        "n_calls": len(calls),
        "elite_us": latency.device_us,
        "elite_interval_us": (latency.low_us, latency.high_us),
        "elite_program": elite.verdict.program_id,
        "is_best": judged_best(last) == elite.verdict.program_id,
        "technique": lineage.technique,
        "expected_octaves": lineage.predicted_octaves,
        "prompt_hash": lineage.prompt_hash,
        "prompt_is_archived": lineage.prompt_hash in {call.prompt_hash for call in calls},
        "n_parents": len(lineage.parents),
        "n_counted": prompt.n_counted if prompt else None,
        "shown": prompt.figures if prompt else None,
    }


def entrants(judged: Sequence[Evaluation]) -> list[Evaluation]:
    """The programs that were the fastest of their cell when they were judged, in order."""
    fastest: dict[Cell, float] = {}
    entered = []
    for evaluation in judged:
        verdict = evaluation.verdict
        if not verdict.is_correct or verdict.tier is None or evaluation.candidate.lineage.operator == CONFIRM:
            continue
        latency_us = latency_of(evaluation).device_us
        cell = MeasureSpace().cell_of(verdict.tier, latency_us)
        if latency_us < fastest.get(cell, float("inf")):
            fastest[cell] = latency_us
            entered.append(evaluation)
    return entered


def latency_of(evaluation: Evaluation) -> Latency:
    assert evaluation.verdict.latency is not None
    return evaluation.verdict.latency


def judged_best(latencies: Mapping[str, Latency]) -> str:
    return min(latencies, key=lambda program_id: latencies[program_id].device_us)


# -------------------------------------------------------------------------------------------------------------- table


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """Markdown. Without a first program there is no structural best: then the baseline stands in its place."""
    columns = ("problem", "operator", "verdicts", "structural best us", "elite us", "ratio", "figures in the prompt")
    rows = [f"| {' | '.join(_row(result))} |" for result in results]
    return "\n".join([f"| {' | '.join(columns)} |", "|" + "---|" * len(columns), *rows])


def _row(result: Mapping[str, Any]) -> list[str]:
    elite_us, rival_us, baseline = result.get("elite_us"), result["structural_us"], result["baseline"]
    rival = f"{rival_us:.1f}" if rival_us else "no program"
    if rival_us is None and baseline:
        rival_us = baseline["us"]
        rival += f"; {baseline['name']} {rival_us:.1f}"
    return [
        result["problem"],
        result["operator"],
        f"{result['judged'][STRUCTURAL]} and {result['judged'][MODEL]}",
        rival,
        f"{elite_us:.1f}" if elite_us else "none landed",
        f"{rival_us / elite_us:.2f}" if elite_us and rival_us else "",
        _evidence(result),
    ]


def _evidence(result: Mapping[str, Any]) -> str:
    """What the prompt of the elite showed of its parents."""
    shown = result.get("shown")
    if shown is None:
        return "no prompt"
    if not result["n_parents"]:
        return "no parents"
    n_figures = " and ".join(str(len(lines) - 1) for lines in shown)
    if result["n_counted"] < result["n_parents"]:
        sources = sorted({lines[0].removeprefix("source: ").split(" (")[0] for lines in shown}) or ["none"]
        return f"{n_figures}: {' and '.join(sources)}"
    return f"{n_figures}, read by ncu"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", help=f"of {', '.join(case.problem for case in CASES)}; all but the last")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--target", default="h200", help="GPU that is modelled, with --device cpu")
    parser.add_argument("--evaluations", type=int, default=24, help="verdicts of each search")
    parser.add_argument("--time", default="90s", help="of each search at most")
    parser.add_argument("--jobs", type=int, default=1, help="searches that share the GPU at a time")
    parser.add_argument("--gpus", nargs="+", help="indices: the searches take turns on them")
    parser.add_argument("--counters-within", type=float, default=30.0, metavar="S", help="longest wait for counters")
    parser.add_argument("--rng-seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/llm_operators"))
    parser.add_argument("--table", action="store_true", help="print the table of what was measured and stop")
    return parser.parse_args()


if __name__ == "__main__":
    main()
