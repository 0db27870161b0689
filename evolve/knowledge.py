"""Knowledge between runs: what a run starts from, what people are shown, and the files that carry it elsewhere."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Sequence
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from db.errors import ConfigError
from db.knowledge import MOST_OCTAVES, JudgedAttempt, TechniqueEvidence, summed
from db.live import open_for_reading
from db.reading import ArchiveReader
from db.recipes import Recipe
from db.records import LatencyKind, PrecisionClass, Record
from evolve.config import RunConfig
from evolve.recipes import distinct, recipes_in
from islands.knowledge import PriorKnowledge, Standing, cause_of

FORMAT = "evolve knowledge 1"
_Z = 1.959964  # two-sided 95% of the normal distribution


class Knowledge(NamedTuple):
    """What a file or an archive knows: what techniques gained, and how the fastest programs came about."""

    evidence: list[TechniqueEvidence]
    recipes: list[Recipe]


class TechniqueValue(Record):
    """What one technique is worth in one state, on one GPU and by one kind of latency."""

    state: str
    technique: str
    move: str = ""
    latency_kind: LatencyKind
    hardware_id: str
    n_tried: int
    n_passed: int
    n_improved: int
    gain_octaves: float  # of a try on average, failures and losses counted as nothing
    chance: float  # to improve by 1%
    chance_low: float  # 95% interval after Wilson 1927
    chance_high: float
    change_octaves: float | None  # of what passed on average, losses included
    change_low: float | None  # 95% interval of that average
    change_high: float | None
    error_octaves: float | None  # root mean square of prediction against gain


class AttemptStory(Record):
    """One attempt: what it was expected to gain, what it gained, and why the two differ."""

    candidate_id: str
    technique: str
    previous: str  # the technique that had made the parent
    detail: str  # what was changed
    diagnosis: str  # why, where somebody planned it
    state: str
    predicted_octaves: float | None
    latency_kind: LatencyKind | None  # the parent's
    octaves: float | None  # None for a program that failed
    cause: str


# ----------------------------------------------------------------------------------------------- what a run starts from


def collect_knowledge(config: RunConfig, problem: str, latency_kind: LatencyKind, at_s: float) -> PriorKnowledge:
    """What a run that starts at a moment may know: of its archive and those it is seeded from, or of a file.

    Recipes come from other problems than the run's own: what is known of that one, seeds carry. A run that asks for the
    reference's precision follows none of a `relaxed` winner. What ships with evolve is known beside what archives hold.

    Raises:
        ConfigError: the file cannot be read.
        ArchiveError: an archive cannot be read.
    """
    if config.knowledge == "none":
        return PriorKnowledge((), at_s)
    fit = partial(_fit_for, problem=problem, latency_kind=latency_kind, precision=config.precision, at_s=at_s)
    if config.knowledge != "archive":
        return fit(read_knowledge(Path(config.knowledge)))
    places = dict.fromkeys(Path(path).resolve() for path in (config.archive, *config.seed_from))
    found = [_from_archive(place, problem, latency_kind, at_s) for place in places]
    found.append(shipped_knowledge())
    evidence = [one for knowledge in found for one in knowledge.evidence]
    return fit(Knowledge(evidence, distinct([one for knowledge in found for one in knowledge.recipes])))


def _from_archive(path: Path, problem: str, latency_kind: LatencyKind, at_s: float) -> Knowledge:
    with contextlib.closing(open_for_reading(path)) as archive:
        recipes = recipes_in(archive, without=[problem], until_s=at_s, latency_kind=latency_kind)
        return Knowledge(archive.knowledge(until_s=at_s), recipes)


def _fit_for(
    known: Knowledge, *, problem: str, latency_kind: LatencyKind, precision: PrecisionClass, at_s: float
) -> PriorKnowledge:
    evidence = tuple(one for one in known.evidence if one.latency_kind is latency_kind)
    alike = [one for one in known.recipes if one.latency_kind is latency_kind and one.suits(precision)]
    recipes = tuple(one for one in alike if one.problem != problem)
    return PriorKnowledge(evidence, at_s, recipes)


def shipped_knowledge() -> Knowledge:
    """What every run knows that is not told to know a file, or nothing."""
    return parse_knowledge((resources.files("configs") / "knowledge.json").read_text(), "configs/knowledge.json")


def condensed(evidence: Iterable[TechniqueEvidence]) -> list[TechniqueEvidence]:
    """One record for each technique and state: moves and what came before count together."""
    together = summed(one.model_copy(update={"previous": "", "move": ""}) for one in evidence)
    return sorted(together, key=lambda one: (one.state, one.technique, one.latency_kind, one.hardware_id))


# ---------------------------------------------------------------------------------------------------------------- files


def write_knowledge(known: Knowledge, path: Path) -> None:
    """Writes a file that `read_knowledge` reads: JSON, one line for each piece of evidence and each recipe.

    Raises:
        ConfigError: the file cannot be written.
    """
    evidence, recipes = (",\n".join(one.model_dump_json(exclude_defaults=True) for one in records) for records in known)
    text = f'{{"format": "{FORMAT}", "evidence": [\n{evidence}\n], "recipes": [\n{recipes}\n]}}\n'
    try:
        path.write_text(text)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", "name another file") from None


def read_knowledge(path: Path) -> Knowledge:
    """What a file knows.

    Raises:
        ConfigError: there is no such file, or it is none of `evolve knowledge export`.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        hint = "write one: evolve knowledge export FILE; or give archive or none"
        raise ConfigError(f"cannot read knowledge from {path}: {reason}", hint) from None
    return parse_knowledge(text, str(path))


