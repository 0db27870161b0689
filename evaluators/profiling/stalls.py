"""Why warps wait: from counters on the raw page, or from what the rule CPIStall says on the details page."""

from __future__ import annotations

import re

from db.profile import Stall
from evaluators.profiling.tables import Row
from evaluators.profiling.values import parse_number

_COUNTER = re.compile(
    r"smsp__average_(?:warps_issue_stalled|warp_latency_issue_stalled)_(\w+?)(?:_per_issue_active)?\.ratio"
)
_IN_ALL = "smsp__average_warp_latency_per_inst_issued.ratio"
_NO_STALL = "selected"  # the cycle in which the instruction is issued

_RULE = "cpistall"
_CYCLES = re.compile(r"spends ([\d.,]+) cycles being stalled (.{10,200})", re.IGNORECASE | re.DOTALL)
_SHARE = re.compile(r"about ([\d.,]+)% of the total average", re.IGNORECASE)
# what the rule says of each reason, in words that no other reason has (CPIStall of Nsight Compute 2020.1 to 2025.3)
_PHRASES = (
    ("l1tex", "long_scoreboard"),
    ("scoreboard dependency on a mio", "short_scoreboard"),
    ("mio (memory input/output) instruction queue", "mio_throttle"),
    ("cta barrier", "barrier"),
    ("local and global (lg)", "lg_throttle"),
    ("execution pipe", "math_pipe_throttle"),
    ("fixed latency", "wait"),
    ("memory barrier", "membar"),
    ("branch target", "branch_resolving"),
    ("dispatch", "dispatch_stall"),
    ("after exit", "drain"),
    ("immediate constant", "imc_miss"),
    ("fetch", "no_instruction"),
    ("micro scheduler", "not_selected"),
    ("sleep", "sleeping"),
    ("texture operations", "tex_throttle"),
)


def read_stalls(rows: list[Row]) -> tuple[Stall, ...]:
    """The stalls of one launch, the largest first; of the details page only the one that its rule names."""
    return _from_counters(rows) or _from_rule(rows)


def _from_counters(rows: list[Row]) -> tuple[Stall, ...]:
    cycles: dict[str, float] = {}
    in_all = 0.0
    for row in rows:
        for name, text in row.cells.items():
            matched = _COUNTER.fullmatch(name)
            value = parse_number(text) if matched or name == _IN_ALL else None
            if value is None or value < 0:
                continue
            if matched:
                cycles.setdefault(matched[1], value)
            else:
                in_all = in_all or value
    in_all = max(in_all, sum(cycles.values()))
    found = [Stall(reason=r, cycles=c, share=c / in_all) for r, c in cycles.items() if c > 0 and r != _NO_STALL]
    return tuple(sorted(found, key=lambda stall: (-stall.cycles, stall.reason)))


def _from_rule(rows: list[Row]) -> tuple[Stall, ...]:
    for row in rows:
        if row.cells.get("rule name", "").strip().lower() != _RULE:
            continue
        text = row.cells.get("rule description", "")
        spent, share = _CYCLES.search(text), _SHARE.search(text)
        if not spent or not share:
            continue
        cycles, percent = parse_number(spent[1].rstrip(".,")), parse_number(share[1])
        reason = next((name for phrase, name in _PHRASES if phrase in spent[2].lower()), "")
        if reason and cycles is not None and percent is not None and percent <= 100:
            return (Stall(reason=reason, cycles=cycles, share=percent / 100),)
    return ()
