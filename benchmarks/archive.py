"""The archive at 100,000 or a million programs of 2 KB: how fast it takes them, answers, and opens again.

    python benchmarks/archive.py                                                  # prints a table
    python benchmarks/archive.py --json FILE                                      # and writes it
    python benchmarks/archive.py --n-programs 1000000 --batch 4096 --live 10      # the same ten times as large

Programs and verdicts are made up; they are as long as real ones, spread over some 96 cells, and every one has the
launches it was compiled to. From the 20,000th on they are earlier ones with other ids and other first lines. Each
question is asked `--n-questions` times of the archive as it stands at a tenth of the programs and right after all
inserts, and again after it was closed and opened. `--live` then has the archive's actor take single programs for so
many seconds, from 64 who each wait until theirs is durable.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import gc
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from db.actor import ArchiveActor
from db.archive import ProgramArchive
from db.measures import TIERS
from db.records import (
    Candidate,
    Capture,
    DeviceKind,
    Evaluation,
    Gate,
    GateResult,
    Hardware,
    Latency,
    LatencyKind,
    Launch,
    LaunchTraffic,
    Lineage,
    Outcome,
    PrecisionClass,
    Problem,
    Profile,
    Run,
    Verdict,
    Workload,
)
from evolve.cluster import connected
from evolve.remote_archive import RemoteArchive

N_ISLANDS = 8
SOURCE_BYTES = 2048
N_DISTINCT = 20_000
N_INSERTERS = 64
MARKS = {"insert": 5000.0, "elites": 10.0, "best": 10.0, "parents": 10.0, "reopen": 1.0}
LARGE_MARKS = {**MARKS, "insert": 20_000.0, "reopen": 2.0, "live": 1000.0}

PROBLEM = Problem(
    name="softmax",
    kind="triton",
    source="def kernel_function(x):\n    return x\n\n\ndef get_inputs():\n    return []\n",
    workloads=(Workload(name="full", role="full", sizes={"n": 4096}), Workload(name="small", role="small")),
)
HARDWARE = Hardware(
    name="H100", target="h100", compute_capability=(9, 0), n_sms=132, dram_gb_s=3000, l2_bytes=50_000_000, l2_gb_s=6000,
    dram_bytes=80_000_000_000, tflops={"fp32": 60.0}, shared_bytes_per_sm=233472, shared_bytes_per_block=232448,
    sm_clock_ghz=1.7,
)  # fmt: skip
RUN = Run(
    run_id="bench", problem_id=PROBLEM.problem_id, rng_seed=0, device=DeviceKind.CPU, hardware=HARDWARE,
    precision=PrecisionClass.REFERENCE, latency_kind=LatencyKind.MODELLED, config={},
)  # fmt: skip
TRAFFIC = LaunchTraffic(
    load_bytes=1e9, store_bytes=1e9, dram_read_bytes=1e9, dram_write_bytes=1e9, flops={"fp32": 1e9, "sfu": 2e8}
)


def evaluations(n: int, rng: random.Random) -> Iterator[Evaluation]:
    """`n` judged candidates, each made from an earlier one; 70% correct, over three octaves of latency."""
    ids: list[str] = []
    first = [evaluation(k, ids, rng) for k in range(min(n, N_DISTINCT))]
    gc.collect()
    gc.freeze()  # what is made up here stays, and the collector need not walk it while others are measured
    yield from first
    for k in range(N_DISTINCT, n):
        yield varied(first[k % N_DISTINCT], k, rng)


def varied(of: Evaluation, k: int, rng: random.Random) -> Evaluation:
    """The same again as another program of the same cell."""
    program_id, fingerprint = f"{rng.getrandbits(64):016x}", f"{rng.getrandbits(64):016x}"
    candidate_id, source = f"bench-{k % N_ISLANDS}-{k:06d}", of.candidate.source.replace("step = ", f"step = {k}", 1)
    candidate = of.candidate.model_copy(
        update={"candidate_id": candidate_id, "source": source, "island": k % N_ISLANDS}
    )
    verdict = of.verdict.model_copy(
        update={"candidate_id": candidate_id, "program_id": program_id, "fingerprint": fingerprint}
    )
    return of.model_copy(update={"candidate": candidate, "verdict": verdict})


def evaluation(k: int, ids: list[str], rng: random.Random) -> Evaluation:
    body = "".join(f"    acc_{rng.randrange(1000)} = tl.load(x_ptr + {rng.randrange(10**6)})\n" for _ in range(60))
    source = f"def kernel_function(x):\n    step = {k}\n{body}"[:SOURCE_BYTES]
    program_id = f"{rng.getrandbits(64):016x}"
    parents = (rng.choice(ids[-4096:]),) if ids else ()
    ids.append(program_id)
    candidate = Candidate(
        candidate_id=f"bench-{k % N_ISLANDS}-{k:06d}", run_id=RUN.run_id, problem_id=PROBLEM.problem_id,
        island=k % N_ISLANDS, source=source, entry_point=PROBLEM.entry_point,
        lineage=Lineage(operator="retune", technique=f"technique_{k % 20}", parents=parents, detail="BLOCK 1 -> 2"),
    )  # fmt: skip
    return Evaluation(candidate=candidate, verdict=verdict(candidate, program_id, rng))


def verdict(candidate: Candidate, program_id: str, rng: random.Random) -> Verdict:
    launch = Launch(
        kernel="softmax_kernel", grid=(4096, 1, 1), num_warps=8, shared_bytes=4096, text_hash=program_id,
        binding_hash=program_id[::-1], n_registers=64, constexprs={"BLOCK": 1024}, traffic=TRAFFIC,
    )  # fmt: skip
    capture = Capture(workload="full", target="h100", triton_version="3.7.1", launches=(launch,))
    judged: dict[str, Any] = {
        "candidate_id": candidate.candidate_id,
        "run_id": candidate.run_id,
        "problem_id": candidate.problem_id,
        "program_id": program_id,
        "hardware_id": HARDWARE.hardware_id,
        "fingerprint": capture.fingerprint,
        "captures": (capture,),
        "versions": {"torch": "2.13.0", "triton": "3.7.1"},
        "seconds": {"prepare": 0.4, "correctness": 0.2},
    }
    if rng.random() > 0.7:
        refused = GateResult(gate=Gate.CORRECTNESS, passed=False, reason="element 3 is 1.0, expected 0.5")
        return Verdict(**judged, outcome=Outcome.FAILED, gates=(refused,))
    latency_us = 500 * 2 ** rng.uniform(-1.5, 1.5)
    return Verdict(
        **judged, outcome=Outcome.CORRECT, gates=tuple(GateResult(gate=gate, passed=True) for gate in Gate),
        latency=Latency(
            kind=LatencyKind.MODELLED, method="model", device_us=latency_us, low_us=latency_us, high_us=latency_us,
            baseline_us=600.0, baseline_name="eager",
        ),
        profile=Profile(source="compiled", compute_sol_pct=20, memory_sol_pct=70), tier=rng.choice(TIERS),
    )  # fmt: skip


# -------------------------------------------------------------------------------------------------------- measuring


def fill(archive: ProgramArchive, n_programs: int, batch: int, n_questions: int) -> dict[str, Any]:
    """Inserts in batches; only the archive's time counts. Rows per second, over all and over the last tenth, the worst
    batch, and what questions take at a tenth of the programs."""
    archive.add_problem(PROBLEM)
    archive.add_run(RUN)
    source = evaluations(n_programs, random.Random(0))
    seconds: list[float] = []
    at_a_tenth: dict[str, Any] = {}
    while evaluations_now := [e for _, e in zip(range(batch), source, strict=False)]:
        seconds.append(seconds_of(partial(archive.insert, evaluations_now)))
        if not at_a_tenth and len(seconds) * batch >= n_programs / 10:
            at_a_tenth = ask(archive, n_questions)
    last = seconds[-max(1, len(seconds) // 10) :]
    return {
        "per_s": n_programs / sum(seconds), "last_tenth_per_s": len(last) * batch / sum(last),
        "median_batch_ms": 1e3 * statistics.median(seconds), "worst_batch_ms": 1e3 * max(seconds),
        "n_stalls": sum(s > 1 for s in seconds), "at_a_tenth": at_a_tenth,
    }  # fmt: skip


async def insert_live(path: Path, seconds: float) -> dict[str, float]:
    """Durable inserts a second through the archive's actor, one program in each, and how long one takes."""
    archive = RemoteArchive(ArchiveActor.remote(str(path)))  # type: ignore[attr-defined]
    await archive.open.remote()
    first = list(evaluations(2000, random.Random(1)))
    numbers, rng, took = iter(range(10**7, 2 * 10**7)), random.Random(2), list[float]()
    begin = time.perf_counter()

    async def insert_on() -> None:
        while time.perf_counter() - begin < seconds:
            k = next(numbers)
            one = varied(first[k % len(first)], k, rng)
            at = time.perf_counter()
            await archive.insert.remote([one])
            took.append(time.perf_counter() - at)

    await asyncio.gather(*(insert_on() for _ in range(N_INSERTERS)))
    lasted = time.perf_counter() - begin
    await archive.close.remote()
    return {"per_s": len(took) / lasted, **spread(took)}


