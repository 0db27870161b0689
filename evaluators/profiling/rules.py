"""What the rules of Nsight Compute advise: rows of the details page, in the columns of new and of old versions."""

from __future__ import annotations

import re
from typing import Literal

from db.profile import Rule
from evaluators.profiling.tables import Row
from evaluators.profiling.values import parse_number

_SPEEDUP = re.compile(r"Est(?:\.|imated) (?:(Local|Global) )?Speed-?up:?\s*([\d.,]+)\s*%[.:]?\s*", re.IGNORECASE)
_ADVICE = ("OPT", "WRN")  # versions before 2022.2 call advice a warning
_NO_ADVICE = "The optional metric"  # a warning about the report, not about the kernel
_MAX_SPEEDUP_PCT = 1000.0


def read_rules(rows: list[Row]) -> tuple[Rule, ...]:
    """The advice for one launch: estimates for the kernel, then those for a part of it ("local"), the largest of each
    first, then rules without one; equal ones in the report's order."""
    found: dict[tuple[str, str], Rule] = {}
    for row in rows:
        rule = _read_rule(row)
        if rule is not None:
            found.setdefault((rule.name, rule.message), rule)
    return tuple(sorted(found.values(), key=_order))


def _order(rule: Rule) -> tuple[bool, bool, float]:
    return rule.speedup_pct is None, rule.scope == "local", -(rule.speedup_pct or 0.0)


def _read_rule(row: Row) -> Rule | None:
    name = row.cells.get("rule name", "").strip()
    text = " ".join(row.cells.get("rule description", "").split())
    if not name or not text or text.startswith(_NO_ADVICE) or row.cells.get("rule type", "").strip() not in _ADVICE:
        return None
    in_text = _SPEEDUP.search(text)
    speedup = _percent(row.cells.get("estimated speedup", ""))
    scope = row.cells.get("estimated speedup type", "").strip().lower()
    if in_text and speedup is None:
        speedup, scope = _percent(in_text[2]), (in_text[1] or scope).lower()
    return Rule(
        name=name,
        section=row.cells.get("section name", "").strip(),
        message=_SPEEDUP.sub("", text).strip(),
        speedup_pct=speedup,
        scope=_scope(scope),
    )


def _percent(text: str) -> float | None:
    value = parse_number(text.strip().removesuffix("%").rstrip(".,"))
    return value if value is not None and 0 <= value <= _MAX_SPEEDUP_PCT else None


def _scope(text: str) -> Literal["local", "global", ""]:
    return "local" if text == "local" else "global" if text == "global" else ""
