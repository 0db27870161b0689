"""Where a key can be found while runs with a language model go on, and after them.

    python -m benchmarks.llm_key                 # prints JSON; ends with 1 where the key was found
    python -m benchmarks.llm_key --json FILE     # and writes it

Two runs get a marker as their key: one that begins with a program, and one of a module as a whole, whose first program
the model writes. (Taking a module apart needs a GPU.) The local server that they ask says the key back: in an error,
in the text of an answer, and in a comment of a program that is judged. Meanwhile the environment and the command line
of every process of the machine are read, again and again; afterwards every file of the runs, of their temporary folders
and of Ray's logs, the archives' rows, the reports, and what was printed are searched for it, and for it in base64.

Candidates are looked at from inside as well. Their own code may not: the first gate refuses whatever reads files. So a
hook that the processes of candidates inherit (`sitecustomize`, by PYTHONPATH) looks in the moment in which the first
line of a marked candidate would run, with the rights and the view that it has by then, and raises what it saw: the
reason of the candidate's verdict.
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
LIMIT_S = 150.0
LOOK = "looks-from-inside"
MODULE = """
import torch
import torch.nn as nn

n_rows = 4096

SMALL = {"n_rows": 2}


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x * 2) + 1


def get_inputs():
    return [torch.randn(n_rows, 1000)]


def get_init_inputs():
    return []
"""
PROGRAM = """
import torch
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, tl.maximum(x * 2.0, 0.0) + 1.0, mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256, num_warps=4)
        return y
"""
SPY = """
import sys

if any("evaluators.sandbox" in word for word in sys.orig_argv):
    KEY = "{backwards}"[::-1]  # this file must not hold it

    def look():
        import base64, json, os
        needles = (KEY.encode(), base64.b64encode(KEY.encode()).rstrip(b"="))
        seen = dict(environments=0, files=0, megabytes=0.0, found=[])

        def search(path, kind):
            try:
                with open(path, "rb") as file:
                    held = file.read()
            except OSError:
                return
            seen[kind] += 1
            seen["megabytes"] += len(held) / 1e6
            if any(needle in held for needle in needles):
                seen["found"].append(path)

        for name in os.listdir("/proc"):
            if name.isdigit():
                search("/proc/" + name + "/environ", "environments")
        for root in ("{folder}", os.getcwd(), os.path.expanduser("~")):
            for at, _, names in os.walk(root):
                for name in names:
                    if os.path.isfile(os.path.join(at, name)):
                        search(os.path.join(at, name), "files")
        if any(KEY in text for text in os.environ.values()):
            seen["found"].append("os.environ")
        seen["megabytes"] = round(seen["megabytes"], 1)
        return json.dumps(dict(seen, variables=sorted(os.environ)))

    def hook(event, arguments):
        code = arguments[0] if event == "exec" else None
        path = getattr(code, "co_filename", "")
        if isinstance(path, str) and path.endswith("/candidate.py"):
            with open(path) as file:
                is_marked = "{mark}" in file.read()
            if is_marked:
                raise ImportError("SAW " + look())

    sys.addaudithook(hook)
