"""How long taking a model apart takes beyond compiling it: two of fifty kernels, and models that fall back.

    python -m benchmarks.decompose_time --out decompose_time.json      # needs a GPU

Both models are chains of layers of different widths, each with a norm and an activation that the compiler writes a
kernel of its own for. One has matrix products between them, beside which no kernel takes long enough to be searched;
the other has none, so every kernel becomes a problem. Compiling begins with an empty cache of Inductor; what taking
apart compiles is compiled as well.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

MODELS = Path(__file__).resolve().parent / "models"
N_LAYERS = 50
MARKS_S = {"chain": 60.0, "norms": 60.0, "lstm": 10.0, "wide_mlp": 10.0}
CHAIN = '''"""A chain of layers, no two of which are of the same widths."""

import torch
import torch.nn as nn

n_rows = 8192
n_layers = {n_layers}


class Model(nn.Module):
    def __init__(self, n_layers):
        super().__init__()
        widths = [256 + 16 * index for index in range(n_layers + 1)]
        pairs = zip(widths, widths[1:])
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(a, b), nn.LayerNorm(b), nn.GELU()) for a, b in pairs)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def get_inputs():
    return [torch.randn(n_rows, 256)]


def get_init_inputs():
    return [n_layers]
'''

NORMS = '''"""A chain of norms, each over a row that is shorter than the one before."""

import torch
import torch.nn as nn

n_rows = 16384
n_layers = {n_layers}
n_dropped = 16


class Model(nn.Module):
    def __init__(self, n_layers):
        super().__init__()
        widths = [n_dropped * (2 * n_layers - index) for index in range(n_layers)]
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in widths)

    def forward(self, x):
        for norm in self.norms:
            x = nn.functional.gelu(norm(x))[:, n_dropped:]
        return x


def get_inputs():
    return [torch.randn(n_rows, n_dropped * 2 * n_layers)]


def get_init_inputs():
    return [n_layers]
'''


def measured(path: Path, folder: Path) -> dict[str, Any]:
    """Seconds of one model, and what it was taken apart into."""
    from evaluators.decomposition.classify import whole_only
    from evaluators.decomposition.decompose import decompose
    from evaluators.problems import load_problem

    began = time.perf_counter()
    found = decompose(load_problem(str(path)), folder=folder / "weights")
    alone = whole_only(found)
    return {
        "kernels": len(found.graph.output.kernels) if found.graph else 0,
        "launches": len(found.graph.output.launches) if found.graph else 0,
        "parts": len(found.parts),
        "left_alone": len(found.left_alone),
        "falls_back": None if alone is None else f"{alone[0]}: {alone[1]}",
        "seconds": {**{name: round(s, 2) for name, s in found.seconds.items()}, "all": time.perf_counter() - began},
        "versions": found.versions,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=N_LAYERS)
    parser.add_argument("--out", type=Path, help="a file for the figures")
    options = parser.parse_args()
    figures: dict[str, Any] = {"at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "models": {}}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
        for name, text in (("chain", CHAIN), ("norms", NORMS)):
            (folder / f"{name}.py").write_text(text.format(n_layers=options.layers))
        for path in (folder / "chain.py", folder / "norms.py", MODELS / "lstm.py", MODELS / "wide_mlp.py"):
            its = measured(path, folder)
            its["mark_s"] = MARKS_S[path.stem]
            its["is_met"] = its["seconds"].get("decompose", 0.0) < its["mark_s"]
            figures["models"][path.stem] = its
            print(path.stem, json.dumps(its), flush=True)
    if options.out:
        options.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