def ask(archive: ProgramArchive, n: int) -> dict[str, dict[str, float]]:
    """Milliseconds of every question: median, 99th percentile, worst."""
    fingerprint = archive.query("SELECT fingerprint FROM evaluations WHERE seq = 777").rows[0][0]
    known = (PROBLEM.problem_id, HARDWARE.hardware_id, PrecisionClass.REFERENCE, fingerprint)
    draws = iter(range(10**9))
    questions: dict[str, Callable[[], object]] = {
        "elites": lambda: archive.elites(problem="softmax"),
        "best": lambda: archive.best("softmax"),
        "parents": lambda: archive.sample_parents("softmax", 8, next(draws), run_id=RUN.run_id, island=3),
        "known_fingerprint": lambda: archive.known_fingerprint(*known),
    }
    return {name: spread([seconds_of(question) for _ in range(n)]) for name, question in questions.items()}


def spread(seconds: list[float]) -> dict[str, float]:
    in_order = sorted(1e3 * s for s in seconds)
    p99 = in_order[min(len(in_order) - 1, round(0.99 * len(in_order)))]
    return {"median_ms": statistics.median(in_order), "p99_ms": p99, "worst_ms": in_order[-1]}


def seconds_of(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def reopen(path: Path) -> float:
    """Seconds until a fresh process has the archive open, after a clean close."""
    code = (
        "import sys, time; from db.archive import ProgramArchive; begin = time.perf_counter();"
        " archive = ProgramArchive.open(sys.argv[1]); print(time.perf_counter() - begin)"
    )
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True, cwd=root)
    return float(done.stdout)


