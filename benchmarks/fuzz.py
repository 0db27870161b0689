"""Mutated inputs of every sort that comes from outside: no traceback and no hang, only the project's own errors.

    python -m benchmarks.fuzz                        # all targets, 12,000 inputs
    python -m benchmarks.fuzz --only archives --first 300 --n 100

Problem files, programs, answers of language models, configurations, archives, reports of Nsight Compute, and files of
knowledge and of answered questions; each input is drawn from a seed. A target runs in a process of its own, so that one
that crashes the process is a finding too. Ends with 1 when there was one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from db.errors import EvolveError

ROOT = Path(__file__).resolve().parents[1]
HANG_S = 10.0  # of one input
Mutation = Callable[[random.Random, bytes], bytes]

JUNK: tuple[bytes, ...] = (
    *(b"", b" ", b"\n", b"\t", b"\r", b"\x00", b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"'", b'"', b"'''", b"\\", b"#"),
    *(b"(", b")", b"[", b"]", b"{", b"}", b"(" * 300, b"[" * 3000, b"{a: " * 400, b"-" * 3000, b"not " * 2000),
    *(
        b"nan",
        b"inf",
        b"-1",
        b"1e400",
        b"9" * 5000,
        b"0x",
        b"1_000",
        b"None",
        b"lambda: 0",
        b"*x",
        b"&a *a",
        b"!!python/x",
    ),
    *(b"<<<<<<< SEARCH\n", b"=======\n", b">>>>>>> REPLACE\n", b"```", b"```python\n", b"<think>", b"\xe2\x80\xa8"),
    *(
        b"class Model:\n",
        b"class ModelNew(",
        b"def get_inputs(",
        b"SMALL = ",
        b"TOLERANCES = {",
        b"return",
        b"@triton.jit\n",
    ),
    *(
        "½٣é".encode(),
        "\U0001d428".encode(),
        b"&lt;",
        b"${x}",
        b"%s",
        b": ",
        b"- ",
        b"? ",
        b"| ",
        b"1" + b" + 1" * 700,
        b"1" + b"+1" * 3000,
    ),
)


def cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def drop_lines(rng: random.Random, data: bytes) -> bytes:
    share = rng.random() / 2
    return b"\n".join(line for line in data.split(b"\n") if rng.random() > share)


def repeat_lines(rng: random.Random, data: bytes) -> bytes:
    return b"\n".join(line for line in data.split(b"\n") for _ in range(rng.choice((1, 1, 1, 2, 40))))


def shuffle_lines(rng: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    return b"\n".join(rng.sample(lines, len(lines)))


def insert_junk(rng: random.Random, data: bytes) -> bytes:
    for _ in range(rng.choice((1, 2, 8))):
        at = rng.randrange(len(data) + 1)
        data = data[:at] + rng.choice(JUNK) + data[at:]
    return data


def replace_span(rng: random.Random, data: bytes) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + rng.choice(JUNK) + data[start + rng.choice((1, 5, 60)) :]


def move_span(rng: random.Random, data: bytes) -> bytes:
    a, b, c = sorted(rng.randrange(len(data) + 1) for _ in range(3))
    return data[:a] + data[b:c] + data[a:b] + data[c:]


def flip_bytes(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data or b" ")
    for _ in range(rng.choice((1, 10, 200))):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def swap_tokens(rng: random.Random, data: bytes) -> bytes:
    """Two words change places, everywhere."""
    words = [word for word in set(data.split()) if len(word) > 1]
    if len(words) < 2:
        return data
    one, other = rng.sample(sorted(words), 2)
    return data.replace(one, b"\x01").replace(other, one).replace(b"\x01", other)


def recode(rng: random.Random, data: bytes) -> bytes:
    return data.decode(errors="replace").encode(rng.choice(("utf-16", "utf-8-sig", "utf-32-le")), errors="replace")


TEXT_MUTATIONS: tuple[Mutation, ...] = (
    *(cut, drop_lines, repeat_lines, shuffle_lines, insert_junk, insert_junk, replace_span, replace_span),
    *(move_span, flip_bytes, swap_tokens, recode),
)
BYTE_MUTATIONS: tuple[Mutation, ...] = (cut, replace_span, move_span, flip_bytes, flip_bytes)


class Target(NamedTuple):
    """One sort of input: what it is made of, how it is spoilt, and who reads it."""

    name: str
    n: int  # inputs of a whole run
    originals: Callable[[], list[bytes]]
    mutations: tuple[Mutation, ...]
    read: Callable[[bytes, random.Random, Path], None]


class Finding(NamedTuple):
    """An input that raised what it should not, or took too long."""

    target: str
    seed: int
    what: str


def made(target: Target, seed: int) -> tuple[bytes, random.Random]:
    """The input of a seed, and the generator for the choices that are left."""
    rng = random.Random(f"{target.name} {seed}")
    data = rng.choice(_originals(target))
    for mutation in rng.choices(target.mutations, k=rng.choice((1, 1, 2, 4))):
        data = mutation(rng, data)
    return data, rng


@cache
def _originals(target: Target) -> list[bytes]:
    return target.originals()


# ------------------------------------------------------------------------------------------------------------ targets


def _files(*patterns: str) -> list[bytes]:
    return [path.read_bytes() for pattern in patterns for path in sorted(ROOT.glob(pattern))]


def _problem_files() -> list[bytes]:
    found = _files("evaluators/suite/*.py")
    seeds = _files("evaluators/suite/seeds/*.py")
    return [*found, *(a + b"\n\n" + b for a, b in zip(found[1:], seeds, strict=False))]


def read_problem(data: bytes, rng: random.Random, folder: Path) -> None:
    from evaluators.problems import load_problem
    from evaluators.problems.loader import read_seed

    path = folder / "problem.py"
    path.write_bytes(data)
    sizes = {rng.choice(("n_rows", "batch_size", "M", "x")): rng.choice((1, 4, 0, -1, 2.5, 10**30))}
    for chosen in ({}, sizes):
        with contextlib.suppress(EvolveError):
            problem = load_problem(str(path), sizes=chosen)
            assert problem.problem_id
    with contextlib.suppress(EvolveError):
        read_seed(path, rng.choice(("ModelNew", "kernel_function")))  # type: ignore[arg-type]


def _programs() -> list[bytes]:
    return _files("evaluators/suite/seeds/*.py", "tests/data/kernels/*.py", "tests/corpus/*/*.py")


def read_program(data: bytes, rng: random.Random, _: Path) -> None:
    from evaluators.gates.static import check_policy
    from islands.operators import default_operators
    from islands.operators.freeze import freeze_autotune
    from tests.support.parents import parent_of

    source = data.decode(errors="replace")
    answer = check_policy(source, rng.choice(("ModelNew", "kernel_function")))
    assert answer.passed == (not answer.reason)
    freeze_autotune(source)
    try:
        parent = parent_of(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    operator = rng.choice(default_operators())
    operator.propose([parent] * operator.n_parents, rng)


def _answers() -> list[bytes]:
    from tests.support.bad_answers import block, fenced
    from tests.support.parents import kernel_sources

    found = []
    for source in kernel_sources().values():
        lines = [line for line in source.splitlines() if line.strip()]
        edit = block(lines[8], lines[8] + "  # faster")
        plan = {"technique": "tile_size", "change": lines[3], "effect_pct": 10, "risk": "none", "region": lines[8]}
        thought = {
            "memory": [{"edit": "append", "text": "x"}],
            "explanations": [{"attempt": 1, "why": "y"}],
            "plan": plan,
        }
        found += [edit, fenced(source), f"I would do this.\n\n{edit}\n{edit}", json.dumps([plan]), json.dumps(thought)]
    return [text.encode() for text in found]


def read_answers(data: bytes, rng: random.Random, _: Path) -> None:
    from islands.llm.answers import read_answer
    from islands.llm.jsons import read_json
    from islands.llm.opinions import read_opinion
    from islands.llm.plans import read_plans
    from islands.llm.reflections import read_reflection
    from tests.support.parents import kernel_sources

    text, finish = data.decode(errors="replace"), rng.choice(("stop", "length", ""))
    parent = rng.choice(["", *kernel_sources().values()])
    read_answer(text, parent, entry_point=rng.choice(("ModelNew", "kernel_function")), finish_reason=finish)
    for kind in (list, dict):
        read_json(text, kind, finish)
    read_plans(text, 3, finish)
    read_opinion(text, finish)
    read_reflection(text, n_attempts=3, n_items=3, finish_reason=finish)


def _configs() -> list[bytes]:
    from evolve.config import make_config

    whole = json.dumps(make_config({"problem": "softmax"}).model_dump(mode="json"), indent=1)
    sets = ["search.migration_size=4", "judging.target=h200", "time_s=5", "llm.record=x", "models=[a/b]"]
    return [*_files("configs/presets/*.yaml"), whole.encode(), *(text.encode() for text in sets)]


def read_config(data: bytes, rng: random.Random, folder: Path) -> None:
    from evolve.config import load_config, parse_duration

    path = folder / "config.yaml"
    path.write_bytes(data)
    with contextlib.suppress(EvolveError):
        load_config("softmax", file=path)
    text = data.decode(errors="replace")
    with contextlib.suppress(EvolveError):
        load_config("softmax", sets=[text[:2000]], preset=rng.choice(("", "quick", text[:20])))
    with contextlib.suppress(EvolveError):
        parse_duration(text[:100])


@cache
def _archive() -> bytes:
    from tests.support.runs import fill_archive

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "evolve.duckdb")
        fill_archive(path, n=60)
        return path.read_bytes()


def read_archive(data: bytes, rng: random.Random, folder: Path) -> None:
    from evolve import queries

    path = folder / "evolve.duckdb"
    path.write_bytes(data)
    Path(f"{path}.wal").unlink(missing_ok=True)
    if rng.random() < 0.1:
        Path(f"{path}.wal").write_bytes(data[: rng.randrange(5000)])
    with contextlib.suppress(EvolveError), queries.reading(path) as archive:
        queries.latest_run(archive)
        for elite in queries.elites(archive):
            queries.show(archive, elite.program.program_id)
        queries.best(archive, "softmax")
        archive.query("SELECT * FROM evaluations LIMIT 20")
        archive.knowledge()


# table and column of what an archive keeps as text of its own
COLUMNS = (
    *(
        ("evaluations", "verdict"),
        ("evaluations", "lineage"),
        ("evaluations", "captures"),
        ("evaluations", "entry_point"),
    ),
    *(("evaluations", "source"), ("problems", "record"), ("runs", "record"), ("runs", "status")),
)


def read_changed_archive(data: bytes, rng: random.Random, folder: Path) -> None:
    """An archive in which one column of a table was changed by hand, to what JSON or text it now says."""
    import duckdb

    path = folder / "changed.duckdb"
    path.write_bytes(_archive())
    table, column = rng.choice(COLUMNS)
    with duckdb.connect(str(path)) as connection, contextlib.suppress(duckdb.Error):
        connection.execute(f"UPDATE {table} SET {column} = ?", [data.decode(errors="replace")])
    read_archive(path.read_bytes(), rng, folder)


def _schemas() -> list[bytes]:
    """Statements of SQL, a line each, that an archive may have been changed with."""
    target = Path(tempfile.gettempdir(), "evolve-fuzz-written")
    copy = f"COPY (SELECT 1) TO '{target}'"
    names = ["t') LIMIT 0; " + copy + "; --", "a b", "select", "'", "runs; DROP TABLE runs", "\u2028", "x" * 500]
    calls = ("max", "min", "coalesce", "greatest", "list_max", "count", "arg_min", "hash", "starts_with", "+", "||")
    views = (f"read_text('{target}')", "read_csv('/etc/passwd')", "glob('/*')", "no_such_table", "range(1000)")
    tables = ("runs", "evaluations", "problems", "schema_migrations", "cell_bests", "llm_calls")
    lines = [f'CREATE TABLE "{name}" (x INTEGER)' for name in names]
    lines += [f'CREATE MACRO "{call}"(a) AS 7' for call in calls]
    lines += [f"CREATE VIEW odd{n} AS SELECT * FROM range(3), range(4)" for n in range(2)]
    lines += [f"DROP TABLE {table}; CREATE VIEW {table} AS SELECT * FROM range(9)" for table in tables]
    lines += [f"DROP VIEW elites; CREATE VIEW elites AS SELECT * FROM {view}" for view in views]
    lines += [f"ALTER TABLE {table} ADD COLUMN odd INTEGER" for table in tables]
    lines += ["CREATE SEQUENCE odd", "CREATE TYPE JSON AS INTEGER", "UPDATE schema_migrations SET version = -version"]
    return [line.encode() for line in lines]


def read_odd_schema(data: bytes, rng: random.Random, folder: Path) -> None:
    """An archive whose schema was changed. Nothing may be written but the archive."""
    import duckdb

    path, target = folder / "odd.duckdb", Path(tempfile.gettempdir(), "evolve-fuzz-written")
    path.write_bytes(_archive())
    statements = [data, *rng.choices(_schemas(), k=rng.choice((0, 1, 3)))]
    # what is itself refused here is no schema; the files that it would write are not the archive's doing
    with duckdb.connect(str(path), config={"enable_external_access": "false"}) as connection:
        for statement in statements:
            with contextlib.suppress(duckdb.Error):
                connection.execute(statement.decode(errors="replace"))
    read_archive(path.read_bytes(), rng, folder)
    assert not target.exists()


def _records() -> list[bytes]:
    import duckdb

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "evolve.duckdb")
        path.write_bytes(_archive())
        with duckdb.connect(str(path), read_only=True) as connection:
            found = [
                connection.execute(f"SELECT CAST({column} AS VARCHAR) FROM {table} LIMIT 1").fetchone()
                for table, column in COLUMNS
            ]
    plain = [b"{}", b"[]", b"null", b"1", b'""', b'{"a": [1, null]}']
    return [*(str(row[0]).encode() for row in found if row is not None), *plain]


def swap_values(rng: random.Random, data: bytes) -> bytes:
    """One value of a JSON object becomes something else; what is no object becomes one of its own words."""
    try:
        record = json.loads(data)
    except ValueError:
        return rng.choice(data.split() or [b""])
    if not isinstance(record, dict) or not record:
        return json.dumps({"record": record}).encode()
    record[rng.choice(sorted(record))] = rng.choice((None, 1, -1, "", "x", [], {}, [{}], {"x": 1}, 1e308, True))
    return json.dumps(record).encode()


def _reports() -> list[bytes]:
    return _files("tests/data/ncu/*.csv")


def read_ncu(data: bytes, _: random.Random, __: Path) -> None:
    from evaluators.profiling.report import read_report
    from evaluators.profiling.whole import combine

    with contextlib.suppress(EvolveError):
        combine([launch.kernel for launch in read_report(data, nonce="")])


def _knowledge_files() -> list[bytes]:
    lines = (ROOT / "configs/knowledge.json").read_bytes().split(b"\n")
    return [b"\n".join([*lines[:n], lines[n].rstrip(b","), b"]}"]) for n in (1, 5, 40)]


def read_knowledge_file(data: bytes, _: random.Random, folder: Path) -> None:
    from evolve.knowledge import read_knowledge
    from islands.llm.batch import read_batch
    from islands.llm.recording import Recording

    path = folder / "file.json"
    path.write_bytes(data)
    with contextlib.suppress(EvolveError):
        read_knowledge(path)
    with contextlib.suppress(EvolveError):
        Recording.read(path)
    with contextlib.suppress(EvolveError):
        read_batch(path, [])


TARGETS = (
    Target("problems", 3000, _problem_files, TEXT_MUTATIONS, read_problem),
    Target("programs", 2500, _programs, TEXT_MUTATIONS, read_program),
    Target("answers", 2500, _answers, TEXT_MUTATIONS, read_answers),
    Target("configs", 2000, _configs, TEXT_MUTATIONS, read_config),
    Target("archives", 600, lambda: [_archive()], BYTE_MUTATIONS, read_archive),
    Target("records", 500, _records, (swap_values, swap_values, insert_junk), read_changed_archive),
    Target("schemas", 300, _schemas, (insert_junk, swap_tokens, flip_bytes), read_odd_schema),
    Target("reports", 900, _reports, TEXT_MUTATIONS, read_ncu),
    Target("knowledge", 1000, _knowledge_files, TEXT_MUTATIONS, read_knowledge_file),
)


# ------------------------------------------------------------------------------------------------------------ running


class Hang(BaseException):
    """An input took too long. No `Exception`, so that no reader takes it for its own."""


def _ring(_number: int, _frame: Any) -> None:
    raise Hang


def try_one(target: Target, seed: int, folder: Path) -> Finding | None:
    """Reads one input; a finding where anything but an answer or an error of the project comes of it."""
    data, rng = made(target, seed)
    before = signal.signal(signal.SIGALRM, _ring)
    signal.setitimer(signal.ITIMER_REAL, HANG_S)
    try:
        target.read(data, rng, folder)
    except EvolveError:
        return None
    except Hang:
        return Finding(target.name, seed, f"no answer within {HANG_S:g} s")
    except Exception:  # the finding that this is all about
        return Finding(target.name, seed, traceback.format_exc()[-3000:])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return None


def run_target(target: Target, seeds: range) -> Iterator[Finding]:
    """All findings, in this process. The seed in work stands in a line of its own before it is read."""
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            print(json.dumps({"seed": seed}), flush=True)
            finding = try_one(target, seed, Path(folder))
            if finding is not None:
                yield finding


def run_apart(target: Target, seeds: range) -> list[Finding]:
    """All findings, in a process that may die of one; the next takes over after the seed that it died of."""
    findings: list[Finding] = []
    at = seeds.start
    while at < seeds.stop:
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.fuzz", "--inside", target.name]
        arguments = ["--first", str(at), "--n", str(seeds.stop - at)]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, cwd=ROOT)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        findings += [Finding(target.name, line["found"], line["what"]) for line in lines if "found" in line]
        last = max((line["seed"] for line in lines if "seed" in line), default=at)
        if done.returncode:
            findings.append(
                Finding(target.name, last, f"the process ended with {done.returncode}: {done.stderr[-600:]}")
            )
        at = last + 1
    return findings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [target.name for target in TARGETS]
    parser.add_argument("--only", choices=names)
    parser.add_argument("--inside", choices=names, help="read in this process; what --only starts")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--n", type=int, help="inputs of each target")
    arguments = parser.parse_args()
    if arguments.inside:
        target = next(t for t in TARGETS if t.name == arguments.inside)
        for finding in run_target(target, range(arguments.first, arguments.first + (arguments.n or target.n))):
            print(json.dumps({"found": finding.seed, "what": finding.what}), flush=True)
        return
    findings: list[Finding] = []
    for target in TARGETS:
        if arguments.only in (None, target.name):
            start, n = time.perf_counter(), arguments.n or target.n
            found = run_apart(target, range(arguments.first, arguments.first + n))
            print(
                f"{target.name:10} {n:6} inputs, {len(found)} findings, {time.perf_counter() - start:.0f} s", flush=True
            )
            findings += found
    for place, n in Counter(map(where, findings)).most_common():
        first = next(finding for finding in findings if where(finding) == place)
        print(f"\n{n} times, first {first.target} seed {first.seed}:\n{first.what}")
    sys.exit(1 if findings else 0)


def where(finding: Finding) -> tuple[str, str]:
    """The line of the project that a finding went through last, and the kind of error."""
    lines = finding.what.strip().splitlines()
    places = [line.strip() for line in lines if str(ROOT) in line and ".venv" not in line]
    kind = next((line for line in reversed(lines) if line[:1].isalpha()), "").partition(":")[0]
    return (places[-1] if places else "", kind)


if __name__ == "__main__":
    main()
