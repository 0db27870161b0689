"""Which program of a batch launched a kernel: every one runs in a range of NVTX that is named after it.

The names hold a random word, so that a range which a program opens itself never stands for another one.
"""

from __future__ import annotations

import re
import secrets

_PREFIX = "evolve-program"


def new_nonce() -> str:
    """The word of one batch, which its programs are not told."""
    return secrets.token_hex(8)


def range_name(nonce: str, index: int) -> str:
    """The range in which the program of this index runs."""
    return f"{_PREFIX}-{nonce}-{index}"


def program_in(ranges: str, nonce: str) -> int | None:
    """The program that launched a kernel; None where its ranges do not say so, or name two.

    Args:
        ranges: the cell of a report's column of ranges: all that were open at the launch, the program's own too.
    """
    # --print-nvtx-rename knows the innermost range only, maybe the program's own; this column has all, under one name
    found = {int(index) for index in re.findall(rf"{_PREFIX}-{re.escape(nonce)}-(\d{{1,4}})(?!\d)", ranges)}
    return found.pop() if len(found) == 1 else None
