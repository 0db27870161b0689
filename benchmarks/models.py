"""Whole models on one GPU: every module of benchmarks/models taken apart, improved, put together and judged.

    python benchmarks/models.py [NAME ...] [--evaluations 150] [--islands 8] [--seconds 540] [--out models-out]

What `evolve bench benchmarks/models` does, and more: each delivered file then runs in a process that cannot import this
project, with the original's state dict, and is held against the original. Results go to `--out`: a folder for each
module as `evolve run` writes it, the table as `bench.json`, `bench.md` and `bench.html`, `delivered.json`. What is
there already is not run again, and no module is begun after `--seconds`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODULES = ROOT / "benchmarks" / "models"
sys.path[0] = str(ROOT)  # not benchmarks/: workers import what this imports


def main() -> None:
    from evolve.cli.bench import summary_lines
    from evolve.cli.model_view import ModelView
    from evolve.config import make_config
    from evolve.models.bench import bench, modules_of
    from evolve.models.run import run_model
    from evolve.models.table import BenchTable
    from evolve.models.written import write_table

    asked = arguments()
    named = [MODULES / f"{name}.py" for name in asked.names] if asked.names else [MODULES]
    values = {"problem": "", "evaluations": asked.evaluations, "islands": asked.islands}
    out = asked.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    config = make_config({**values, "archive": str(out / "models.duckdb")})
    start, rows = time.monotonic(), []
    for module in modules_of(named):
        if time.monotonic() - start > asked.seconds:
            print(f"== {module.stem}: not begun, {asked.seconds:g} s are over", flush=True)
            continue
        print(f"== {module.stem}", flush=True)
        began = time.monotonic()
        rows += bench([module], config, lambda own: run_model(own, ModelView()), folder=out).rows
        print(f"== {rows[-1].model_dump_json()} in {time.monotonic() - began:.0f} s", flush=True)
        write_table(BenchTable(rows=tuple(rows)), out)
    print("\n".join(summary_lines(BenchTable(rows=tuple(rows)))), flush=True)
    delivered = {row.module: checked(row.module, row.best_path, out) for row in rows if row.best_path}
    (out / "delivered.json").write_text(json.dumps(delivered, indent=2) + "\n")
    print(json.dumps(delivered, indent=2))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--evaluations", type=int, default=150)
    parser.add_argument("--islands", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=540.0, help="no module is begun after so long")
    parser.add_argument("--out", type=Path, default=Path("models-out"))
    return parser.parse_args()


# ------------------------------------------------------------------------------------- delivered files by themselves


def checked(name: str, path: str, out: Path) -> object:
    """What a delivered file does where this project is not to be had."""
    from benchmarks.decompose_probe import CHECK

    data = out / f"{name}.data.pt"
    made = subprocess.run(
        [sys.executable, "-c", PREPARE, str(MODULES / f"{name}.py"), str(data)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))},
        capture_output=True,
        check=False,
    )
    if made.returncode:
        return made.stderr.decode(errors="replace")[-2000:]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-P", "-c", CHECK, str(data), str(out / "timing.lock"), path]
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, timeout=120, check=False)
    data.unlink()
    text = done.stdout.decode(errors="replace").strip()
    return text if done.returncode == 0 else text + done.stderr.decode(errors="replace")[-2000:]


# what the original answers, for CHECK
PREPARE = """
import sys, torch
from db.records import PrecisionClass
from evaluators.precision import apply_precision
from evaluators.problems import load_problem
from evaluators.problems.reference import Reference

apply_precision(PrecisionClass.REFERENCE)
problem = load_problem(sys.argv[1])
reference = Reference(problem, problem.full)
model = reference.model("cuda")
inputs = reference.draw_inputs(0, "cuda")
expected = reference.expected(inputs)
data = {"expected": [t.clone() for t in expected], "strides": [list(t.stride()) for t in expected]}
data |= {"state": model.state_dict(), "inputs": inputs, "arguments": reference.init_args()}
torch.save(data, sys.argv[2])
"""


if __name__ == "__main__":
    main()
