"""Where a key can be found while a run with a language model goes on, and after it.

    python -m benchmarks.llm_key                 # prints JSON; ends with 1 where the key was found
    python -m benchmarks.llm_key --json FILE     # and writes it

A run gets a marker as its key. The local server that it asks says the key back: in an error, in the text of an answer,
and in a comment of a program that is judged. Meanwhile the environment and the command line of every process of the
machine are read, again and again; afterwards every file of the run, of its temporary folders and of Ray's logs, the
archive's rows, the report, and what was printed are searched for it, and for it in base64.
"""

from __future__ import annotations

import argparse
import base64
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.llm_server import Asked, LlmServer, Reply, answer, failing  # noqa: E402

from evaluators.problems import load_problem  # noqa: E402

KEY = "sk-marker-9b41c07ae2f86d5310aa"
NEEDLES = (KEY.encode(), base64.b64encode(KEY.encode()).rstrip(b"="))
EVERY_S = 0.05
LIMIT_S = 300.0


@dataclass
class Watch:
    """What was seen of other processes while the run went on."""

    driver: int = 0
    processes: set[int] = field(default_factory=set)
    n_looks: int = 0
    hits: set[str] = field(default_factory=set)
    driver_had_it_at: int = 0  # the last look that found it in the environment of the driver

    def look(self) -> None:
        self.n_looks += 1
        for folder in Path("/proc").glob("[0-9]*"):
            pid = int(folder.name)
            if pid == os.getpid():
                continue
            for name in ("environ", "cmdline"):
                try:
                    held = (folder / name).read_bytes()
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                except OSError:
                    continue
                self.processes.add(pid)
                if any(needle in held for needle in NEEDLES):
                    self._note(pid, name, command)

    def _note(self, pid: int, name: str, command: str) -> None:
        if pid == self.driver and name == "environ":
            self.driver_had_it_at = self.n_looks  # it was started with it, and takes it out before any worker starts
        else:
            self.hits.add(f"{name} of {command[:100]}")


def replies() -> Iterator[Reply]:
    """The key in an error, in prose, and in programs."""
    seed = load_problem("softmax").seeds[0]
    yield failing(500, f"Incorrect API key provided: {KEY}")
    yield answer(f"I was asked with {KEY}, and cannot help.")
    for warps in (1, 2, 8, 16, 32):
        whole = seed.replace("num_warps=4", f"num_warps={warps}")
        yield answer(f"TECHNIQUE: num_warps\nCHANGE: {KEY}\n\n```python\n{whole}\n# {KEY}\n```\n")
    while True:
        yield failing(500, f"upstream said: Authorization: Bearer {KEY}")


def found_in(folder: Path) -> tuple[int, int, list[str]]:
    """How many files and bytes are there, and which files hold the key."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    hits, n_bytes = [], 0
    for path in files:
        held = path.read_bytes()
        n_bytes += len(held)
        if any(needle in held for needle in NEEDLES):
            hits.append(str(path.relative_to(folder)))
    return len(files), n_bytes, hits


def rows_with_key(archive: Path) -> tuple[int, int]:
    """Rows of the archive, read as text, and those of them that hold the key: the file itself is compressed."""
    from db.archive import ProgramArchive

    n_rows = n_hits = 0
    with ProgramArchive.open(archive, read_only=True) as reader:
        for table in ("runs", "problems", "evaluations", "llm_calls", "llm_questions", "llm_dialogues"):
            rows = reader.query(f"SELECT * FROM {table}").rows
            n_rows += len(rows)
            n_hits += sum(KEY in str(row) for row in rows)
    return n_rows, n_hits


def measure() -> dict[str, Any]:
    source, watch = replies(), Watch()
    asked_with: set[str] = set()

    def script(asked: Asked) -> Reply:
        asked_with.add(asked.headers.get("authorization", ""))
        return next(source)

    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as name, LlmServer(script) as server:  # short: for sockets
        folder = Path(name)
        code = _run(folder, server.api_base, watch)
        n_asked = len(server.asked)
        n_rows, n_hits = rows_with_key(folder / "a.duckdb")
        n_files, n_bytes, hits = found_in(folder)
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}, litellm {version('litellm')}",
        "exit_code": code,
        "requests": n_asked,
        "requests_with_the_key": asked_with == {f"Bearer {KEY}"},
        "processes": len(watch.processes),
        "looks_at_all_of_them": watch.n_looks,
        "looks_until_the_driver_had_taken_it_out": watch.driver_had_it_at,
        "files": n_files,
        "megabytes": round(n_bytes / 1e6, 1),
        "rows": n_rows,
        "found_in_processes": sorted(watch.hits),
        "found_in_files": hits,
        "found_in_rows": n_hits,
        "is_met": code == 0 and asked_with == {f"Bearer {KEY}"} and not (watch.hits or hits or n_hits),
    }


def _run(folder: Path, api_base: str, watch: Watch) -> int:
    """The run, to its end; what it prints becomes a file of its folder."""
    (folder / "tmp").mkdir()
    command = [sys.executable, "-m", "evolve.cli.main", "run", "softmax", "--device", "cpu", "--islands", "1"]
    command += ["--evaluations", "14", "--archive", "a.duckdb", "--out", "out", "--set", "stop_at_roofline=1"]
    command += ["--model", f"openai/scripted,api_base={api_base},unpriced", "--set", "llm.record=answers.jsonl"]
    own = {"OPENAI_API_KEY": KEY, "TMPDIR": str(folder / "tmp"), "RAY_TMPDIR": str(folder), "PYTHONPATH": str(ROOT)}
    over = threading.Event()
    with (folder / "printed.txt").open("w") as printed:
        run = subprocess.Popen(command, cwd=folder, env={**os.environ, **own}, stdout=printed, stderr=subprocess.STDOUT)
        watch.driver = run.pid
        watching = threading.Thread(target=_watch, args=(watch, over))
        watching.start()
        try:
            return run.wait(LIMIT_S)
        finally:
            run.kill()
            over.set()
            watching.join()


def _watch(watch: Watch, over: threading.Event) -> None:
    while not over.wait(EVERY_S):
        watch.look()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    given = parser.parse_args()
    found = measure()
    figures = json.dumps(found, indent=2)
    print(figures)
    if given.json:
        given.json.write_text(figures + "\n")
    sys.exit(not found["is_met"])


if __name__ == "__main__":
    main()