def parse_knowledge(text: str, name: str) -> Knowledge:
    """What the text of a file knows; files without recipes are older ones. Raises as `read_knowledge`."""
    try:
        content: Any = json.loads(text)
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ConfigError(f"{name} is no file of {FORMAT!r}", "write one: evolve knowledge export FILE")
        evidence = [TechniqueEvidence.model_validate(one) for one in content["evidence"]]
        if not all(math.isfinite(n) for one in evidence for _, n in one if isinstance(n, float)):
            raise ValueError("evidence holds what is no number")
        return Knowledge(evidence, [Recipe.model_validate(one) for one in content.get("recipes", [])])
    except (ValidationError, ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        reason = str(error).splitlines()[0]
        raise ConfigError(f"{name} is damaged: {reason}", "write it again: evolve knowledge export FILE") from None


# ----------------------------------------------------------------------------------------------------------- for people


def technique_values(
    archive: ArchiveReader,
    *,
    state: str = "",
    technique: str = "",
    limit: int | None = None,
    by_move: bool = False,
    without: Sequence[str] = (),
) -> list[TechniqueValue]:
    """What techniques are worth, the best of each state first; states of which most is known come first.

    Args:
        state: only states whose key holds this text.
        technique: only this one.
        limit: at most so many of each state.
        by_move: one record for each move of a technique.
        without: problems whose attempts do not count.
    """
    blank = {"previous": ""} if by_move else {"previous": "", "move": ""}
    wanted = [e for e in archive.knowledge(without=without) if state in e.state and technique in ("", e.technique)]
    groups: dict[tuple[str, ...], list[TechniqueEvidence]] = {}
    for one in summed(e.model_copy(update=blank) for e in wanted):
        groups.setdefault((one.latency_kind, one.hardware_id, one.state), []).append(one)
    in_order = sorted(groups.values(), key=lambda group: (group[0].latency_kind, -sum(one.n_tried for one in group)))
    best = [sorted(map(value_of, group), key=_by_gain)[:limit] for group in in_order]
    return [value for group in best for value in group]


def attempt_stories(
    archive: ArchiveReader, *, state: str = "", technique: str = "", limit: int = 20
) -> list[AttemptStory]:
    """The last attempts, the latest first. Arguments as for `ArchiveReader.attempts`."""
    return [_story(one) for one in archive.attempts(state=state, technique=technique, limit=limit)]


def _story(one: JudgedAttempt) -> AttemptStory:
    before, after = Standing.of(one.parent), Standing.of(one.child)
    return AttemptStory(
        candidate_id=one.candidate_id,
        technique=one.technique,
        previous=one.previous,
        detail=one.detail,
        diagnosis=one.diagnosis,
        state=one.state,
        predicted_octaves=one.predicted_octaves,
        latency_kind=before.latency_kind,
        octaves=one.octaves,
        cause=cause_of(before, after, one.predicted_octaves, one.octaves),
    )


def value_of(one: TechniqueEvidence) -> TechniqueValue:
    """The averages and intervals of some evidence."""
    low, high = _wilson(one.n_improved, one.n_tried)
    change, half = _mean(one.octaves, one.squared_octaves, one.n_passed)
    return TechniqueValue(
        state=one.state,
        technique=one.technique,
        move=one.move,
        latency_kind=one.latency_kind,
        hardware_id=one.hardware_id,
        n_tried=one.n_tried,
        n_passed=one.n_passed,
        n_improved=one.n_improved,
        gain_octaves=one.gained_octaves / one.n_tried,
        chance=one.n_improved / one.n_tried,
        chance_low=low,
        chance_high=high,
        change_octaves=change,
        change_low=None if change is None or half is None else max(change - half, -MOST_OCTAVES),
        change_high=None if change is None or half is None else min(change + half, MOST_OCTAVES),
        error_octaves=math.sqrt(one.squared_error / one.n_predicted) if one.n_predicted else None,
    )


def _by_gain(value: TechniqueValue) -> tuple[float, float, int, str, str]:
    return -value.gain_octaves, -(value.change_octaves or 0.0), -value.n_tried, value.technique, value.move


def _wilson(n_hits: int, n: int) -> tuple[float, float]:
    """The 95% interval of a proportion (Wilson 1927, doi 10.1080/01621459.1927.10502953)."""
    share, square = n_hits / n, _Z * _Z
    centre = (share + square / (2 * n)) / (1 + square / n)
    half = _Z * math.sqrt(share * (1 - share) / n + square / (4 * n * n)) / (1 + square / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def _mean(total: float, squares: float, n: int) -> tuple[float | None, float | None]:
    """A mean and the half-width of its 95% interval; None where there is nothing to say."""
    if n == 0:
        return None, None
    mean = total / n
    if n == 1:
        return mean, None
    variance = max(0.0, squares - n * mean * mean) / (n - 1)
    return mean, _Z * math.sqrt(variance / n)
