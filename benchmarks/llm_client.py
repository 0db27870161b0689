"""What the engine adds to a call of a language model, and many calls in flight.

    python -m benchmarks.llm_client                 # prints JSON
    python -m benchmarks.llm_client --json FILE     # and writes it

A server in a process of its own answers over HTTP after a fixed delay. The overhead of a call is its time beyond that
delay, through litellm and back, with a prompt as long as real ones; one call at a time. Beside it stand the same calls
made of litellm alone. Then many calls are made at once, which the server answers after `--slow-s` seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import multiprocessing
import os
import platform
import resource
import statistics
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.llm_server import LlmServer, answer  # noqa: E402

from islands.llm.client import LlmClient, LlmSettings  # noqa: E402
from islands.llm.exchange import Completion, Message, Request  # noqa: E402
from islands.llm.keys import Keys  # noqa: E402
from islands.llm.models import read_model  # noqa: E402
from islands.llm.provider import load_litellm  # noqa: E402

MARK_MS = 20.0
PROMPT_BYTES = 24_000
ANSWER_BYTES = 8_000


def serve(delay_s: float, ports: Any) -> None:
    """A server for as long as its process lives; tells its port."""
    with LlmServer([answer("x = 1\n" * (ANSWER_BYTES // 6), usage=(7000, 2500), delay_s=delay_s)]) as server:
        ports.put(server.port)
        while True:
            time.sleep(3600)


class Server:
    """`serve` in a process of its own, while the `with` lasts."""

    def __init__(self, delay_s: float) -> None:
        context = multiprocessing.get_context("spawn")
        self._ports = context.Queue()
        self._process = context.Process(target=serve, args=(delay_s, self._ports), daemon=True)

    def __enter__(self) -> str:
        self._process.start()
        return f"http://127.0.0.1:{self._ports.get(timeout=60)}/v1"

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join()


def client_at(api_base: str) -> LlmClient:
    model = read_model(f"openai/scripted,api_base={api_base},usd_per_mtok_in=3,usd_per_mtok_out=15")
    return LlmClient([model], Keys({}), settings=LlmSettings(n_tries=1))


def request(n: int) -> Request:
    text = f"{n} " + "def kernel(x): return x  # why is it slow\n" * (PROMPT_BYTES // 42)
    return Request(messages=(Message(role="system", content="Answer."), Message(role="user", content=text)))


async def overhead_ms(api_base: str, delay_s: float, n_calls: int) -> dict[str, float]:
    """Milliseconds beyond the server's delay, of calls one after the other."""
    client = client_at(api_base)
    await client.prepare()
    for n in range(5):
        await client.complete(request(n))
    taken = []
    for n in range(n_calls):
        started = time.perf_counter()
        outcome = await client.complete(request(n))
        assert isinstance(outcome, Completion), outcome
        taken.append((time.perf_counter() - started - delay_s) * 1e3)
    return spread(taken)


def litellm_alone(api_base: str, delay_s: float, n_calls: int) -> dict[str, float]:
    """In a process of its own: litellm does not take to several event loops."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(run_litellm, (api_base, delay_s, n_calls))


def run_litellm(api_base: str, delay_s: float, n_calls: int) -> dict[str, float]:
    return asyncio.run(litellm_ms(api_base, delay_s, n_calls))


async def litellm_ms(api_base: str, delay_s: float, n_calls: int) -> dict[str, float]:
    """The same calls without the client."""
    litellm = load_litellm()
    taken = []
    for n in range(n_calls + 5):
        messages = [message.model_dump() for message in request(n).messages]
        started = time.perf_counter()
        await litellm.acompletion(model="openai/scripted", messages=messages, api_base=api_base, api_key="no-key")
        taken.append((time.perf_counter() - started - delay_s) * 1e3)
    return spread(taken[5:])


async def at_once(api_base: str, slow_s: float, n_calls: int) -> dict[str, float]:
    """Many calls in flight, each of which the server takes `slow_s` for."""
    client = client_at(api_base)
    await client.prepare()
    cpu, started = time.process_time(), time.perf_counter()
    outcomes = await asyncio.gather(*(client.complete(request(n)) for n in range(n_calls)))
    seconds = time.perf_counter() - started
    return {
        "n_calls": n_calls,
        "n_answered": sum(isinstance(outcome, Completion) for outcome in outcomes),
        "answer_s": slow_s,
        "seconds": round(seconds, 2),
        "cpu_ms_per_call": round((time.process_time() - cpu) / n_calls * 1e3, 2),
        "slowest_s": round(max(outcome.seconds for outcome in outcomes), 2),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def spread(taken_ms: list[float]) -> dict[str, float]:
    p95 = statistics.quantiles(taken_ms, n=20)[-1]
    return {"median_ms": round(statistics.median(taken_ms), 2), "p95_ms": round(p95, 2), "n_calls": len(taken_ms)}


def measure(n_calls: int, n_at_once: int, delay_s: float, slow_s: float) -> dict[str, Any]:
    with Server(delay_s) as api_base:
        engine = asyncio.run(overhead_ms(api_base, delay_s, n_calls))
        bare = litellm_alone(api_base, delay_s, n_calls)
    with Server(slow_s) as api_base:
        many = asyncio.run(at_once(api_base, slow_s, n_at_once))
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}, litellm {version('litellm')}",
        "prompt_bytes": PROMPT_BYTES,
        "delay_s": delay_s,
        "engine": engine,
        "litellm_alone": bare,
        "at_once": many,
        "mark_ms": MARK_MS,
        "is_met": engine["median_ms"] < MARK_MS and many["n_answered"] == many["n_calls"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=200, help="calls one after the other")
    parser.add_argument("--at-once", type=int, default=1000, help="calls in flight")
    parser.add_argument("--delay-s", type=float, default=0.02, help="what the server takes for each of the former")
    parser.add_argument("--slow-s", type=float, default=5.0, help="and for each of the latter")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    given = parser.parse_args()
    figures = json.dumps(measure(given.calls, given.at_once, given.delay_s, given.slow_s), indent=2)
    print(figures)
    if given.json:
        given.json.write_text(figures + "\n")


if __name__ == "__main__":
    main()
