"""The page of a whole model: its summary as facts, each share of its time with what became of it, links to the rest."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from db.reading import ArchiveReader
from db.records import PrecisionClass, Record, Run
from evaluators.decomposition.classify import ModelOutcome, RootCause
from evaluators.decomposition.records import LeftAlone, Share
from evaluators.report import BaselineTime
from evolve.models.places import summary_in
from evolve.models.records import Attempt, Conditions, Found
from evolve.models.rows import against_of
from evolve.queries import folder_of
from evolve.reports.build import write_report
from evolve.reports.pages import environment

REPORT, FILES, BEST = "report.html", "files.html", "best.py"
WHOLE = "whole"  # the folder of the search of the module itself
MOST_STEPS = 24  # of a model that a page lists; the others are added up
_STEPS = re.compile(r"part_(\d+)_(\d+)$")
KINDS = {  # what becomes of a step, in the order of the legend; each has a colour in report.css
    "improved": "in the delivered file",
    "passed": "searched, and stays as it is",
    "alone": "left alone",
    "repeated": "library call, stays as it is",
}

_STAYS = "They stay as the compiler chose them, and what is between them is too little to gain 3%."
CAUSES = {
    RootCause.GEMM: f"Nearly all of the time goes to matrix products of a library. {_STAYS}",
    RootCause.CONVOLUTION: f"Nearly all of the time goes to convolutions of a library. {_STAYS}",
    RootCause.NO_KERNELS: "The compiler wrote no Triton kernel for it, so no search had anything to start from.",
    RootCause.SPEED: "There were correct files, and the fastest was slower than the fastest baseline by more than 3%.",
    RootCause.CORRECTNESS: "No file came close enough to what the module computes.",
    RootCause.NOT_DECOMPOSED: "The module could not be taken apart, or none of its parts runs by itself.",
    RootCause.SEARCHES: "No search came to its end, so nothing is known of what the parts could gain.",
}


class PartFact(Record):
    """A part and what its search found; the steps that it stands for, where the summary says them."""

    name: str
    kernels: tuple[str, ...]
    share: float
    gain: float  # of the model's device time
    is_used: bool
    first: int | None = None
    last: int | None = None
    found: Found

    @property
    def is_searched(self) -> bool:
        """Whether its search was begun."""
        return self.found.has_failed or self.found.n_judged > 0


class StepFact(Record):
    """One launch or library call, or several that are too short to be listed one by one."""

    name: str
    device_us: float
    share: float
    kind: str  # a key of KINDS
    fate: str


class ModelFacts(Record):
    """What `summary.json` says of a model."""

    run: str
    problem: str
    outcome: ModelOutcome
    root_cause: RootCause | None
    reason: str
    speedup: float | None  # of what is delivered; a baseline that is kept is 1
    precision: PrecisionClass
    hardware: str
    baseline: str
    ways: tuple[BaselineTime, ...]
    against: dict[str, float]
    dominant: str
    degenerate: str
    device_us: float
    extern_share: float
    steps: tuple[Share, ...]
    parts: tuple[PartFact, ...]
    left_alone: tuple[LeftAlone, ...]
    left_out: tuple[str, ...]
    notes: tuple[str, ...]
    whole: Found | None
    attempts: tuple[Attempt, ...]
    is_interrupted: bool
    seconds: dict[str, float]
    versions: dict[str, str]
    conditions: Conditions | None

    @property
    def is_optimized(self) -> bool:
        return self.outcome is ModelOutcome.OPTIMIZED

    @property
    def delivered(self) -> Attempt | None:
        """The file that was put together and is delivered; None where none is, or the module's own program is."""
        last = self.attempts[-1] if self.attempts else None
        return last if self.is_optimized and last and last.is_accepted and last.speedup == self.speedup else None

    @property
    def baseline_us(self) -> float | None:
        return next((way.device_us for way in self.ways if way.name == self.baseline), None)

    @property
    def n_judged(self) -> int:
        return sum(part.found.n_judged for part in self.parts) + (self.whole.n_judged if self.whole else 0)

    @property
    def n_searches(self) -> int:
        """Searches that were begun, that of the module itself among them."""
        return sum(part.is_searched for part in self.parts) + (self.whole is not None)

    @property
    def needs_idea(self) -> bool:
        """Whether nothing was searched, and nobody was asked to write a program."""
        return self.root_cause is not None and not self.n_judged and self.whole is None


def facts_of(summary: Mapping[str, Any]) -> ModelFacts:
    """The facts of a summary; what earlier versions did not write is left out.

    Raises:
        ValueError: it is no summary of a model.
    """
    try:
        return _facts_of(summary)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no summary of a model: {error!r}") from None


def _facts_of(summary: Mapping[str, Any]) -> ModelFacts:
    known = {key: summary[key] for key in ModelFacts.model_fields.keys() & summary.keys()}
    speedup = summary["speedup"] if summary["outcome"] == ModelOutcome.OPTIMIZED else 1.0
    dominant = summary.get("dominant") or {}
    told: dict[str, Any] = {
        **{"precision": PrecisionClass.REFERENCE, "hardware": "", "baseline": "", "steps": ()},
        **{"left_out": (), "conditions": None},
        **known,
        "speedup": speedup,
        "ways": [{"name": name, **way} for name, way in (summary.get("baselines") or {}).items()],
        "against": against_of(summary, speedup),
        "dominant": dominant.get("operation", ""),
        "degenerate": summary.get("degenerate") or "",
        "parts": [_part_of(row) for row in summary["parts"]],
    }
    return ModelFacts.model_validate(told)


