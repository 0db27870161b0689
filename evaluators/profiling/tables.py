"""The tables in what `ncu --csv` prints, by the names of their columns, whatever stands before, between and behind.

Two pages exist. `details` has one row for each metric and one for each rule of a kernel; `raw` has one row for each
kernel, a column for each metric, and a row of units below the header.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from evaluators.profiling.errors import ProfileError

KERNEL = "kernel name"
METRIC = "metric name"
_RANGES = "push/pop_range"  # "thread Domain:Push/Pop_Range:PL_Type:...", one column with --nvtx
_ID = "id"
_NEW_ROW = re.compile(r'"\d+",')
_LINE_END = re.compile(r"\r?\n|\r")
_MAX_ROW_CHARACTERS = 4_000_000
_MAX_LINES_PER_ROW = 200  # a quotation mark too many must not swallow the report


class Row(NamedTuple):
    """One row: its cells by column, in lower case; `units` by column on the raw page, empty on the other."""

    launch: int  # the report's number of the launch
    cells: Mapping[str, str]
    units: Mapping[str, str]

    @property
    def is_details(self) -> bool:
        return METRIC in self.cells

    @property
    def ranges(self) -> str:
        """The ranges of NVTX that were open at the launch, each in quotes behind the number of the thread."""
        return next((cell for name, cell in self.cells.items() if _RANGES in name), "")


def read_rows(text: str) -> Iterator[Row]:
    """Every row of every table of a page that belongs to a launch.

    Raises:
        ProfileError: there is no table of kernels.
    """
    columns: list[str] = []
    units: dict[str, str] = {}
    for cells in _split_rows(text):
        names = [" ".join(cell.lower().split()) for cell in cells]
        if KERNEL in names and _ID in names:
            columns, units = names, {}
            continue
        if len(cells) < 2 or not columns:
            continue
        row = dict(zip(columns, cells, strict=False))
        launch = row[_ID].strip() if _ID in row else ""
        if launch.isascii() and launch.isdigit() and len(launch) < 10:
            yield Row(int(launch), row, units)
        elif not launch and METRIC not in columns and not units:
            units = row
    if not columns:
        raise ProfileError(f"no table of kernels in it: {_first_words(text)}")


def _split_rows(text: str) -> Iterator[list[str]]:
    """Cells of each row. A row whose quotes do not close ends where the next one begins."""
    pending: list[str] = []
    for line in _LINE_END.split(text):
        if pending and (_NEW_ROW.match(line) or len(pending) >= _MAX_LINES_PER_ROW):
            yield from _cells("\n".join(pending))
            pending = []
        if not pending and (not line.strip() or line.startswith("==")):
            continue
        pending.append(line)
        if sum(part.count('"') for part in pending) % 2 == 0:
            yield from _cells("\n".join(pending))
            pending = []
    if pending:
        yield from _cells("\n".join(pending))


def _cells(row: str) -> Iterator[list[str]]:
    if len(row) > _MAX_ROW_CHARACTERS:
        return
    try:
        yield from csv.reader(io.StringIO(row, newline=""), skipinitialspace=True)
    except csv.Error:  # a field beyond the limit of the module
        return


def _first_words(text: str) -> str:
    words = " ".join(text.split())
    return f"{words[:160]}..." if len(words) > 160 else words or "it is empty"
