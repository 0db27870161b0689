"""Runs `kernel_function(x)` of a source with some of the shims, in a child."""

from typing import Any

import torch

from evaluators.interpreter import bfloat16, shims
from evaluators.sandbox.candidate import build, load_candidate

SHIMS = {
    "loop_bounds_at_run_time": shims.loop_bounds_at_run_time,
    "scalar_arguments": shims.scalar_arguments,
    "libdevice_functions": shims.libdevice_functions,
    "running_sums": shims.running_sums,
    "bfloat16": bfloat16.install,
    "autotuned_kernels": shims.autotuned_kernels,
    "no_borrowed_names": shims.no_borrowed_names,
}


def run(channel: Any, payload: dict[str, Any]) -> None:
    for name, install in SHIMS.items():
        if name != payload["without"]:
            install()
    x = torch.tensor(payload["x"], dtype=getattr(torch, payload.get("dtype", "float32")))
    answer = build(load_candidate(payload["source"]), "kernel_function")(x)
    channel.send({"answer": answer.tolist(), "dtype": str(answer.dtype)})
