"""Candidates of which three in ten try to break the judge, through the real evaluator, on the CPU or on a GPU.

    python -m benchmarks.hostile --jobs 4                        # 1,000 candidates, a machine with 32 cores
    python -m benchmarks.hostile --candidates 100 --at-once 2    # two cores
    python -m benchmarks.hostile --candidates 300 --device cuda

The host-code policy, which would refuse them all, is switched off: it is the sandbox that is tried. First honest ones
alone, then all in a random order. A hostile one attacks in the dry run, or only where its kernels run, or only from its
third call there on, when a GPU is held for it. Counted: candidates without a verdict, honest ones that did not pass,
processes that were left, GPU memory that did not come back, and how many honest ones a second are judged, alone and in
bad company. A hostile candidate that computes keeps a core busy until its deadline, so the rate in company depends on
the deadlines, which are the same in both rounds. `--jobs` evaluators in processes of their own share the candidates.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import multiprocessing
import os
import queue
import random
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from unittest.mock import patch

from benchmarks.victims import processes_of
from db.records import Candidate, DeviceKind, EntryPoint, Gate, GateResult, Lineage, Outcome, Problem, Verdict
from evaluators.evaluator import Evaluator, EvaluatorSettings
from evaluators.opening import open_evaluator
from evaluators.problems import load_problem

RUN = "hostile"
SHARE = 0.3
MEETING_S = 900.0

# What runs in the candidate's process, by kind. `ALWAYS` ignores every signal that can be ignored.
ALWAYS = "[signal.signal(n, signal.SIG_IGN) for n in range(1, 65) if n not in (9, 19, 32, 33)]\n"
HOSTILE: dict[str, str] = {
    "loop": "while True: pass",
    "loop, deaf to signals": ALWAYS + "while True: pass",
    "sleep": "time.sleep(3600)",
    "segmentation fault": "ctypes.string_at(0)",
    "abort": "os.abort()",
    "leaves with 0": "os._exit(0)",
    "leaves politely": "sys.exit(0)",
    "kills everyone": "os.kill(-1, 9)",
    "kills its parent": "os.kill(os.getppid(), 9); time.sleep(3600)",
    "fork bomb": "while True:\n    try: os.fork()\n    except OSError: time.sleep(0.01)",
    "threads": "while True: threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()",
    "daemon": "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(3600)\nos._exit(0)",
    "prints gigabytes": "while True: print('x' * (1 << 20))",
    "writes gigabytes": "n = 0\nwhile True:\n    n += 1\n    open(f'f{n}', 'wb').write(b'x' * (1 << 26))",
    "memory": "kept = []\nwhile True: kept.append(b'x' * (1 << 26))",
    "closes its pipes": "os.closerange(3, 4096); time.sleep(3600)",
    "closes its pipes and leaves": "os.closerange(0, 4096); os._exit(0)",
    "writes into its pipes": "for fd in range(3, 64):\n    try: os.write(fd, b'\\xff' * 64)\n    except OSError: pass",
    "raises something odd": "raise type('Odd', (BaseException,), {'__str__': lambda self: 'x' * (1 << 24)})",
    "recursion": "sys.setrecursionlimit(1 << 30)\ndef f(): return f()\nf()",
    "stops itself": "os.kill(os.getpid(), 19)",
    "at exit": "atexit.register(time.sleep, 3600)",
    "patches the channel": "import evaluators.sandbox.channel as c\nc.Channel.send = lambda *_: time.sleep(3600)",
}
# on a GPU alone: nothing is launched on the CPU, and the interpreter would take the endless one for a slow one
HOSTILE_KERNELS: dict[str, str] = {
    "endless kernel": "endless_kernel[(1,)](torch.zeros(2, device='cuda'), torch.zeros(2, device='cuda'))",
    "endless kernel on all multiprocessors": "for _ in range(9): endless_kernel[(9999,)]"
    "(torch.zeros(2, device='cuda'), torch.zeros(2, device='cuda'))",
    "illegal access": "wild_kernel[(4096,)](torch.zeros(2, device='cuda'))\ntorch.cuda.synchronize()",
}
# known to hurt others meanwhile (docs/threat-model.md), so only where it is asked for
FILLING: dict[str, str] = {
    "memory of the GPU": "kept = []\nwhile True: kept.append(torch.empty(1 << 30, device='cuda'))",
    "memory of the GPU, kept": "kept = []\ntry:\n    while True: kept.append(torch.empty(1 << 28, device='cuda'))\n"
    "except RuntimeError: time.sleep(3600)",
}
KERNELS = """
@triton.jit
def endless_kernel(x, y):
    i = 0
    while i >= 0:
        i = (i + tl.load(x + i % 2).to(tl.int32)) % 1000
    tl.store(y, i)