"""


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


def replies(program: str) -> Iterator[Reply]:
    """The key in an error, in prose, and in programs; and a program that is looked out of."""
    yield failing(500, f"Incorrect API key provided: {KEY}")
    yield answer(f"I was asked with {KEY}, and cannot help.")
    # "BY" makes another program of what the search may find by itself
    for warps, mark in ((1, LOOK), (2, "judged"), (8, "judged"), (16, "judged"), (32, "judged")):
        whole = program.replace("num_warps=4", f"num_warps={warps}")
        yield answer(f"TECHNIQUE: num_warps\nCHANGE: {KEY}\n\n```python\n{whole}\nBY = {warps}  # {KEY} {mark}\n```\n")
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


def seen_from_inside(archive: Path) -> list[dict[str, Any]]:
    """What marked candidates of a run saw, each once."""
    from db.archive import ProgramArchive

    with ProgramArchive.open(archive, read_only=True) as reader:
        reasons = [row[0] for row in reader.query("SELECT reason FROM evaluations WHERE reason LIKE '%SAW {%'").rows]
    return [json.JSONDecoder().raw_decode(reason.partition("SAW ")[2])[0] for reason in reasons]


def measure() -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as name:  # short: for sockets
        folder = Path(name)
        (folder / "tmp").mkdir()
        (folder / "spy").mkdir()
        spy = SPY.replace("{backwards}", KEY[::-1]).replace("{folder}", name).replace("{mark}", LOOK)
        (folder / "spy" / "sitecustomize.py").write_text(spy)
        (folder / "mine.py").write_text(MODULE)
        seed = load_problem("softmax").seeds[0]
        runs = {
            "a run with a program": measure_run(folder, "softmax", "softmax", seed),
            "a run of a module as a whole": measure_run(folder, "module", "mine.py", PROGRAM),
        }
        n_files, n_bytes, hits = found_in(folder)
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}, litellm {version('litellm')}",
        "runs": runs,
        "files": n_files,
        "megabytes": round(n_bytes / 1e6, 1),
        "found_in_files": hits,
        "is_met": all(run["is_met"] for run in runs.values()) and not hits,
    }


def measure_run(folder: Path, name: str, problem: str, program: str) -> dict[str, Any]:
    """One run of a problem, in which the model writes this program in several ways; its files stay in the folder."""
    source, watch = replies(program), Watch()
    asked_with: set[str] = set()

    def script(asked: Asked) -> Reply:
        asked_with.add(asked.headers.get("authorization", ""))
        return next(source)

    with LlmServer(script) as server:
        code = _run(folder, name, problem, server.api_base, watch)
        n_asked = len(server.asked)
    n_rows, n_hits = rows_with_key(folder / f"{name}.duckdb")
    inside = seen_from_inside(folder / f"{name}.duckdb")
    is_clean = not (watch.hits or n_hits or any(one["found"] for one in inside))
    return {
        "exit_code": code,
        "requests": n_asked,
        "requests_with_the_key": asked_with == {f"Bearer {KEY}"},
        "processes": len(watch.processes),
        "looks_at_all_of_them": watch.n_looks,
        "looks_until_the_driver_had_taken_it_out": watch.driver_had_it_at,
        "rows": n_rows,
        "found_in_processes": sorted(watch.hits),
        "found_in_rows": n_hits,
        "candidates_that_looked": len(inside),
        "one_of_them_saw": inside[0] if inside else None,
        "found_by_candidates": sorted({path for one in inside for path in one["found"]}),
        "is_met": code == 0 and asked_with == {f"Bearer {KEY}"} and is_clean and bool(inside),
    }


def _run(folder: Path, name: str, problem: str, api_base: str, watch: Watch) -> int:
    """The run, to its end; what it prints becomes a file of its folder."""
    command = [sys.executable, "-m", "evolve.cli.main", "run", problem, "--device", "cpu", "--islands", "1"]
    command += ["--evaluations", "14", "--archive", f"{name}.duckdb", "--out", name, "--set", "stop_at_roofline=1"]
    command += ["--model", f"openai/scripted,api_base={api_base},unpriced", "--set", f"llm.record={name}.jsonl"]
    command += ["--set", "llm.operators=[mutate]"]  # whose questions the programs are answers to
    own = {"OPENAI_API_KEY": KEY, "TMPDIR": str(folder / "tmp"), "RAY_TMPDIR": str(folder)}
    own["PYTHONPATH"] = os.pathsep.join((str(folder / "spy"), str(ROOT)))
    over = threading.Event()
    with (folder / f"{name}.txt").open("w") as printed:
        run = subprocess.Popen(command, cwd=folder, env={**os.environ, **own}, stdout=printed, stderr=subprocess.STDOUT)
        watch.driver = run.pid
        watching = threading.Thread(target=_watch, args=(watch, over))
        watching.start()
        try:
            return run.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            return -1
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