def rss_mb() -> float:
    """Megabytes that this process has in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def measure(n_programs: int, batch: int, n_questions: int, live_s: float, folder: Path) -> dict[str, Any]:
    gc.freeze()  # as the archive's actor does
    path = folder / "archive.duckdb"
    archive = ProgramArchive.open(path)
    inserted = fill(archive, n_programs, batch, n_questions)
    n_cells = len(archive.elites())
    from_log = ask(archive, n_questions)
    closing_s = seconds_of(archive.close)
    reopen_s = reopen(path)
    with ProgramArchive.open(path) as again:
        from_file = ask(again, n_questions)
        memory_mb = rss_mb()
    result = {
        "n_programs": n_programs, "batch": batch, "n_cells": n_cells, "insert": inserted, "close_s": closing_s,
        "reopen_s": reopen_s, "file_mb": path.stat().st_size / 1e6, "memory_mb": memory_mb,
        "bytes_per_program": path.stat().st_size / n_programs,
        "at_a_tenth": inserted.pop("at_a_tenth"), "right_after_inserts": from_log, "after_reopening": from_file,
    }  # fmt: skip
    if live_s:
        with connected():
            result["live"] = asyncio.run(insert_live(path, live_s))
    return {**result, "missed": missed(result), "load_average": os.getloadavg()[0]}


def marks_of(result: dict[str, Any]) -> dict[str, float]:
    return LARGE_MARKS if result["n_programs"] >= 1_000_000 else MARKS


def missed(result: dict[str, Any]) -> list[str]:
    """The marks that are not met: rates that are too low, times that are too long."""
    marks = marks_of(result)
    found = {
        f"{when}: {name}": (result[when][name]["p99_ms"], marks[name])
        for when in ("right_after_inserts", "after_reopening")
        for name in ("elites", "best", "parents")
    }
    found["reopen"] = result["reopen_s"], marks["reopen"]
    rates = {"insert": (result["insert"]["per_s"], marks["insert"])}
    if "live" in result and "live" in marks:
        rates["live"] = result["live"]["per_s"], marks["live"]
    slow = [name for name, (value, mark) in found.items() if value > mark]
    return slow + [name for name, (value, mark) in rates.items() if value < mark]


def show(result: dict[str, Any]) -> None:
    """The result as a table, with the marks beside it."""
    marks = marks_of(result)
    size = f"{result['file_mb']:.0f} MB, {result['bytes_per_program']:.0f} bytes a program"
    print(f"{result['n_programs']:,} programs in {result['n_cells']} cells, {size}")
    print(f"load average {result['load_average']:.1f}; {result['memory_mb']:.0f} MB of memory with the archive open")
    insert = result["insert"]
    print(f"{'insert, batches of ' + str(result['batch']):32}{insert['per_s']:10,.0f} /s   mark {marks['insert']:,.0f}")
    print(f"{'  the last tenth':32}{insert['last_tenth_per_s']:10,.0f} /s")
    print(f"{'  median and worst batch':32}{insert['median_batch_ms']:10.1f} ms {insert['worst_batch_ms']:10.1f} ms")
    for when in ("at_a_tenth", "right_after_inserts", "after_reopening"):
        print(when.replace("_", " "))
        answers = result[when]
        for name, times in answers.items():
            mark = f"   mark {marks[name]:.0f}" if name in marks else ""
            print(f"  {name:30}{times['median_ms']:10.2f} ms median {times['p99_ms']:8.2f} ms p99{mark}")
    print(f"{'close, with its checkpoint':32}{result['close_s']:10.2f} s")
    print(f"{'reopen':32}{result['reopen_s']:10.2f} s    mark {marks['reopen']:.0f}")
    if "live" in result:
        live = result["live"]
        print(f"{'live, one durable insert each':32}{live['per_s']:10,.0f} /s   mark {LARGE_MARKS['live']:,.0f}")
        print(f"{'  each takes':32}{live['median_ms']:10.2f} ms median {live['p99_ms']:8.2f} ms p99")
    print(f"marks that were missed: {', '.join(result['missed']) or 'none'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n-programs", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--n-questions", type=int, default=300)
    parser.add_argument("--live", type=float, default=0.0, metavar="S", help="then insert one by one for so long")
    parser.add_argument("--machine", default="", help="said in the file")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        live_s = arguments.live
        result = measure(arguments.n_programs, arguments.batch, arguments.n_questions, live_s, Path(folder))
    show(result)
    if arguments.json:
        about = {"command": " ".join(["python", *sys.argv]), "machine": arguments.machine,
                 "date": datetime.datetime.now(datetime.UTC).date().isoformat()}  # fmt: skip
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(about | result, indent=2) + "\n")


if __name__ == "__main__":
    main()
