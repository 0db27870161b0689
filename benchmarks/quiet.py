"""The figures that need a quiet, large machine, or a GPU to themselves: part after part, each with a limit to its time.

    python -m benchmarks.quiet --list                          # parts, what they measure, how long they take
    python -m benchmarks.quiet --out figures                   # all that need no GPU
    python -m benchmarks.quiet --out figures --gpu             # all that need one
    python -m benchmarks.quiet --out figures --parts archive scale-64
    python -m benchmarks.quiet --out figures --minutes 9       # begin no part that may not end by then; go on later

Every part is a command of its own that leaves its figures in the folder, as JSON or as what it printed. `quiet.json`
says how each of them ended; those that ended well are not run again, and most of those that ran out of time go on where
they were. Made for 32 cores; nodes and spot need root.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

CORES = os.cpu_count() or 1
CORES_PER_RECOVERY = 3
CORES_PER_JUDGE = 8
CORES_PER_SEARCH = 2
ENDS_S = 20.0


class Part(NamedTuple):
    """One command: arguments of `python`, where OUT is the folder."""

    about: str
    arguments: str
    takes_s: int  # on 32 cores
    limit_s: int
    is_on_node: bool = False  # which has a /tmp of its own
    needs_gpu: bool = False


def _scale(n_evaluators: int, islands: str, takes_s: int) -> Part:
    about = f"{n_evaluators} simulated GPUs; {islands} islands"
    command = f"-m benchmarks.scale --evaluators {n_evaluators} --islands {islands} --seconds 20"
    return Part(about, f"{command} --out OUT/scale-{n_evaluators}.jsonl", takes_s, 2 * takes_s + 60)


def _models(kind: str, names: str) -> Part:
    folder = f"OUT/models-{names.split()[0]}"
    command = f"benchmarks/models.py --evaluations 150 --seconds 330 --out {folder} {names}"
    return Part(f"modules: {kind}", command, 450, 560, needs_gpu=True)


def _on_gpu(about: str, arguments: str, takes_s: int, limit_s: int = 560) -> Part:
    return Part(about, arguments, takes_s, limit_s, needs_gpu=True)


PARTS = {
    "archive": Part(
        "a million programs: inserts, questions, opening again, single durable inserts, bytes",
        "benchmarks/archive.py --n-programs 1000000 --batch 4096 --live 10 --json OUT/archive.json",
        *(270, 580),
    ),
    "scale-8": _scale(8, "8 32", 70),
    "scale-64": _scale(64, "8 32 128", 120),
    "scale-512": _scale(512, "8 32 128", 150),
    "recovery": Part(
        "kill -9 of 200 processes of all kinds",
        f"-m benchmarks.recovery --points 200 --jobs {max(1, min(10, CORES // CORES_PER_RECOVERY))} --minutes 7.5"
        " --out OUT/recovery.jsonl",
        *(460, 590),
    ),
    "hostile": Part(
        "1,000 candidates, three in ten hostile",
        f"-m benchmarks.hostile --jobs {max(1, CORES // CORES_PER_JUDGE)} --out OUT/hostile.json",
        *(240, 580),
    ),
    "in-order": Part(
        "the same digest with 1, 2, 4 and 8 evaluators",
        "-m benchmarks.in_order --evaluations 100 --out OUT/in_order.json",
        *(150, 580),
    ),
    "spot": Part("nodes that come and go during a run", "-m benchmarks.spot --out OUT/spot.json", 190, 400),
    "nodes": Part(
        "simulated GPUs and islands, the driver on one of three nodes of a Ray cluster in network namespaces",
        "-m benchmarks.nodes around 3 -- python -m benchmarks.scale --evaluators 64 --islands 32 --seconds 20"
        " --address HEAD --out OUT/nodes.jsonl",
        *(60, 200, True),
    ),
    "ablation-modelled": Part(
        "the search without each of its parts, on modelled latencies",
        f"-m benchmarks.ablation --seeds 5 --evaluations 30 --jobs {max(1, CORES // CORES_PER_SEARCH)} --minutes 9"
        " --cache OUT/verdicts-modelled --out OUT/ablation",
        *(540, 590),
    ),
    "gpu-tests": _on_gpu("the tests that need a GPU", "-m pytest -v -s -p no:cacheprovider tests/gpu", 300),
    "models-scans": _models("scans", "gated_scan returns_to_go selective_scan token_losses"),
    "models-rows": _models("norms and softmax", "long_layer_norm masked_softmax feature_normaliser unit_rows"),
    "models-losses": _models(
        "losses and pooling", "smoothed_cross_entropy distillation_loss softmax_pool image_norm_gelu"
    ),
    "models-blocks": _models(
        "blocks that libraries dominate",
        "linear_layernorm_gelu conv_epilogue attention_block residual_mlp resnet_block lstm wide_mlp",
    ),
    "models-whole": _models("needless work", "diagonal_scaling pooled_projection summed_linear triangular_product"),
    "decompose": _on_gpu(
        "how long taking apart takes", "-m benchmarks.decompose_time --out OUT/decompose_time.json", 150, 300
    ),
    "cheats": _on_gpu(
        "programs that cheat, and honest twins", "-m benchmarks.cheat_corpus --device cuda --at-once 8", 300
    ),
    "ablation": _on_gpu(
        "the search without each of its parts",
        "-m benchmarks.ablation softmax cross_entropy --device cuda --jobs 2 --seeds 3 --evaluations 30 --minutes 8"
        " --cache OUT/verdicts --out OUT/ablation",
        540,
    ),
    "transfer": _on_gpu(
        "what knowledge of other problems saves",
        "-m benchmarks.transfer softmax l1_norm cross_entropy reverse_cumsum --device cuda --jobs 3 --seeds 3"
        " --evaluations 30 --minutes 8 --learn layer_norm rms_norm kl_div cumsum fused_add_rms_norm int8_quant"
        " --cache OUT/verdicts --out OUT/transfer",
        540,
    ),
    "llm-operators": _on_gpu(
        "what operators that ask a model land",
        "-m benchmarks.llm_operators --jobs 4 --time 60s --out OUT/llm_operators",
        400,
    ),
    "hostile-gpu": _on_gpu(
        "300 candidates, three in ten hostile",
        "-m benchmarks.hostile --candidates 300 --device cuda --at-once 16 --out OUT/hostile_gpu.json",
        240,
    ),
    "contexts": _on_gpu("what contexts cost", "-m benchmarks.contexts", 60, 200),
    "gpus": _on_gpu(
        "a search with eight islands on 1, 2, 4 and 8 GPUs, as far as there are",
        "-m benchmarks.gpus --seconds 75 --out OUT/gpus.jsonl",
        *(560, 600),
    ),
    "gpus-kill": _on_gpu(
        "kill -9 of an evaluator, islands and a preparer of a search on all GPUs",
        "-m benchmarks.gpus --kill --seconds 75 --out OUT/gpus_kill.jsonl",
        *(140, 300),
    ),
}
NODE_FOLDER = Path("/var/tmp/evolve-figures")


def run_part(name: str, out: Path, limit_s: float) -> dict[str, Any]:
    """How a part ended. It is ended after its limit; Ray's processes end with their driver."""
    folder = NODE_FOLDER if PARTS[name].is_on_node else out
    folder.mkdir(exist_ok=True)
    arguments = [sys.executable, *PARTS[name].arguments.replace("OUT", str(folder)).split()]
    began = time.time()
    load = os.getloadavg()[0]
    with (out / f"{name}.log").open("w") as log, subprocess.Popen(arguments, stdout=log, stderr=log) as process:
        try:
            status: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
            _end(process)
    if folder is not out:
        shutil.copytree(folder, out, dirs_exist_ok=True)
        shutil.rmtree(folder)
    return {
        "command": " ".join(["python", *arguments[1:]]),
        "status": "out of time" if status is None else status,
        "seconds": round(time.time() - began, 1),
        "load_before": round(load, 2),
        "cores": CORES,
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C would, which puts things in order, and by force if that takes long."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(ENDS_S)
    except subprocess.TimeoutExpired:
        process.kill()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("quiet-figures"))
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), metavar="PART", help="whatever they need")
    parser.add_argument("--gpu", action="store_true", help="the parts that need a GPU")
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--again", action="store_true", help="run parts that ended well before, too")
    parser.add_argument("--list", action="store_true", help="say what the parts are, and run none")
    options = parser.parse_args(arguments)
    parts = options.parts or [name for name, part in PARTS.items() if part.needs_gpu == options.gpu]
    if options.list:
        for name, part in PARTS.items():
            where = "GPU" if part.needs_gpu else "   "
            print(f"{name:14}{where} {part.takes_s:4} s, {part.limit_s:4} s at most   {part.about}")
        return
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    summary = out / "quiet.json"
    ended: dict[str, Any] = json.loads(summary.read_text()) if summary.exists() else {}
    ends_at = time.monotonic() + 60 * options.minutes
    for name in parts:
        left_s = ends_at - time.monotonic()
        if (ended.get(name, {}).get("status") == 0 and not options.again) or left_s < PARTS[name].takes_s:
            continue
        print(f"{name}: {PARTS[name].about}", flush=True)
        ended[name] = run_part(name, out, min(PARTS[name].limit_s, left_s))
        summary.write_text(json.dumps(ended, indent=1) + "\n")
        print(f"  status {ended[name]['status']} after {ended[name]['seconds']} s", flush=True)
    sys.exit(0 if all(ended.get(name, {}).get("status") == 0 for name in parts) else 1)


if __name__ == "__main__":
    main()
