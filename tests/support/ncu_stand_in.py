"""Stands in for Nsight Compute, where there is no GPU: the same options, reports made of real ones, real complaints.

`python -m tests.support.ncu_stand_in [--says TEXT | --spills N] [ncu's options]`. A report is a JSON list of kernel
names, each with the ranges of NVTX that were open (none without --nvtx); each becomes a launch with the counters of a
softmax that ncu measured on an H200, and N requests that spilling causes. With `--says TEXT` it complains instead.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

DATA = Path(__file__).parents[1] / "data" / "ncu"
LAUNCHES = "launches.json"  # what the stand-in worker launched


def main() -> None:
    says, spills, options = "", "0", sys.argv[1:]
    if options[0] == "--says":
        says, options = options[1], options[2:]
    elif options[0] == "--spills":
        spills, options = options[1], options[2:]
    if "--import" in options:
        print_page(json.loads(Path(options[options.index("--import") + 1]).read_text()), options, spills)
        return
    report = options.index("-o") + 1
    code = subprocess.run(options[report + 1 :], check=False).returncode
    print("==PROF== Disconnected")
    if says:
        print(says)
        sys.exit(1)
    if Path(LAUNCHES).exists():
        launches = json.loads(Path(LAUNCHES).read_text())
        kept = [(kernel, ranges if "--nvtx" in options else []) for kernel, ranges in launches]
        Path(options[report]).write_text(json.dumps(kept))
    else:
        print("==WARNING== No kernels were profiled.")
    if code:
        print(f"==ERROR== The application returned an error code ({code}).")


def print_page(launches: list[tuple[str, list[str]]], options: list[str], spills: str) -> None:
    page = options[options.index("--page") + 1]
    text = (DATA / f"nvtx_column_added_{page}.csv").read_text()
    start = text.index('"ID"')
    rows = list(csv.reader(text[start:].splitlines()))
    name = rows[0].index("Kernel Name")
    print(text[:start], end="")
    write = csv.writer(sys.stdout, quoting=csv.QUOTE_ALL).writerow
    write(rows[0])
    if page == "raw":
        write(rows[1])
        at = rows[0].index("derived__local_spilling_requests")
        rows[2:] = [[*row[:at], spills, *row[at + 1 :]] for row in rows[2:]]
    for n, (kernel, ranges) in enumerate(launches):
        for row in rows[1:]:
            if row[0] == "0":
                write([str(n), *row[1:4], cell_of(ranges), "", kernel, *row[name + 1 :]])


def cell_of(ranges: list[str]) -> str:
    """The column of push/pop ranges, as Nsight Compute 2025.3 prints it."""
    named = "".join(f' "<default domain>:{name}:none:none:none:none:none:none" ' for name in ranges)
    return f"13364 {named}" if ranges else ""


if __name__ == "__main__":
    main()
