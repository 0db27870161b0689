"""What language models that looked back left in archives: what a run starts from, and what people are shown.

Lessons, explanations, learnt techniques and opinions advise operators. None of them decides a gate.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from db.live import open_for_reading
from db.opinions import ProgramOpinion
from db.reading import ArchiveReader
from db.records import Problem
from db.reflections import Explanation, LearntTechnique, Lesson, Wanted
from evolve.config import RunConfig
from islands.reflection import N_ADVICE, N_LESSONS, N_OPINIONS, N_TECHNIQUES, Taught, newest

MOST_READ = 256
"""Records of a kind that are looked at in each archive: several islands may hold one lesson."""

T = TypeVar("T", Lesson, Explanation, LearntTechnique, ProgramOpinion)


class Left(NamedTuple):
    """What reflection and the judge left, the newest first."""

    lessons: Sequence[Lesson] = ()
    explanations: Sequence[Explanation] = ()
    techniques: Sequence[LearntTechnique] = ()
    opinions: Sequence[ProgramOpinion] = ()


# ----------------------------------------------------------------------------------------------- what a run starts from


def collect_taught(config: RunConfig, problem: Problem, at_s: float) -> Taught:
    """What the islands of a run that starts at a moment were taught before: in its archive and those it is seeded from.

    Lessons and techniques that were learnt on a problem of this name come before all others, the newest first. What to
    avoid, what to try next, and opinions are about single programs: only those on this problem count, and of opinions
    those of the run's own archive, where people find them. A file of `evolve knowledge export` holds nothing of this,
    and `--knowledge none` leaves it out.

    Raises:
        ArchiveError: an archive cannot be read.
    """
    if config.knowledge != "archive":
        return Taught()
    places = dict.fromkeys(Path(path).resolve() for path in (config.archive, *config.seed_from))
    found = [_left_in(place, problem, at_s) for place in places]
    lessons = _sorted((left.lessons, here) for left, here in found)
    techniques = _sorted((left.techniques, here) for left, here in found)
    explanations = _sorted((left.explanations, here) for left, here in found)
    opinions = _sorted((left.opinions, here) for left, here in found[:1])
    taught = Taught(
        lessons=_oldest_first((one.text for one in lessons.all), N_LESSONS),
        avoid=_oldest_first((one.avoid for one in explanations.same), N_ADVICE),
        advice=_oldest_first((one.try_next for one in explanations.same), N_ADVICE),
    )
    by_name = {one.name: one for one in reversed(techniques.all)}  # of those with one name the first counts
    kept = sorted(by_name.values(), key=techniques.all.index)[:N_TECHNIQUES]
    return taught.beside(reversed(kept), reversed(opinions.same[:N_OPINIONS]))


def _left_in(path: Path, problem: Problem, at_s: float) -> tuple[Left, set[str]]:
    """What an archive held at a moment, and its runs on a problem, whatever sizes or name it had there."""
    wanted = Wanted(first=problem.name, until_s=at_s, limit=MOST_READ)
    with contextlib.closing(open_for_reading(path)) as archive:
        opinions = [one for one in archive.opinions() if one.created_at < at_s]
        left = Left(archive.lessons(wanted), archive.explanations(wanted), archive.learnt_techniques(wanted), opinions)
        return left, archive.runs_on(problem.name) | archive.runs_on(problem.problem_id)


class _Sorted(NamedTuple, Generic[T]):
    """Records of the same problem, and all of them with those first; the newest first."""

    same: list[T]
    all: list[T]


def _sorted(found: Iterable[tuple[Sequence[T], set[str]]]) -> _Sorted[T]:
    """`found` are the records of each archive, and its runs on the same problem."""
    marked = [(one, one.run_id in here) for records, here in found for one in records]
    marked.sort(key=lambda pair: (not pair[1], -pair[0].created_at))  # what has one age stays in its order
    return _Sorted([one for one, is_same in marked if is_same], [one for one, _ in marked])


def _oldest_first(texts: Iterable[str], n: int) -> tuple[str, ...]:
    """The first `n` different texts, the last of them first."""
    first = list(dict.fromkeys(text for text in texts if text))[:n]
    return tuple(reversed(first))


def continued(prior: Taught, island: int, left: Left) -> Taught:
    """What an island of a resumed run was taught: before the run, and in its earlier sittings by what they `left`."""
    own = sorted((one for one in left.lessons if one.island == island), key=lambda one: one.position)
    explanations = [one for one in reversed(left.explanations) if one.island == island]
    taught = prior.model_copy(
        update={
            "lessons": tuple(one.text for one in own) or prior.lessons,
            "avoid": newest((*prior.avoid, *(one.avoid for one in explanations)), N_ADVICE),
            "advice": newest((*prior.advice, *(one.try_next for one in explanations)), N_ADVICE),
            "seen": max((one.candidate_id for one in explanations), default=""),
        }
    )
    return taught.beside(reversed(left.techniques), reversed(left.opinions))


# ----------------------------------------------------------------------------------------------------------- for people


def lessons(archive: ArchiveReader, run_id: str | None = None, *, limit: int | None = None) -> list[Lesson]:
    """What islands keep in mind, the newest first: of one run or of all.

    Raises:
        NotFoundError: the archive holds no such run.
    """
    return _read(archive, archive.lessons, run_id, limit)


def explanations(archive: ArchiveReader, run_id: str | None = None, *, limit: int | None = None) -> list[Explanation]:
    """Why attempts of models gained what they did, the newest first: of one run or of all. Raises as `lessons`."""
    return _read(archive, archive.explanations, run_id, limit)


def learnt_techniques(
    archive: ArchiveReader, run_id: str | None = None, *, limit: int | None = None
) -> list[LearntTechnique]:
    """Techniques that runs came upon, the newest first: of one run or of all. Raises as `lessons`."""
    return _read(archive, archive.learnt_techniques, run_id, limit)


def _read(archive: ArchiveReader, read: Callable[[Wanted], list[T]], run_id: str | None, limit: int | None) -> list[T]:
    if run_id is not None:
        archive.run(run_id)
    return read(Wanted(run_id=run_id, limit=limit))
