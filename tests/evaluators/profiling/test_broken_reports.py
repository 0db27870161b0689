"""Reports that were cut, shuffled and scribbled over: a profile of what could be read, or the one typed error."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from db.profile import Counters, Profile
from evaluators.profiling.errors import ProfileError
from evaluators.profiling.report import read_report
from evaluators.profiling.whole import combine

DATA = Path(__file__).parents[2] / "data" / "ncu"
PAGES = [path.read_bytes() for path in sorted(DATA.glob("*.csv"))]
JUNK = [
    *(b"n/a", b"no data", b"nan", b"-nan", b"inf", b"-inf", b"-1", b"-99.5", b"1e400", b"1e17", b"0x10", b"1,2,3", b""),
    *(b'"', b'""', b"'", b",", b"%", b"\xff\xfe", b"\x00", b"\xc3", "٣".encode(), "½".encode(), b"(1, 2)", b"9" * 400),
    *(b"(0, 0, 0)", b"-5 %", b"==PROF==", b"\n", b"\r\n", b"\r", b"ID", b"Kernel Name", b"\xe2\x80\xa8"),
]
N_MUTATIONS = 900
NONCE, PROGRAMS = "3f2a9c0d51e8b746", (0, 2)  # of the pages with ranges; another range there pretends to be program 1

Mutation = Callable[[random.Random, list[bytes]], list[bytes]]


def thinned(page: bytes) -> bytes:
    """A raw page with the columns that are read and few others."""
    lines = page.split(b"\n")
    start = next(n for n, line in enumerate(lines) if line.startswith(b'"ID"'))
    names = lines[start].split(b'","')
    wanted = (b"issue_stalled", b"throughput.avg.pct", b"launch__", b"time_duration", b"dram__bytes", b"tensor_cycles")
    kept = [n for n, name in enumerate(names) if n < 11 or any(part in name for part in wanted)]
    rows = [line.split(b'","') for line in lines[start:] if line]
    thin = [b'","'.join(row[n] for n in kept) for row in rows]
    return b"\n".join([*lines[:start], *(row.removesuffix(b'"') + b'"' for row in thin)])


def cut(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    whole = b"\n".join(lines) or b" "
    return whole[: rng.randrange(len(whole))].split(b"\n")


def drop_lines(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    share = rng.random()
    return [line for line in lines if rng.random() > share]


def repeat_lines(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    return [copy for line in lines for copy in [line] * rng.choice((1, 1, 1, 2, 3))]


def shuffle_lines(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    return rng.sample(lines, len(lines))


def scribble_cells(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    share = rng.choice((0.002, 0.02, 0.2))

    def scribbled(line: bytes) -> bytes:
        cells = line.strip(b'"').split(b'","')
        return b'"' + b'","'.join(rng.choice(JUNK) if rng.random() < share else cell for cell in cells) + b'"'

    return [scribbled(line) for line in lines]


def rename_headers(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    header = next((n for n, line in enumerate(lines) if b'"ID"' in line), 0)
    names = lines[header].split(b",")
    for _ in range(rng.choice((1, 3))):
        names[rng.randrange(min(len(names), 25))] = rng.choice((b'"Renamed"', b'"id"', b'"Metric Value"', b"", b'"'))
    return [*lines[:header], b",".join(names), *lines[header + 1 :]]


def break_encoding(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    whole = bytearray(b"\n".join(lines) or b" ")
    for _ in range(rng.choice((1, 30, 1000))):
        whole[rng.randrange(len(whole))] = rng.randrange(256)
    return bytes(whole).split(b"\n")


def recode(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    return [b"\n".join(lines).decode(errors="replace").encode(rng.choice(("utf-16", "utf-8-sig", "utf-32-le")))]


MUTATIONS: tuple[Mutation, ...] = (
    *(cut, drop_lines, repeat_lines, shuffle_lines),
    *(scribble_cells, scribble_cells, rename_headers, break_encoding, recode),
)
# the wide page with few of its columns, so that a mutation hits something that is read, and quickly
THIN = [thinned(page) if b'"Metric Name"' not in page else page for page in PAGES]


def broken_report(seed: int) -> list[bytes]:
    """One or two pages, each with one to three mutations."""
    rng = random.Random(seed)
    pages = []
    for page in rng.sample(THIN, rng.choice((1, 2))):
        lines = page.split(b"\n")
        for mutation in rng.choices(MUTATIONS, k=rng.choice((1, 1, 2, 3))):
            lines = mutation(rng, lines) or [b""]
        pages.append(b"\n".join(lines))
    return pages


def check_counters(counters: Counters) -> None:
    for name, value in counters:
        if isinstance(value, int | float):
            assert math.isfinite(value) and value >= 0, (name, value)
            if name.endswith("_pct"):
                assert value <= 100, (name, value)
    assert all(math.isfinite(s.cycles) and 0 <= s.share <= 1 for s in counters.stalls)
    assert all(r.speedup_pct is None or 0 <= r.speedup_pct <= 1000 for r in counters.rules)


def read(pages: list[bytes]) -> Profile | None:
    try:
        launches = read_report(*pages, nonce=NONCE)
        assert {launch.program for launch in launches} <= {None, *PROGRAMS}
        return combine([launch.kernel for launch in launches])
    except ProfileError as error:
        assert error.message
        return None


@pytest.mark.parametrize("first", range(0, N_MUTATIONS, 100))
def test_a_broken_report_is_read_as_far_as_it_can_be_or_refused(first: int):
    profiles = [read(broken_report(seed)) for seed in range(first, first + 100)]
    found = [profile for profile in profiles if profile is not None]
    for profile in found:
        check_counters(profile)
        for kernel in profile.kernels:
            check_counters(kernel)
    assert 30 < len(found) < 100  # the generator neither spares all nor destroys all


def test_mutations_reach_the_column_of_ranges():
    broken = (broken_report(seed) for seed in range(N_MUTATIONS))
    intact = next(page for page in PAGES if b"Push/Pop" in page and b'"Metric Name"' not in page)
    cells = [b"evolve-program-" + NONCE.encode() + b"-%d:" % n for n in PROGRAMS]
    assert all(cell in intact for cell in cells)
    partly = sum(
        any(cell in page for cell in cells) and not all(cell in page for cell in cells)
        for pages in broken
        for page in pages
    )
    assert partly > 20


def test_the_thinned_page_reads_like_the_whole_one():
    raw = next(page for page in PAGES if b'"Metric Name"' not in page)
    assert read([thinned(raw)]).memory_sol_pct == read([raw]).memory_sol_pct  # type: ignore[union-attr]