def _part_of(row: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: row[key] for key in Found.model_fields.keys() & row.keys()}
    return {key: row[key] for key in PartFact.model_fields.keys() & row.keys()} | {"found": found}


# --------------------------------------------------------------------------------------------------------------- steps


def step_facts(facts: ModelFacts, most: int = MOST_STEPS) -> list[StepFact]:
    """The longest steps in the order in which they run, then the others, added up by what becomes of them."""
    told = [_step_fact(step, facts) for step in facts.steps]
    listed = sorted(range(len(told)), key=lambda index: -told[index].share)[:most]
    others = [told[index] for index in range(len(told)) if index not in listed]
    return [*(told[index] for index in sorted(listed)), *_added_up(others)]


def shares_by_kind(steps: Sequence[StepFact]) -> dict[str, float]:
    """The share of device time of each kind that there is, in the order of KINDS."""
    found = {kind: sum(step.share for step in steps if step.kind == kind) for kind in KINDS}
    return {kind: share for kind, share in found.items() if share > 0}


def _step_fact(step: Share, facts: ModelFacts) -> StepFact:
    kind, fate = _fate_of(step, facts)
    return StepFact(name=step.name, device_us=step.device_us, share=step.share, kind=kind, fate=fate)


def _fate_of(step: Share, facts: ModelFacts) -> tuple[str, str]:
    if step.is_extern:
        return "repeated", "library call"
    around = [part for part in facts.parts if _holds(step.step, part.first, part.last)]
    used = [part.name for part in around if part.is_used]
    if used:
        return "improved", f"replaced by {used[0]}"
    searched = [part.name for part in around if part.is_searched]
    if searched:
        return "passed", f"searched in {', '.join(searched)}"
    if around:
        return "alone", around[0].found.reason or "not searched"
    left = [left for left in facts.left_alone if _holds(step.step, *_steps_named(left.name))]
    return "alone", left[0].reason if left else "in no part"


def _holds(step: int, first: int | None, last: int | None) -> bool:
    return first is not None and last is not None and first <= step <= last


def _steps_named(name: str) -> tuple[int | None, int | None]:
    """The first and the last step of a part, by its name."""
    found = _STEPS.match(name)
    return (int(found[1]), int(found[2])) if found else (None, None)


def _added_up(steps: Sequence[StepFact]) -> Iterator[StepFact]:
    for kind in KINDS:
        alike = [step for step in steps if step.kind == kind]
        if alike:
            yield StepFact(
                name=f"{len(alike)} shorter one{'s' if len(alike) > 1 else ''}",
                device_us=sum(step.device_us for step in alike),
                share=sum(step.share for step in alike),
                kind=kind,
                fate=KINDS[kind],
            )


# ---------------------------------------------------------------------------------------------------------------- page


def page_of(summary: Mapping[str, Any], links: Mapping[str, str]) -> str:
    """One HTML page that needs nothing else. The same summary and links give the same page.

    Args:
        links: addresses by name, those that there are: `best.py`, `files.html`, and of each part's report by its name.

    Raises:
        ValueError: it is no summary of a model.
    """
    facts = facts_of(summary)
    steps = step_facts(facts)
    return (
        environment(percent=_percent)
        .get_template("model.html.j2")
        .render(facts=facts, links=links, steps=steps, shares=shares_by_kind(steps), kinds=KINDS, causes=CAUSES)
    )


def links_in(place: Path, page_folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Addresses of what lies in a model's folder, as seen from the folder of the page."""
    reports = {name: place / "searches" / name / REPORT for name in (*names, WHOLE)}
    files = {BEST: place / BEST, FILES: place / FILES, **reports}
    return {name: quote(os.path.relpath(file, page_folder)) for name, file in files.items() if file.is_file()}


def write_page(summary: Mapping[str, Any], place: Path, page_folder: Path) -> Path:
    """Writes the page of the model whose results lie in `place` to `page_folder`/report.html; returns that path.

    Raises:
        ValueError: it is no summary of a model.
        OSError: the folder cannot be written.
    """
    names = [part.name for part in facts_of(summary).parts]
    text = page_of(summary, links_in(place, page_folder, names))
    page_folder.mkdir(parents=True, exist_ok=True)
    path = page_folder / REPORT
    path.write_text(text, encoding="utf-8")
    return path


def write_report_of(archive: ArchiveReader, run: Run, directory: Path) -> Path:
    """Writes the page of a run to `directory`/report.html and returns that path: that of the model where the run was a
    whole model's and its summary is still in its folder or in `directory`, else the report on what was judged.

    Raises:
        OSError: the folder cannot be written.
    """
    for place in (folder_of(run), directory):
        summary = summary_in(place)
        if summary is not None and summary.get("run") == run.run_id and "attempts" in summary:
            with contextlib.suppress(ValueError):  # somebody changed it
                return write_page(summary, place, directory)
    return write_report(archive, run.run_id, directory)


def _percent(share: float) -> str:
    """A share with one decimal where it is small: 99%, 14.7%, 0.3%."""
    return f"{share:.0%}" if share >= 0.995 or share == 0 else f"{share:.1%}"
