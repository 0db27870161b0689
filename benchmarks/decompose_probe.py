"""Taking models apart and putting them together again on a GPU, step by step, with the whole traceback of what fails.

    python benchmarks/decompose_probe.py [NAME ...]

For each model of benchmarks/models: captures, reads, unwraps every kernel, holds each part's first program and its
reference against Inductor's kernels on the real tensors, measures shares of device time, stitches without winners, with
every kernel replaced by its unwrapped twin and with the groups replaced, and runs each file in a process that cannot
import this project. Inductor's outputs go to $OUT/inductor, decompositions and stitched files beside them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT / "benchmarks" / "models"
OUT = Path(os.environ.get("OUT", "decompose-out")).resolve()
WAY = os.environ.get("WAY", "compile")
SCRATCH = Path(os.environ.get("SCRATCH") or tempfile.mkdtemp(prefix="decompose-probe-"))  # tensors: too large to keep

# runs a stitched file where this project is not to be had
CHECK = """
import fcntl, importlib.util, json, sys, time, torch
data = torch.load(sys.argv[1], weights_only=True)
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
inputs = data["inputs"]

def checked(path):
    spec = importlib.util.spec_from_file_location("delivered", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.ModelNew(*data["arguments"])
    model.load_state_dict(data["state"])
    model = model.cuda().eval()
    answer = model(*inputs)
    torch.cuda.synchronize()
    answers = [answer] if torch.is_tensor(answer) else list(answer)
    found = {"worst": 0.0, "matches": len(answers) == len(data["expected"]), "strides": True}
    for one, other in zip(answers, data["expected"]):
        found["worst"] = max(found["worst"], float((one.double() - other.double()).abs().max()))
        found["matches"] &= torch.allclose(one, other, rtol=1e-3, atol=1e-3, equal_nan=True)
    found["strides"] = [list(one.stride()) for one in answers] == data["strides"]
    with open(sys.argv[2], "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for _ in range(10):
            model(*inputs)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(50):
            model(*inputs)
        torch.cuda.synchronize()
        found["call_us"] = round((time.perf_counter() - start) / 50 * 1e6, 1)
    found["inductor_imported"] = any(name.startswith("torch._inductor") for name in sys.modules)
    found["project_imported"] = any(name.split(".")[0] in ("evaluators", "evolve", "islands") for name in sys.modules)
    return json.dumps(found)

for path in sys.argv[3:]:
    name = path.rsplit("/", 1)[-1]
    try:
        with torch.no_grad():
            print(f"{name}: {checked(path)}", flush=True)
    except Exception:
        import traceback
        print(f"{name}: FAILED\\n{traceback.format_exc()}", flush=True)
"""


def main() -> None:
    if sys.argv[1:2] == ["--model"]:
        worker(sys.argv[2])
        return
    names = sys.argv[1:] or sorted(path.stem for path in MODELS.glob("*.py"))
    (OUT / "inductor").mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path, "OUT": str(OUT), "WAY": WAY, "SCRATCH": str(SCRATCH)}
    command = [sys.executable, "-P", str(Path(__file__).resolve()), "--model"]
    working = [
        (name, subprocess.Popen([*command, name], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        for name in names
    ]
    for name, process in working:
        try:
            text, _ = process.communicate(timeout=max(5.0, 100.0 - (time.perf_counter() - start)))
            print(f"== {name}\n{text.decode(errors='replace').rstrip()}", flush=True)
        except subprocess.TimeoutExpired:
            process.kill()
            print(
                f"== {name}\nFAILED: no answer in time\n{process.communicate()[0].decode(errors='replace')}", flush=True
            )
    print(f"== delivered files, after {time.perf_counter() - start:.0f} s")
    with ThreadPoolExecutor(4) as threads:
        for text in threads.map(check, names):
            print(text, flush=True)
    print(f"== done in {time.perf_counter() - start:.0f} s")


def check(name: str) -> str:
    """All delivered files of a model, in a process of its own."""
    files = [str(path) for path in sorted(OUT.glob(f"{name}.stitched_*.py"))]
    if not files:
        return f"{name}: no delivered file"
    command = [sys.executable, "-P", "-c", CHECK, str(SCRATCH / f"{name}.data.pt"), str(SCRATCH / "timing.lock")]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    try:
        done = subprocess.run(
            [*command, *files], env=environment, cwd="/", capture_output=True, timeout=90, check=False
        )
    except subprocess.TimeoutExpired as late:
        return f"{name}: FAILED: no answer in 90 s\n{(late.stdout or b'').decode(errors='replace')}"
    text = done.stdout.decode(errors="replace").strip()
    return text if done.returncode == 0 else f"{text}\n{name}: FAILED:\n{done.stderr.decode(errors='replace')[-3000:]}"


class Step:
    """A line for a step that worked, its traceback for one that did not."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> Step:
        self.start = time.perf_counter()
        return self

    def say(self, text: str) -> None:
        print(f"  {self.what}: {text}", flush=True)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        seconds = time.perf_counter() - self.start
        if error is None:
            print(f"ok {self.what} ({seconds:.1f} s)", flush=True)
        elif isinstance(error, Exception):
            print(f"FAILED {self.what} ({seconds:.1f} s)\n{''.join(traceback.format_exception(error))}", flush=True)
        return isinstance(error, Exception)


def worker(name: str) -> None:
    """Everything for one model, in this process."""
    from db.records import PrecisionClass
    from evaluators.decomposition.job import decompose_here
    from evaluators.problems import load_problem

    problem = load_problem(str(MODELS / f"{name}.py"))
    decomposition = None
    with Step("raw capture"):
        raw_capture(problem, name)
    with Step("decompose") as step:
        decomposition = decompose_here(problem, WAY, PrecisionClass.REFERENCE, SCRATCH / "weights")
        (OUT / f"{name}.decomposition.json").write_text(decomposition.model_dump_json(indent=1))
        report(decomposition, step)
    if decomposition is not None and decomposition.graph is not None:
        with Step("stitch"):
            write_stitched(decomposition, name)


def raw_capture(problem: object, name: str) -> None:
    """Inductor's outputs as text, before anything of them is read; and data for the delivered files."""
    import torch

    from db.records import PrecisionClass
    from evaluators.baseline_session import COMPILE_OPTIONS
    from evaluators.decomposition.capture import capture
    from evaluators.precision import apply_precision
    from evaluators.problems.reference import Reference

    apply_precision(PrecisionClass.REFERENCE)
    reference = Reference(problem, problem.full)  # type: ignore[attr-defined, arg-type]
    model = reference.model("cuda")
    inputs = reference.draw_inputs(0, "cuda")
    captured = capture(model, inputs, WAY)  # type: ignore[arg-type]
    for index, graph in enumerate(captured.graphs):
        suffix = f".{index}" if index else ""
        (OUT / "inductor" / f"{name}{suffix}.py").write_text(graph.source)
        print(f"  graph {index}: {len(graph.arguments)} arguments, {len(graph.buffers)} buffers with an ATen node")
        print(f"  kernels kept in a module: {len([n for n in graph.namespace if n.startswith('triton_')])}")
    if captured.break_reasons:
        print(f"  graph breaks: {captured.break_reasons}")
    compiled = torch.compile(model, dynamic=False, **COMPILE_OPTIONS[WAY])
    print(f"  compiled: call latency {call_us(lambda: compiled(*inputs)):.1f} us", flush=True)
    expected = reference.expected(inputs)
    # a file that is read again on a GPU has a view's values, not always its strides
    data = {"expected": [tensor.clone() for tensor in expected], "strides": [list(t.stride()) for t in expected]}
    data |= {"state": model.state_dict(), "inputs": inputs}
    torch.save({**data, "arguments": reference.init_args()}, SCRATCH / f"{name}.data.pt")


def call_us(call: Callable[[], object]) -> float:
    """What a caller waits, measured while no other model is timed."""
    import fcntl

    import torch

    with torch.no_grad(), (SCRATCH / "timing.lock").open("w") as lock:
        for _ in range(10):
            call()
        fcntl.flock(lock, fcntl.LOCK_EX)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(50):
            call()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / 50 * 1e6


def report(decomposition: object, step: Step) -> None:
    from evaluators.decomposition.classify import whole_only

    d = decomposition
    step.say(f"{d.n_graphs} graphs, {d.device_us:.1f} us of device time, {d.seconds} {d.reason}")  # type: ignore[attr-defined]
    for share in d.shares:  # type: ignore[attr-defined]
        step.say(
            f"share {share.share:6.1%} {share.device_us:9.1f} us {'extern' if share.is_extern else ''} {share.name}"
        )
    for part in d.parts:  # type: ignore[attr-defined]
        kernels = ", ".join(part.part.kernels)
        step.say(f"part {part.part.name} {part.share:.1%} reference {part.reference}: {kernels}")
    for left in d.left_alone:  # type: ignore[attr-defined]
        step.say(f"left alone {left.name} {left.share:.1%}: {left.reason}")
    step.say(f"whole only: {whole_only(d)}")  # type: ignore[arg-type]
    if d.graph is not None:  # type: ignore[attr-defined]
        step.say(f"configurations {json.dumps({k: c.model_dump() for k, c in d.graph.chosen.items()})}")  # type: ignore[attr-defined]


def write_stitched(decomposition: object, name: str) -> None:
    """Without winners, with every single kernel's twin, and with the twins of the groups."""
    from evaluators.decomposition.decompose import stitch

    parts = decomposition.parts  # type: ignore[attr-defined]
    single = {p.part.name: p.problem.seeds[0] for p in parts if len(p.part.kernels) == 1}
    groups = {p.part.name: p.problem.seeds[0] for p in parts if len(p.part.kernels) > 1}
    for label, winners in (("none", {}), ("kernels", single), ("groups", groups)):
        if winners or label == "none":
            source = stitch(decomposition, winners)  # type: ignore[arg-type]
            (OUT / f"{name}.stitched_{label}.py").write_text(source)
            print(f"  stitched with {len(winners)} {label}: {len(source.splitlines())} lines", flush=True)


if __name__ == "__main__":
    main()
