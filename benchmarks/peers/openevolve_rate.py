"""Candidates a second of the PyPI package openevolve on this machine: a local endpoint, a trivial evaluator.

    python benchmarks/peers/openevolve_rate.py --iterations 400

The endpoint answers at once with a SEARCH/REPLACE diff that changes one number, so what is measured is the engine:
prompt, database, process pool and evaluator. Its evaluator runs in the worker process, without isolation.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

INITIAL = """# EVOLVE-BLOCK-START
def block_size():
    return 0
# EVOLVE-BLOCK-END
"""
EVALUATOR = """def evaluate(program_path):
    return {"combined_score": (hash(open(program_path).read()) % 1000) / 1000.0}
"""
CONFIG = """max_iterations: {iterations}
checkpoint_interval: 100
log_level: WARNING
llm:
  api_base: http://127.0.0.1:{port}/v1
  api_key: none
  models: [{{name: local, weight: 1.0}}]
database: {{num_islands: 4, population_size: 1000}}
evaluator: {{parallel_evaluations: {workers}, cascade_evaluation: false}}
"""
_numbers = itertools.count(1)


class Endpoint(BaseHTTPRequestHandler):
    """Answers every chat completion with a diff of the program that the prompt shows."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        shown = re.findall(r"return (\d+)", body)
        old = shown[-1] if shown else "0"
        diff = f"<<<<<<< SEARCH\n    return {old}\n=======\n    return {next(_numbers)}\n>>>>>>> REPLACE"
        message = {"role": "assistant", "content": diff}
        answer = {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": "local",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def measure(iterations: int, workers: int = 2) -> dict[str, float | int | str]:
    """Run openevolve once as its users do; candidates that it kept, a second, whole process."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "initial.py").write_text(INITIAL)
        (folder / "evaluator.py").write_text(EVALUATOR)
        config = CONFIG.format(iterations=iterations, port=server.server_port, workers=workers)
        (folder / "config.yaml").write_text(config)
        command = [
            str(Path(sys.executable).parent / "openevolve-run"),
            "initial.py",
            "evaluator.py",
            "-c",
            "config.yaml",
        ]
        command += ["-i", str(iterations), "-o", "out"]
        began = time.monotonic()
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
        seconds = time.monotonic() - began
        last = max((folder / "out" / "checkpoints").glob("checkpoint_*"), key=lambda p: int(p.name.split("_")[1]))
        programs = list((last / "programs").glob("*.json"))
    server.shutdown()
    if done.returncode or not programs:
        raise SystemExit(f"openevolve failed: {done.stderr[-800:]}")
    return {
        "package": "openevolve 0.4.1",
        "iterations": iterations,
        "seconds": round(seconds, 2),
        "kept": len(programs),
        "per_second": round(iterations / seconds, 1),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=400)
    parser.add_argument("--workers", type=int, default=2)
    print(json.dumps(measure(parser.parse_args().iterations, parser.parse_args().workers)))
