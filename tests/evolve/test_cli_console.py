"""Tables as people and scripts get them."""

from __future__ import annotations

import json

import pytest

from db.records import LatencyKind
from evolve.cli.console import (
    Column,
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