@triton.jit
def wild_kernel(x):
    tl.store(x + (tl.program_id(0).to(tl.int64) + 1) * 4294967296, 1.0)
"""
IMPORTS = "import atexit, ctypes, os, signal, sys, threading, time\n"
KERNEL_IMPORTS = "import torch\nimport triton\nimport triton.language as tl\n"
IS_LIVE = {
    DeviceKind.CPU: "os.environ.get('TRITON_INTERPRET') == '1'",
    DeviceKind.CUDA: "__import__('torch').cuda.is_initialized()",
}
LATE = 3  # calls: after the dry runs
LOST_MB = 512  # of a GPU's memory, that contexts of this process itself may hold


class Specimen(NamedTuple):
    """A candidate, and what it tries; nothing for an honest one."""

    candidate: Candidate
    kind: str


class Judged(NamedTuple):
    specimen: Specimen
    verdict: Verdict | None
    problem: str  # what was raised in the place of a verdict
    seconds: float


class Round(NamedTuple):
    """One round of one job. Times in seconds since the epoch."""

    judged: list[Judged]
    began: float
    ended: float


class Found(NamedTuple):
    """What one job found: both rounds, an honest candidate after them, and what was left."""

    alone: Round
    mixed: Round
    last: Round
    isolation: str
    alive: list[int]
    gpu_lost_mb: float


class Meeting(Protocol):
    """Where jobs wait for each other."""

    def wait(self, timeout: float | None = None) -> int: ...


def honest(problem: Problem, n: int) -> list[Specimen]:
    """The seed in `n` ways that no cache has seen."""
    made = []
    for i in range(n):
        source = re.sub(r"num_warps=\d+", f"num_warps={(1, 2, 4, 8)[i % 4]}", problem.seeds[0])
        made.append(_specimen(problem, source.replace("_kernel", f"_kernel_{i}"), f"honest-{i}", ""))
    return made


def hostile(problem: Problem, n: int, rng: random.Random, device: DeviceKind, *, fills: bool) -> list[Specimen]:
    """Every kind in turn: at import or in forward; at once, only where kernels run, or only in a late call there."""
    on_gpu = {**HOSTILE_KERNELS, **(FILLING if fills else {})} if device is DeviceKind.CUDA else {}
    kinds = list({**HOSTILE, **on_gpu}.items())
    made = []
    for i in range(n):
        kind, code = kinds[i % len(kinds)]
        is_kernel = kind in on_gpu
        when = "live" if is_kernel else rng.choice(("at once", "live", "late"))
        at_import = when != "late" and rng.random() < 0.4
        source = _attacking(problem.seeds[0], code, when, at_import, is_kernel, device)
        made.append(_specimen(problem, source.replace("_kernel", f"_kernel_h{i}"), f"hostile-{i}", kind))
    return made


def _attacking(seed: str, code: str, when: str, at_import: bool, is_kernel: bool, device: DeviceKind) -> str:
    body = "".join(f"    {line}\n" for line in code.splitlines())
    guard = "" if when == "at once" else f"    if not ({IS_LIVE[device]}): return\n"
    if when == "late":
        guard += f"    calls.append(1)\n    if len(calls) < {LATE}: return\n"
    kernels = KERNEL_IMPORTS + KERNELS if is_kernel else ""
    attack = f"{IMPORTS}{kernels}\ncalls = []\n\n\ndef attack():\n{guard}{body}\n\n"
    if at_import:
        return f"{attack}attack()\n{seed}"
    return attack + seed.replace("        out = torch.empty", "        attack()\n        out = torch.empty", 1)


def _specimen(problem: Problem, source: str, name: str, kind: str) -> Specimen:
    candidate = Candidate(
        candidate_id=f"{RUN}-0-{name}",
        run_id=RUN,
        problem_id=problem.problem_id,
        island=0,
        source=source,
        entry_point=EntryPoint.MODEL,
        lineage=Lineage(operator="seed"),
    )
    return Specimen(candidate, kind)


def judge_all(evaluator: Evaluator, specimens: Sequence[Specimen], n_at_once: int) -> Round:
    """All verdicts, and how long it took."""

    def judge(specimen: Specimen) -> Judged:
        start = time.perf_counter()
        try:
            verdict, problem = evaluator.judge(specimen.candidate), ""
        except Exception as error:  # the finding: a candidate without a verdict
            verdict, problem = None, f"{type(error).__name__}: {error}"
        return Judged(specimen, verdict, problem, time.perf_counter() - start)

    began = time.time()
    with ThreadPoolExecutor(n_at_once) as threads:
        found = list(threads.map(judge, specimens))
    return Round(found, began, time.time())


def descendants(pid: int) -> list[int]:
    """Living processes below one, by what /proc says of parents."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if fields[0] != "Z":
            parents[int(path.parent.name)] = int(fields[1])
    found, waiting = [], [pid]
    while waiting:
        children = [child for child, parent in parents.items() if parent == waiting[0]]
        found += children
        waiting = [*waiting[1:], *children]
    return found


