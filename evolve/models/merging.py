"""What several archives hold, put into one. DuckDB lets one process write a file, so each of several has its own."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from db.archive import ProgramArchive
from db.live import open_for_reading
from db.reading import ArchiveReader
from db.records import Run
from db.reflections import Reflection, Wanted
from evolve.preflight import READER_WAIT_S

CHUNK = 512  # evaluations in one transaction


def merge_archives(sources: Sequence[Path], target: Path) -> int:
    """Puts problems, runs, evaluations, calls of language models and what they taught into one archive.

    What is there already stays, so merging may be repeated, and go on where it was cut short. The sources stay too.

    Returns:
        How many evaluations were new.

    Raises:
        ArchiveError: one cannot be read, or the target cannot be written.
    """
    n_new = 0
    with contextlib.closing(ProgramArchive.open(target, wait_s=READER_WAIT_S)) as archive:
        for source in sources:
            with contextlib.closing(open_for_reading(source, wait_s=READER_WAIT_S)) as reader:
                n_new += _merge(reader, archive)
    return n_new


def _merge(reader: ArchiveReader, archive: ProgramArchive) -> int:
    for problem in reader.problems():
        archive.add_problem(problem)
    known = {run.run_id for run in archive.runs()}
    n_new = 0
    for run in reader.runs():
        (archive.update_run if run.run_id in known else archive.add_run)(run)
        evaluations = reader.evaluations(run.run_id)
        for start in range(0, len(evaluations), CHUNK):
            n_new += archive.insert(evaluations[start : start + CHUNK])
        archive.add_llm_calls(reader.llm_calls(run.run_id))
        _merge_lessons(reader, archive, run)
    return n_new


def _merge_lessons(reader: ArchiveReader, archive: ProgramArchive, run: Run) -> None:
    of_run = Wanted(run_id=run.run_id)
    lessons, explanations = reader.lessons(of_run), reader.explanations(of_run)
    techniques = reader.learnt_techniques(of_run)  # which are no island's; a reflection without lessons clears them
    islands = {*(one.island for one in lessons), *(one.island for one in explanations), *([0] if techniques else [])}
    for island in sorted(islands):
        reflection = Reflection(
            run_id=run.run_id,
            island=island,
            lessons=tuple(lesson for lesson in lessons if lesson.island == island),
            explanations=tuple(one for one in explanations if one.island == island),
            techniques=tuple(techniques) if island == 0 else (),
        )
        archive.add_reflection(reflection)
    archive.add_opinions(reader.opinions(run_id=run.run_id))
