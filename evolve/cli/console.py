"""What every command prints with: tables for people, aligned text without a terminal, JSON for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from db.records import LatencyKind


@dataclass(frozen=True)
class Column:
    """One column of a table: the key of its value in a row, its title, and how a value is written."""

    key: str
    title: str
    write: Callable[[Any], str] = str
    is_number: bool = False
    is_whole: bool = False  # never broken or cut: ids that people copy


def is_terminal() -> bool:
    """Whether a person is looking at standard output."""
    return sys.stdout.isatty()


def console() -> Console:
    """The console on standard output; colours only where there is a terminal."""
    return Console(file=sys.stdout, highlight=False, markup=False, soft_wrap=not is_terminal())


def note(text: str) -> None:
    """A remark beside the result, on standard error, so that pipes carry results alone."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(Text(text, style="dim"))


def print_json(value: Any) -> None:
    """JSON as scripts expect it: one document, no NaN."""
    print(json.dumps(value, indent=2, default=str, allow_nan=False))


def print_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], *, title: str = "") -> None:
    """The rows as a table with rules in a terminal, as aligned columns elsewhere."""
    cells = [[_cell(row, column) for column in columns] for row in rows]
    if is_terminal():
        _print_rich(cells, columns, title)
    else:
        _print_plain(cells, columns, title)


def _cell(row: Mapping[str, Any], column: Column) -> str:
    value = row.get(column.key)
    return "" if value is None else column.write(value)


def _print_rich(cells: Sequence[Sequence[str]], columns: Sequence[Column], title: str) -> None:
    table = RichTable(
        title=title or None, title_justify="left", title_style="bold", header_style="bold", box=_box(), pad_edge=False
    )
    for k, column in enumerate(columns):
        width = max((len(row[k]) for row in cells), default=0) if column.is_number or column.is_whole else None
        table.add_column(column.title, justify="right" if column.is_number else "left", min_width=width)
    for row in cells:
        table.add_row(*(Text(text) for text in row))
    console().print(table)


def _box() -> Any:
    from rich import box

    return box.SIMPLE_HEAD


def _print_plain(cells: Sequence[Sequence[str]], columns: Sequence[Column], title: str) -> None:
    lines = [[column.title for column in columns], *cells]
    widths = [max(len(line[k]) for line in lines) for k in range(len(columns))]
    if title:
        print(title)
    for line in lines:
        padded = [
            text.rjust(width) if column.is_number else text.ljust(width)
            for text, width, column in zip(line, widths, columns, strict=True)
        ]
        print("  ".join(padded).rstrip())


def format_us(latency_us: float) -> str:
    """Microseconds with about four digits."""
    return f"{latency_us:.{3 if latency_us < 10 else 2 if latency_us < 100 else 1}f}"


def format_times(ratio: float) -> str:
    """A speed-up: 1.54x."""
    return f"{ratio:.2f}x"


def format_seconds(seconds: float) -> str:
    """1h02m, 3m05s, 42s."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 60}m{whole % 60:02d}s" if whole >= 60 else f"{whole}s"


def latency_columns(kind: LatencyKind) -> list[Column]:
    """Latency and speed-up under titles and keys that say which kind they are, so that the kinds never share one."""
    return [
        Column(f"{kind}_us", f"{kind} us", format_us, is_number=True),
        Column(f"{kind}_speedup", f"{kind} speed-up", format_times, is_number=True),
    ]


def latency_cells(kind: LatencyKind, latency_us: float, speedup: float) -> dict[str, Any]:
    """The values for `latency_columns`."""
    return {"latency_kind": str(kind), f"{kind}_us": latency_us, f"{kind}_speedup": speedup}
