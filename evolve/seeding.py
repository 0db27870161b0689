"""Where a run starts from: the problem's own programs, files, the elites of earlier archives, or a language model."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from db.errors import SeedError
from db.hashing import program_id_of
from db.live import open_for_reading
from db.queries import Elite
from db.records import SEED, EntryPoint, Evaluation, LatencyKind, Problem
from evaluators.problems import read_seed
from evolve.config import RunConfig
from evolve.language import has_models
from islands.seed import Seed

NO_FILES = ("archive", "none")  # what `knowledge` may name beside a file


def collect_seeds(config: RunConfig, problem: Problem) -> list[Seed]:
    """All first programs of a run, best known first: prior elites, files, the problem's own.

    A program with `@triton.autotune` becomes one seed for each of its configurations. Empty where nothing is known but
    the reference, and language models are there to write the first program.

    Raises:
        SeedError: nothing to start from and nobody to write it, or a file that is no program.
        ArchiveError: an earlier archive cannot be read.
    """
    seeds = [seed for archive in config.seed_from for seed in _from_archive(archive, config, problem)]
    seeds += [Seed(source=read_seed(Path(path), problem.entry_point), origin=path) for path in config.seed_programs]
    seeds += [Seed(source=source, origin=problem.name) for source in problem.seeds]
    frozen = [Seed(source=source, origin=seed.origin) for seed in seeds for source in _programs_of(seed.source)]
    if not frozen and not has_models(config):
        raise SeedError(
            f"problem {problem.name!r} has no first program to evolve",
            f"add a Triton {EntryPoint.MODEL} to its file, give one with --seed-program FILE or --seed-from ARCHIVE, "
            f"or let a language model write it: --model provider/name{_with_a_gpu(problem)}",
        )
    return frozen


def with_what_is_there(config: RunConfig) -> tuple[RunConfig, list[str]]:
    """The configuration of a run that is resumed, perhaps on another machine, and the files of it that are gone: it has
    its first programs in its archive."""
    gone = [path for path in (*config.seed_from, *config.seed_programs) if not Path(path).exists()]
    kept: dict[str, object] = {
        name: tuple(path for path in getattr(config, name) if path not in gone)
        for name in ("seed_from", "seed_programs")
    }
    if config.knowledge not in NO_FILES and not Path(config.knowledge).exists():
        gone.append(config.knowledge)
        kept["knowledge"] = "archive"
    return config.model_copy(update=kept), gone


def seeds_again(config: RunConfig, problem: Problem, judged: Sequence[Evaluation]) -> list[Seed]:
    """What a resumed run starts from: its first programs that were judged, and the others as far as they are there.

    Raises:
        SeedError, ArchiveError: as `collect_seeds`, where none was judged yet.
    """
    first = [e.candidate for e in judged if e.candidate.lineage.operator == SEED]
    known = {one.program_id: Seed(source=one.source, origin=one.lineage.seeded_from) for one in first}
    try:
        found = collect_seeds(config, problem)
    except SeedError:
        if not known:
            raise
        found = []
    others = {program_id_of(seed.source, problem.entry_point): seed for seed in found}
    return list({**others, **known}.values())


def _programs_of(source: str) -> list[str]:
    """One for each configuration of an autotuned program."""
    if "autotune" not in source:
        return [source]
    from islands.operators.freeze import freeze_autotune  # with libcst, which most runs begin without

    return freeze_autotune(source)


def _with_a_gpu(problem: Problem) -> str:
    is_module = problem.kind == "kernelbench"
    return "; on a machine with a GPU a module is taken apart and needs none" if is_module else ""


def with_seeds(problem: Problem, seeds: Sequence[Seed]) -> Problem:
    """The problem as a run judges it: a modelled baseline is that of a first program, where the run has any."""
    return problem if problem.seeds else problem.model_copy(update={"seeds": tuple(seed.source for seed in seeds)})


def as_it_began(problem: Problem, judged: Sequence[Evaluation]) -> Problem:
    """A stored problem as a run of its archive knew it: without seeds, where that run began without.

    An archive holds each problem once, with the seeds of the run that brought it.
    """
    if judged and judged[0].candidate.lineage.operator != SEED:
        return problem.model_copy(update={"seeds": ()})
    return problem


def _from_archive(path: str, config: RunConfig, problem: Problem) -> list[Seed]:
    """The elites of the same problem, or of `seed_problem`, in one archive; measured ones before modelled ones."""
    with contextlib.closing(open_for_reading(Path(path))) as archive:
        elites = archive.elites(problem=config.seed_problem or problem.problem_id, precision=config.precision)
    unique = {elite.program.program_id: elite.program.source for elite in sorted(elites, key=_by_promise)}
    return [Seed(source=source, origin=path) for source in list(unique.values())[: config.n_seeds]]


def _by_promise(elite: Elite) -> tuple[bool, float]:
    latency = elite.verdict.latency
    return (True, 0.0) if latency is None else (latency.kind is LatencyKind.MODELLED, -latency.speedup)
