"""Tables as people and scripts get them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from db.records import LatencyKind
from evolve.cli.console import (
    Column,
    column_widths,
    format_seconds,
    format_us,
    latency_cells,
    latency_columns,
    print_json,
    print_table,
)

COLUMNS = [Column("name", "name"), Column("us", "us", lambda us: f"{us:.1f}", is_number=True)]


def test_without_a_terminal_a_table_is_aligned_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([{"name": "softmax", "us": 508.25}, {"name": "x", "us": None}], COLUMNS, title="[best]")
    assert capsys.readouterr().out == "[best]\nname        us\nsoftmax  508.2\nx\n"


def test_a_long_value_is_never_cut_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([{"name": "y" * 400, "us": 1.0}], COLUMNS)
    assert "y" * 400 in capsys.readouterr().out


def test_json_refuses_what_is_no_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_json([{"a": 1}])
    assert json.loads(capsys.readouterr().out) == [{"a": 1}]
    with pytest.raises(ValueError, match="not JSON compliant"):
        print_json(float("nan"))


def test_the_kinds_of_latency_share_no_column() -> None:
    measured, modelled = (latency_columns(kind) for kind in LatencyKind)
    assert not {c.key for c in measured} & {c.key for c in modelled}
    assert all("modelled" in c.title for c in modelled) and all("measured" in c.title for c in measured)
    assert latency_cells(LatencyKind.MODELLED, 5.0, 2.0).keys() >= {c.key for c in modelled}


def test_numbers_are_written_for_people() -> None:
    assert [format_us(us) for us in (1.8124, 68.04, 508.31)] == ["1.812", "68.04", "508.3"]
    assert [format_seconds(s) for s in (42.2, 185, 3725)] == ["42s", "3m05s", "1h02m"]


def on_screen(code: str, columns: int = 40) -> str:
    """What a terminal of so many columns is sent by `code`, without colours."""
    reader, writer = os.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
    child = subprocess.Popen([sys.executable, "-c", code], stdout=writer, stderr=writer, env=environment)
    os.close(writer)
    sent = b""
    try:
        while piece := os.read(reader, 4096):
            sent += piece
    except OSError:  # how Linux says that the other end is closed
        pass
    finally:
        os.close(reader)
    assert child.wait(timeout=60) == 0, sent
    return re.sub(r"\x1b\[[\d;]*m", "", sent.decode()).replace("\r", "")


def test_a_source_on_screen_has_its_own_lines_alone() -> None:
    source = f"x = [{', '.join(map(str, range(40)))}]\ny = 1"
    assert on_screen(f"from evolve.cli.source import print_source; print_source({source!r})") == source + "\n"


def test_a_long_text_on_screen_stays_in_its_column() -> None:
    code = f"from evolve.cli.console import print_pairs; print_pairs([('needs', {'one loop ' * 9!r})], width=10)"
    first, *others = on_screen(code).splitlines()
    assert first.startswith("needs     one loop") and others
    assert all(line.startswith(" " * 10) and len(line) <= 40 for line in others)


WIDE = [
    Column("program", "program", is_whole=True),
    Column("detail", "what was changed"),
    Column("us", "modelled us", is_number=True),
    Column("run", "run", is_whole=True, is_spare=True),
]
CELLS = [["c41624ddc9d7", "BLOCK of softmax_kernel 1024 -> 8192", "768.5", "20261130-185412-0e54"]]


def total(widths: dict[int, int]) -> int:
    return sum(widths.values()) + 2 * (len(widths) - 1)


def test_a_terminal_with_room_shows_every_column_on_one_line() -> None:
    assert column_widths(CELLS, WIDE, 200) == {0: 12, 1: 36, 2: 11, 3: 20}


@pytest.mark.parametrize("width", [40, 59, 80])
def test_a_narrow_terminal_loses_spare_columns_and_cuts_no_id(width: int) -> None:
    widths = column_widths(CELLS, WIDE, width)
    assert total(widths) <= width
    assert widths[0] == 12 and widths[2] >= len("modelled")
    assert (3 in widths) == (width == 80)


def test_numbers_break_between_words_only_where_nothing_else_helps() -> None:
    columns = [Column("name", "name", is_whole=True), Column("chance", "chance", is_number=True)]
    cells = [["cache_modifier", "67% (21% to 94%)"]]
    assert column_widths(cells, columns, 40) == {0: 14, 1: 16}
    assert column_widths(cells, columns, 24) == {0: 14, 1: 8}
