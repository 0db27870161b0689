"""How pages are rendered: every value is escaped, an unknown one is an error, figures are written alike."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

BASELINE_LABELS = {
    "eager": "PyTorch eager",
    "compile": "torch.compile",
    "max-autotune": "torch.compile max-autotune",
    "seed": "the seed",
}


def environment(**filters: Callable[..., Any]) -> Environment:
    """Where templates are found, with filters that write figures, and those of a page over them."""
    made = Environment(
        loader=PackageLoader("evolve.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(us=format_us, times=format_times, seconds=format_seconds, moment=format_moment)
    made.filters["baseline"] = lambda name: BASELINE_LABELS.get(name, name)
    made.filters.update(filters)
    return made


def format_us(latency_us: float) -> str:
    """Microseconds with about four digits: 7.281, 508.3, 12,345."""
    if latency_us >= 10_000:
        return f"{latency_us:,.0f}"
    decimals = 3 if latency_us < 10 else 2 if latency_us < 100 else 1
    return f"{latency_us:.{decimals}f}"


def format_times(ratio: float) -> str:
    """A ratio with two decimals, three where it is tiny: 1.54×, 0.008×."""
    return f"{ratio:.{2 if ratio >= 0.1 else 3}f}×"


def format_seconds(seconds: float) -> str:
    """1 h 02 min, 3 min 05 s, 42 s."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"


def format_moment(epoch: float) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%d %H:%M UTC")
