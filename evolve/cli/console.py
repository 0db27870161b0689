"""What every command prints with: tables for people, aligned text without a terminal, JSON for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, JustifyMethod
from rich.table import Table as RichTable
from rich.text import Text

from db.records import LatencyKind

_GAP = "  "  # between two columns
_WORD = 16  # longer words of a text may be broken


@dataclass(frozen=True)
class Column:
    """One column of a table: the key of its value in a row, its title, and how a value is written."""

    key: str
    title: str
    write: Callable[[Any], str] = str
    is_number: bool = False
    is_whole: bool = False  # never broken or cut: ids that people copy
    is_spare: bool = False  # left out, last one first, where the terminal is too narrow for all of them


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
    out = console()
    widths = column_widths(cells, columns, out.width)
    table = RichTable(
        title=title or None,
        title_justify="left",
        title_style="bold",
        header_style="bold",
        box=_box(),
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for k, width in widths.items():
        justify: JustifyMethod = "right" if columns[k].is_number else "left"
        table.add_column(columns[k].title, justify=justify, width=width)
    for row in cells:
        table.add_row(*(Text(row[k]) for k in widths))
    if title:
        out.print()
    out.print(table)
    left_out = [column.title for k, column in enumerate(columns) if k not in widths]
    if left_out:
        note(f"no room for {', '.join(left_out)}: a wider terminal or a pipe shows all")


def column_widths(cells: Sequence[Sequence[str]], columns: Sequence[Column], width: int) -> dict[int, int]:
    """The width of every column that is shown in `width` characters, by its place.

    Spare columns are left out where that is too narrow, then numbers may break between their words as texts do.
    """
    texts = {k: [column.title, *(row[k] for row in cells)] for k, column in enumerate(columns)}
    is_solid = {k: column.is_number or column.is_whole for k, column in enumerate(columns)}
    least = {k: _least_width(texts[k], is_solid[k]) for k in texts}
    spare = [k for k in texts if columns[k].is_spare]
    while spare and _total(least) > width:
        del least[spare.pop()]
    if _total(least) > width:  # then numbers may break between words too
        least = {k: _least_width(texts[k], columns[k].is_whole) for k in least}
    for values_alone in (True, False):  # a title may have two lines before a value does
        natural = {k: max(map(len, texts[k][1:] if values_alone else texts[k]), default=0) for k in least}
        least = _widened(natural, least, width - _total(least))
    return least


def _total(widths: Mapping[int, int]) -> int:
    return sum(widths.values()) + len(_GAP) * (len(widths) - 1)


def _least_width(texts: Sequence[str], is_solid: bool) -> int:
    """What a column needs at least: the words of its title, and its values, or where they may break their words."""
    title, *values = texts
    needs = [len(word) for word in title.split()]
    needs += [len(v) for v in values] if is_solid else [min(_WORD, len(word)) for v in values for word in v.split()]
    return max(needs, default=1)


def _widened(natural: Mapping[int, int], least: Mapping[int, int], left: int) -> dict[int, int]:
    """`least` with what is `left` of the line shared out, to those first that want the least."""
    widths = dict(least)
    wanting = sorted(widths, key=lambda k: natural[k] - widths[k])
    for n_before, k in enumerate(wanting):
        more = max(0, min(natural[k] - widths[k], left // (len(wanting) - n_before)))
        widths[k] += more
        left -= more
    return widths


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
        print(_GAP.join(padded).rstrip())


def print_pairs(pairs: Sequence[tuple[str, str]], *, width: int) -> None:
    """A name and what it says on each line; in a terminal a long text stays in its column."""
    if not is_terminal():
        for name, text in pairs:
            print(f"{name:<{width}}{text}".rstrip())
        return
    grid = RichTable.grid()
    grid.add_column(width=width)
    grid.add_column()
    for name, text in pairs:
        grid.add_row(Text(name), Text(text))
    console().print(grid)


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