def run_job(arguments: argparse.Namespace, index: int, meeting: Meeting) -> Found:
    """One evaluator, and every so-manyth candidate."""
    rng, device = random.Random(0), DeviceKind(arguments.device)
    problem = load_problem(arguments.problem)
    n_hostile = round(SHARE * arguments.candidates)
    good = honest(problem, arguments.candidates - n_hostile)
    mixed = rng.sample(
        [*good, *hostile(problem, n_hostile, rng, device, fills=arguments.fill_gpu)], arguments.candidates
    )
    settings = EvaluatorSettings(prepare_deadline_s=arguments.prepare_deadline, evaluate_deadline_s=arguments.deadline)
    free_before = free_gpu_mb(device)
    accept = GateResult(gate=Gate.STATIC, passed=True)
    with (
        patch("evaluators.preparer.check_policy", lambda *_: accept),
        open_evaluator(problem, settings, device) as evaluator,
    ):
        judge_all(evaluator, honest(problem, 1), 1)  # the first one pays for what is made once
        meeting.wait(MEETING_S)
        alone = judge_all(evaluator, good[: arguments.alone][index :: arguments.jobs], arguments.at_once)
        meeting.wait(MEETING_S)
        found = judge_all(evaluator, mixed[index :: arguments.jobs], arguments.at_once)
        last = judge_all(evaluator, honest(problem, 1), 1)
        isolation = evaluator.isolation
    time.sleep(1.0)
    gc.collect()
    return Found(alone, found, last, isolation, descendants(os.getpid()), free_before - free_gpu_mb(device))


def free_gpu_mb(device: DeviceKind) -> float:
    """Free memory of the GPU; 0 without one. The first call makes a context of this process."""
    if device is DeviceKind.CPU:
        return 0.0
    import torch

    torch.cuda.empty_cache()
    return float(torch.cuda.mem_get_info()[0]) / 1e6


def _work(arguments: argparse.Namespace, index: int, meeting: Meeting, answers: Any) -> None:
    answers.put(run_job(arguments, index, meeting))


def run_jobs(arguments: argparse.Namespace) -> list[Found]:
    """All jobs side by side."""
    if arguments.jobs == 1:
        return [run_job(arguments, 0, threading.Barrier(1))]
    context = multiprocessing.get_context("spawn")
    answers, meeting = context.Queue(), context.Barrier(arguments.jobs)
    jobs = [context.Process(target=_work, args=(arguments, index, meeting, answers)) for index in range(arguments.jobs)]
    for job in jobs:
        job.start()
    found: list[Found] = []
    while len(found) < len(jobs):
        try:
            found.append(answers.get(timeout=1.0))
        except queue.Empty:
            if any(job.exitcode for job in jobs):
                for job in jobs:
                    job.kill()
                raise SystemExit("a job ended without an answer") from None
    for job in jobs:
        job.join()
    return found


