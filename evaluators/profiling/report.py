"""Reports of Nsight Compute as records: both pages of one report, put together launch by launch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from db.profile import KernelProfile
from evaluators.profiling.errors import ProfileError
from evaluators.profiling.metrics import read_metrics
from evaluators.profiling.ranges import program_in
from evaluators.profiling.rules import read_rules
from evaluators.profiling.stalls import read_stalls
from evaluators.profiling.tables import KERNEL, Row, read_rows

_TRIPLE = re.compile(r"\(?\s*(\d{1,10})\s*,\s*(\d{1,10})\s*,\s*(\d{1,10})\s*\)?")


class Launched(NamedTuple):
    """One launch of a report, and the program of the batch that made it; None for nobody's."""

    program: int | None
    kernel: KernelProfile


def read_report(*pages: str | bytes, nonce: str) -> tuple[Launched, ...]:
    """Every launch of a report, in launch order.

    Args:
        pages: what `ncu --import REPORT --csv --page details` and `--page raw` print; one of them is enough.
        nonce: of the batch, in the names of its programs' ranges. Rows of one launch that are not of one program are
            kept apart.

    Raises:
        ProfileError: no page has a table of kernels, or none of its rows can be read.
    """
    launches: dict[tuple[int, int | None], list[Row]] = {}
    refusals = []
    for page in pages:
        try:
            for row in read_rows(_text(page)):
                launches.setdefault((row.launch, program_in(row.ranges, nonce)), []).append(row)
        except ProfileError as error:
            refusals.append(error)
    if not launches:
        raise refusals[0] if refusals else ProfileError("its tables have no row of a kernel")
    found = sorted(launches.items(), key=lambda item: item[0][0])
    return tuple(Launched(program, _kernel(rows)) for (_, program), rows in found)


def _text(page: str | bytes) -> str:
    return page if isinstance(page, str) else page.decode("utf-8", errors="replace")


def _kernel(rows: Sequence[Row]) -> KernelProfile:
    """One launch. Values that nobody read are not set, so that a whole can tell them from a zero."""
    listed = list(rows)
    first = listed[0].cells
    fields: dict[str, Any] = {
        "kernel": first.get(KERNEL, "").strip(),
        **read_metrics(listed),
        "stalls": read_stalls(listed),
        "rules": read_rules(listed),
    }
    if grid := _triple(first.get("grid size", "")):
        fields["grid"] = grid
    if block := _triple(first.get("block size", "")):
        fields["n_threads"] = block[0] * block[1] * block[2]
    return KernelProfile(**fields)


def _triple(text: str) -> tuple[int, int, int] | None:
    matched = _TRIPLE.fullmatch(text.strip())
    return (int(matched[1]), int(matched[2]), int(matched[3])) if matched else None
