"""The built-in suite on one GPU: `evolve run` on every problem, structural operators alone.

    python benchmarks/suite.py --time 60s --out benchmarks/results/suite [PROBLEM ...]

Each problem is a command of its own, as a user types it. With `--jobs N`, N of them share the GPU: what one times, no
other disturbs (there is a lock for each GPU), so each is judged as if alone and only gets fewer candidates. Its time
counts from the first verdict to the end of the search (`search_s`), and as the whole command (`wall_s`, baselines,
torch.compile and start-up included). Results are kept per problem in OUT/NAME.json, so that a suite can be measured in
parts; `--table` prints what is there.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from db.live import open_for_reading
from evaluators.problems import suite_names


def main() -> None:
    arguments = _arguments()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    names = [] if arguments.table else arguments.problems or suite_names()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for result in pool.map(lambda name: run_problem(name, arguments, out), names):
            (out / f"{result['problem']}.json").write_text(json.dumps(result, indent=2) + "\n")
            print(json.dumps({k: v for k, v in result.items() if k not in ("phases", "command")}), flush=True)
    print(table(out))


def run_problem(name: str, arguments: argparse.Namespace, out: Path) -> dict[str, object]:
    """Run one problem; what it reached, and what the time went to."""
    folder = out / "runs" / name
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / "archive.duckdb"
    command = [sys.executable, "-P", "-m", "evolve.cli.main", "run", name, "--archive", str(archive)]
    command += ["--out", str(folder), "--time", arguments.time, "--islands", str(arguments.islands)]
    command += ["--evaluations", "100000", "--device", arguments.device, "--rng-seed", str(arguments.rng_seed)]
    for item in arguments.set:
        command += ["--set", item]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    wall_s = time.monotonic() - began
    if done.returncode:
        tail = (done.stdout + done.stderr)[-2500:]
        return {"problem": name, "error": f"exit {done.returncode}", "output": tail, "wall_s": round(wall_s, 1)}
    summary = json.loads((folder / "summary.json").read_text())
    return {
        **{key: summary[key] for key in ("problem", "hardware", "speedup", "replaces_baseline", "judged", "latency")},
        "search_s": summary["elapsed_s"],
        "evaluators_busy": summary["evaluators_busy"],
        "wall_s": round(wall_s, 1),
        "command": " ".join(["evolve", *command[4:]]),
        **_run_figures(archive, summary["run"]),
    }


def _run_figures(archive: Path, run_id: str) -> dict[str, object]:
    """Counts of one run, and the median seconds of each phase of a judgement."""
    reader = open_for_reading(archive)
    try:
        evaluations = reader.evaluations(run_id)
    finally:
        reader.close()
    judged = [e.verdict for e in evaluations if not e.verdict.duplicate_of]
    phases: dict[str, list[float]] = {}
    for verdict in judged:
        for phase, seconds in verdict.seconds.items():
            phases.setdefault(phase, []).append(seconds)
    return {
        "run": run_id,
        "n_unique": len(judged),
        "n_failed": sum(not v.is_correct for v in judged),
        "phases": {phase: round(sorted(values)[len(values) // 2], 4) for phase, values in phases.items()},
    }


def table(out: Path) -> str:
    """The suite as a Markdown table, with the geometric mean; the baseline is kept where nothing wins."""
    rows = [json.loads(path.read_text()) for path in sorted(out.glob("*.json"))]
    columns = [
        "problem",
        "best us",
        "95%",
        "baseline us",
        "baseline",
        "speed-up",
        "floor us",
        "judged",
        "search s",
        "command s",
    ]
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    logs: list[float] = []
    for row in rows:
        latency = row.get("latency")
        if not latency:
            lines.append(f"| {row['problem']} | {row.get('error', 'nothing correct')} | | | | 1.00 | | | | |")
            logs.append(0.0)
            continue
        kept = max(1.0, row["speedup"]) if row["replaces_baseline"] else 1.0
        logs.append(math.log(kept))
        note = "" if row["replaces_baseline"] else f" (baseline kept; best {row['speedup']:.2f})"
        cells = [
            row["problem"],
            f"{latency['device_us']:.1f}",
            f"{latency['low_us']:.1f} to {latency['high_us']:.1f}",
            f"{latency['baseline_us']:.1f}",
            latency["baseline_name"],
            f"{kept:.2f}{note}",
            f"{latency['floor_us'] or 0:.0f}",
            str(row["judged"]),
            f"{row['search_s']:.0f}",
            f"{row['wall_s']:.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    if logs:
        lines.append(f"\nGeometric mean over {len(logs)}: {math.exp(sum(logs) / len(logs)):.3f}")
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*")
    parser.add_argument("--time", default="60s", help="search time of each problem")
    parser.add_argument("--islands", type=int, default=4)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rng-seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], help="a.b=c, passed on to evolve run")
    parser.add_argument("--jobs", type=int, default=1, help="problems that share the GPU at a time")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/suite"))
    parser.add_argument("--table", action="store_true", help="print the table of what was measured and stop")
    return parser.parse_args()


if __name__ == "__main__":
    main()