def rate_of(rounds: Sequence[Round]) -> float:
    """Honest candidates a second over rounds that went on side by side."""
    n_honest = sum(not one.specimen.kind for found in rounds for one in found.judged)
    return n_honest / (max(one.ended for one in rounds) - min(one.began for one in rounds))


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Both rounds, and what was left after them."""
    began = time.time()
    mark = f"hostile-{os.getpid()}"
    # the sandbox gives its processes few variables; where to import from is one of them
    paths = [str(Path.cwd()), f"/nowhere/{mark}", os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    jobs = run_jobs(arguments)
    found = [one for job in jobs for one in job.mixed.judged]
    undisturbed = [one for job in jobs for part in (job.alone, job.last) for one in part.judged]
    ours = [one for one in found if not one.specimen.kind]
    theirs = [one for one in found if one.specimen.kind]
    rate_alone, rate = rate_of([job.alone for job in jobs]), rate_of([job.mixed for job in jobs])
    return {
        "command": " ".join(["python -m benchmarks.hostile", *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "seconds": round(time.time() - began, 1),
        "isolation": jobs[0].isolation,
        "candidates": len(found),
        "hostile": len(theirs),
        "without_a_verdict": [
            (one.specimen.kind, one.problem) for one in (*undisturbed, *found) if one.verdict is None
        ],
        "hostile_accepted": sorted(
            {one.specimen.kind for one in theirs if one.verdict and one.verdict.outcome is Outcome.CORRECT}
        ),
        "honest_not_passed": [
            one.verdict.reason[:200] for one in (*undisturbed, *ours) if one.verdict and not one.verdict.is_correct
        ],
        "alive_after": [pid for job in jobs for pid in job.alive],
        "alive_anywhere": [
            one.command for one in processes_of(mark) if "multiprocessing.resource_tracker" not in one.command
        ],
        "gpu_lost_mb": round(sum(job.gpu_lost_mb for job in jobs), 1),
        "honest_a_second_alone": round(rate_alone, 3),
        "honest_a_second_in_company": round(rate, 3),
        "share": round(rate / rate_alone, 3),
        "hostile_s_by_kind": {
            kind: round(sum(s) / len(s), 2)
            for kind in {**HOSTILE, **HOSTILE_KERNELS, **FILLING}
            if (s := [one.seconds for one in theirs if one.specimen.kind == kind])
        },
        "longest_honest_s": round(max(one.seconds for one in ours), 2),
        "hostile_outcomes": dict(
            Counter(" ".join(one.verdict.reason.split())[:90] if one.verdict else "none" for one in theirs)
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--device", choices=[kind.value for kind in DeviceKind], default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="evaluators, each in a process of its own")
    parser.add_argument("--at-once", type=int, help="candidates that each of them judges side by side")
    parser.add_argument("--alone", type=int, help="honest candidates of the undisturbed round")
    parser.add_argument("--deadline", type=float, help="seconds for a candidate where its kernels run: 6, 2.5 on a GPU")
    parser.add_argument("--prepare-deadline", type=float, help="seconds for its dry run: 6")
    parser.add_argument("--fill-gpu", action="store_true", help="some fill the GPU's memory, too, which others feel")
    parser.add_argument("--problem", default="swiglu")
    parser.add_argument("--out", type=Path, help="a file for the figures")
    arguments = parser.parse_args()
    is_cpu = arguments.device == "cpu"
    # those that sleep until their deadline need no core
    arguments.at_once = arguments.at_once or max(2, 2 * (os.cpu_count() or 2) // arguments.jobs)
    arguments.alone = arguments.alone or max(arguments.candidates // (5 if is_cpu else 3), 1)
    arguments.deadline = arguments.deadline or (6.0 if is_cpu else 2.5)
    arguments.prepare_deadline = arguments.prepare_deadline or 6.0
    result = measure(arguments)
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.out is not None:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text + "\n")
    bad = ("without_a_verdict", "honest_not_passed", "alive_after", "alive_anywhere")
    sys.exit(1 if any(result[name] for name in bad) or result["gpu_lost_mb"] > LOST_MB else 0)


if __name__ == "__main__":
    main()
