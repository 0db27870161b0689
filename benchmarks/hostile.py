"""Candidates of which three in ten try to break the judge, through the real evaluator on the CPU.

    python -m benchmarks.hostile                      # 1,000 candidates
    python -m benchmarks.hostile --candidates 100 --at-once 2

The host-code policy, which would refuse them all, is switched off: it is the sandbox that is tried. First the honest
ones alone, then all in a random order. Counted: candidates without a verdict, honest ones that did not pass, processes
that were left, and how many honest ones a second are judged, alone and in bad company. A hostile candidate that
computes keeps a core busy until its deadline, so the rate in company depends on `--deadline`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from db.records import Candidate, DeviceKind, EntryPoint, Gate, GateResult, Lineage, Outcome, Problem, Verdict
from evaluators.evaluator import Evaluator, EvaluatorSettings
from evaluators.opening import open_evaluator
from evaluators.problems import load_problem

RUN = "hostile"
SHARE = 0.3

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
IMPORTS = "import atexit, ctypes, os, signal, sys, threading, time\n"


class Specimen(NamedTuple):
    """A candidate, and what it tries; nothing for an honest one."""

    candidate: Candidate
    kind: str


class Judged(NamedTuple):
    specimen: Specimen
    verdict: Verdict | None
    problem: str  # what was raised in the place of a verdict
    seconds: float


def honest(problem: Problem, n: int) -> list[Specimen]:
    """The seed in `n` ways that no cache has seen."""
    made = []
    for i in range(n):
        source = re.sub(r"num_warps=\d+", f"num_warps={(1, 2, 4, 8)[i % 4]}", problem.seeds[0])
        made.append(_specimen(problem, source.replace("_kernel", f"_kernel_{i}"), f"honest-{i}", ""))
    return made


def hostile(problem: Problem, n: int, rng: random.Random) -> list[Specimen]:
    """Every kind in turn: at import or in forward, in the dry run or only under the interpreter."""
    made = []
    for i in range(n):
        kind, code = list(HOSTILE.items())[i % len(HOSTILE)]
        only_interpreted, at_import = rng.random() < 0.4, rng.random() < 0.4
        body = "\n".join("    " + line for line in code.splitlines())
        guard = "os.environ.get('TRITON_INTERPRET') == '1'" if only_interpreted else "True"
        attack = f"{IMPORTS}\n\ndef attack():\n    if not ({guard}): return\n{body}\n\n\n"
        call = "attack()\n" if at_import else ""
        source = attack + call + problem.seeds[0]
        if not at_import:
            source = source.replace("        out = torch.empty", "        attack()\n        out = torch.empty", 1)
        made.append(_specimen(problem, source.replace("_kernel", f"_kernel_h{i}"), f"hostile-{i}", kind))
    return made


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


def judge_all(evaluator: Evaluator, specimens: Sequence[Specimen], n_at_once: int) -> tuple[list[Judged], float]:
    """All verdicts, and how long it took."""

    def judge(specimen: Specimen) -> Judged:
        start = time.perf_counter()
        try:
            verdict, problem = evaluator.judge(specimen.candidate), ""
        except Exception as error:  # the finding: a candidate without a verdict
            verdict, problem = None, f"{type(error).__name__}: {error}"
        return Judged(specimen, verdict, problem, time.perf_counter() - start)

    start = time.perf_counter()
    with ThreadPoolExecutor(n_at_once) as threads:
        found = list(threads.map(judge, specimens))
    return found, time.perf_counter() - start


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


def living_in_workspaces() -> list[int]:
    """Processes whose working folder is a candidate's, whoever their parent is now."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if "/triton-evolve-zygote-" in str(path.readlink()) and "/child-" in str(path.readlink()):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Both rounds, and what was left after them."""
    rng = random.Random(0)
    problem = load_problem(arguments.problem)
    n_hostile = round(SHARE * arguments.candidates)
    good, bad = honest(problem, arguments.candidates - n_hostile), hostile(problem, n_hostile, rng)
    mixed = rng.sample([*good, *bad], arguments.candidates)
    deadlines = {"prepare_deadline_s": arguments.deadline, "evaluate_deadline_s": arguments.deadline}
    lived_before = set(living_in_workspaces())
    accept = GateResult(gate=Gate.STATIC, passed=True)
    with (
        patch("evaluators.preparer.check_policy", lambda *_: accept),
        open_evaluator(problem, EvaluatorSettings(**deadlines), DeviceKind.CPU) as evaluator,
    ):
        alone, alone_s = judge_all(evaluator, good, arguments.at_once)
        found, mixed_s = judge_all(evaluator, mixed, arguments.at_once)
        last, _ = judge_all(evaluator, honest(problem, 1), 1)
        isolation = evaluator.isolation
    time.sleep(1.0)
    ours = [one for one in found if not one.specimen.kind]
    theirs = [one for one in found if one.specimen.kind]
    rate_alone, rate = len(alone) / alone_s, len(ours) / mixed_s
    return {
        "command": f"python -m benchmarks.hostile --candidates {arguments.candidates} --at-once {arguments.at_once} "
        f"--deadline {arguments.deadline:g}",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "isolation": isolation,
        "candidates": len(found),
        "hostile": len(theirs),
        "without_a_verdict": [
            (one.specimen.kind, one.problem) for one in (*alone, *found, *last) if one.verdict is None
        ],
        "hostile_accepted": sorted(
            {one.specimen.kind for one in theirs if one.verdict and one.verdict.outcome is Outcome.CORRECT}
        ),
        "honest_not_passed": [
            one.verdict.reason[:200] for one in (*alone, *ours, *last) if one.verdict and not one.verdict.is_correct
        ],
        "alive_after": descendants(os.getpid()),
        "alive_in_workspaces": sorted(set(living_in_workspaces()) - lived_before),
        "honest_a_second_alone": round(rate_alone, 3),
        "honest_a_second_in_company": round(rate, 3),
        "share": round(rate / rate_alone, 3),
        "hostile_s_by_kind": {
            kind: round(sum(s) / len(s), 2)
            for kind in HOSTILE
            if (s := [one.seconds for one in theirs if one.specimen.kind == kind])
        },
        "hostile_outcomes": dict(
            Counter(" ".join(one.verdict.reason.split())[:90] if one.verdict else "none" for one in theirs)
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=max(2, (os.cpu_count() or 2)))
    parser.add_argument("--deadline", type=float, default=20.0, help="seconds that a candidate may take, in each phase")
    parser.add_argument("--problem", default="swiglu")
    parser.add_argument("--out", type=Path, help="a file for the figures")
    arguments = parser.parse_args()
    result = measure(arguments)
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n")
    bad = ("without_a_verdict", "honest_not_passed", "alive_after", "alive_in_workspaces")
    sys.exit(1 if any(result[name] for name in bad) else 0)


if __name__ == "__main__":
    main()
