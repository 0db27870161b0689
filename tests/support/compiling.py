"""Compiles and runs many small programs in one other process, for tests that must not import Triton themselves.

Whether Triton interprets is fixed when it is imported, so each question has a process of its own: `compile_all` answers
with the machine code of every launch for a target without a GPU, `interpret_all` with the outputs.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def compile_all(sources: Sequence[str], aligned: bool = True, timeout_s: float = 280) -> list[Any]:
    """For each source the launches of its entry, as [kernel, grid, options, shared bytes, hash of .text]; or an error
    as text."""
    return _ask("compile", sources, aligned, timeout_s)


def interpret_all(sources: Sequence[str], aligned: bool = True, timeout_s: float = 280) -> list[Any]:
    """For each source the outputs of its entry on its own inputs, as flat lists of floats; or an error as text."""
    return _ask("interpret", sources, aligned, timeout_s)


def _ask(what: str, sources: Sequence[str], aligned: bool, timeout_s: float) -> list[Any]:
    environment = {**os.environ, "TRITON_INTERPRET": "1" if what == "interpret" else "0", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = str(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        environment["TRITON_CACHE_DIR"] = folder
        question = json.dumps({"what": what, "sources": list(sources), "aligned": aligned})
        command = [sys.executable, "-P", __file__]
        answer = subprocess.run(
            command, input=question, capture_output=True, text=True, timeout=timeout_s, env=environment, check=False
        )
    assert answer.returncode == 0, answer.stderr[-3000:]
    return list(json.loads(answer.stdout.splitlines()[-1]))


# ---------------------------------------------------------------------------------------------- in the other process


def main() -> None:
    question = json.loads(sys.stdin.read())
    answer_one = {"compile": _compiled, "interpret": _interpreted}[question["what"]]
    answers = []
    with tempfile.TemporaryDirectory() as folder:
        prepare = {"compile": _prepare_compiling, "interpret": _prepare_interpreting}[question["what"]]
        prepare()
        for i, source in enumerate(question["sources"]):
            path = Path(folder) / f"program_{i}.py"
            path.write_text(source)
            answers.append(_guarded(answer_one, path, question["aligned"]))
    print(json.dumps(answers))


def _guarded(answer_one: Callable[[Path, bool], Any], path: Path, aligned: bool) -> Any:
    try:
        return answer_one(path, aligned)
    except Exception as error:  # the boundary to programs under test
        return f"{type(error).__name__}: {error}"[-1500:]


def _load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _call(module: Any, inputs: list[Any]) -> list[Any]:
    entry = module.ModelNew() if hasattr(module, "ModelNew") else module.kernel_function
    outputs = entry(*inputs)
    return list(outputs) if isinstance(outputs, tuple | list) else [outputs]


def _interpreted(path: Path, aligned: bool) -> list[list[float]]:
    import torch

    torch.manual_seed(0)
    module = _load(path)
    with torch.no_grad():
        outputs = _call(module, module.get_inputs(aligned))
    return [t.double().flatten().tolist() for t in outputs]


def _prepare_interpreting() -> None:
    from evaluators.interpreter import shims

    shims.apply()


def _compiled(path: Path, aligned: bool) -> list[list[Any]]:
    import torch

    _launches.clear()
    module = _load(path)
    with torch.no_grad():
        _call(module, module.get_inputs(aligned))
    return list(_launches)


_launches: list[list[Any]] = []


def _prepare_compiling() -> None:
    """Launches compile for sm_90 and are not run; the host code around them runs on the CPU."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.runtime import jit

    class Target:
        def get_current_target(self) -> Any:
            return GPUTarget("cuda", 90, 32)

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: int) -> int:
            return device

    original = jit.JITFunction.run

    def run(fn: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        kernel = original(fn, *args, grid=grid, warmup=True, **options)
        if callable(grid):
            grid = grid({**dict(zip(fn.arg_names, args, strict=False)), **options})
        digest = hashlib.sha256(text_of(kernel.asm["cubin"])).hexdigest()
        metadata = kernel.metadata
        chosen = [metadata.num_warps, metadata.num_stages, metadata.maxnreg]
        _launches.append([fn.__name__, [int(g) for g in grid], chosen, metadata.shared, digest])

    triton.runtime.driver.set_active(Target())
    jit.JITFunction.run = run


def text_of(cubin: bytes) -> bytes:
    """The `.text` sections of an ELF file: the machine code without names, lines and folders."""
    offset, size, count, names_at = *struct.unpack_from("<Q", cubin, 40), *struct.unpack_from("<HHH", cubin, 58)
    headers = [struct.unpack_from("<IIQQQQ", cubin, offset + i * size) for i in range(count)]
    names = headers[names_at][4]
    found = []
    for name, _, _, _, start, length in headers:
        label = cubin[names + name : cubin.index(b"\0", names + name)]
        if label.startswith(b".text"):
            found.append(cubin[start : start + length])
    return b"".join(found)


if __name__ == "__main__":
    main()
