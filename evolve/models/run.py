"""`run_model`: a whole model from its configuration to the delivered file. Library twin of `evolve run model.py`."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from db.errors import ConfigError, DeviceError
from db.records import DeviceKind, Problem
from evaluators.decomposition.decompose import decompose
from evaluators.decomposition.records import Decomposition
from evaluators.problems import load_problem
from evolve.cluster import connected
from evolve.config import RunConfig
from evolve.device import resolve_device
from evolve.exchange import is_exchanged
from evolve.language import has_models, without_keys
from evolve.models.budget import Allotment
from evolve.models.improve import Tools, ignore, improve
from evolve.models.judging import WholeJudge
from evolve.models.output import write_model
from evolve.models.records import Attempt, ModelRun, OnModelEvent, PartResult
from evolve.models.searching import search_one
from evolve.preflight import check_start
from evolve.run import new_run_id


def is_taken_apart(config: RunConfig) -> bool:
    """Whether a run is that of a whole model: `parts` says so, or, left to itself, a module on a GPU of this machine
    that has no first program, unless answers of language models are carried or recorded.

    Raises:
        ProblemError: there is no such problem.
        DeviceError: it is wanted, and this machine has no GPU.
        ConfigError: it is wanted together with what only one search can do.
    """
    if config.parts == "never":
        return False
    problem = load_problem(config.problem, sizes=config.shapes)
    if config.parts == "always":
        check_wanted(config)
        return True
    is_one_search = bool(problem.seeds or config.seed_programs or config.seed_from) or _needs_one_search(config)
    return problem.kind == "kernelbench" and not is_one_search and resolve_device(config.device) is DeviceKind.CUDA


def run_model(config: RunConfig, on_event: OnModelEvent = ignore) -> ModelRun:
    """Take a module apart, search its parts, put the winners back, judge the whole, and deliver it or the reason.

    Everything that is judged is in the archive. The searches of parts are runs of their own there; the files that were
    put together are those of one more.

    Raises:
        EvolveError: something that the user can mend; nothing that was judged is lost.
    """
    problem = load_problem(config.problem, sizes=config.shapes)
    check_wanted(config)
    check_start(config, DeviceKind.CUDA)
    run_id = new_run_id()
    folder = Path(config.out or f"evolve-out/{run_id}")
    with WholeJudge(problem, config, run_id) as judge, _ray(config):
        search = partial(search_one, config=config, folder=folder / "searches", on_event=on_event)
        tools = Tools(
            partial(_take_apart, judge=judge, config=config), search, partial(_judge_whole, judge=judge, config=config)
        )
        budget = Allotment(config.evaluations, config.time_s)
        has_start = bool(problem.seeds or config.seed_programs or has_models(config))
        ended = improve(problem, tools, budget, tries_whole=has_start, on_event=on_event)
        judge.finish(str(ended.result.outcome))
    told: dict[str, object] = {"run_id": run_id, "precision": config.precision}
    if judge.report is not None:
        told |= {"hardware": judge.report.hardware.name, "baseline": judge.report.baseline}
    return write_model(ended.model_copy(update=told), Path(config.archive), folder)


def weights_folder(archive: Path) -> Path:
    """Where the weights lie that problems of parts read: beside the archive, which holds those problems."""
    return archive.with_name(f"{archive.name}.weights")


def _take_apart(problem: Problem, *, judge: WholeJudge, config: RunConfig) -> Decomposition:
    """Compiled the faster way; where that cannot be taken apart (templates of products, for example), the plain way."""
    folder = weights_folder(Path(config.archive))
    with without_keys(config):
        way = judge.open()
        found = decompose(problem, folder=folder, way=way, precision=config.precision)
        if found.graph is None and way != "compile":
            found = decompose(problem, folder=folder, precision=config.precision)
    return found


def _judge_whole(source: str, parts: Sequence[PartResult], *, judge: WholeJudge, config: RunConfig) -> Attempt:
    with without_keys(config):
        return judge.judge(source, parts)


def check_wanted(config: RunConfig) -> None:
    """Make sure that a module can be taken apart here.

    Raises:
        ConfigError: answers of language models are to be carried or recorded, which only one search can do.
        DeviceError: this machine has no GPU, or another device is chosen.
    """
    if _needs_one_search(config):
        raise ConfigError(
            "a model in parts is several searches: answers of language models cannot be carried or recorded for it",
            "leave llm.mode, llm.record and llm.replay out, or search it as one kernel: evolve run FILE --parts never",
        )
    if resolve_device(config.device) is not DeviceKind.CUDA:
        hint = "evolve run FILE --parts never searches a module as one kernel, without one"
        raise DeviceError("taking a module apart needs a GPU on this machine", hint)


def _needs_one_search(config: RunConfig) -> bool:
    """Whether answers of language models are carried or recorded: a file of answers is that of one search."""
    return bool(is_exchanged(config) or config.llm.record or config.llm.replay)


def _ray(config: RunConfig) -> contextlib.AbstractContextManager[None]:
    """One Ray for all searches. Where language models are asked, each starts its own, after keys have left the
    environment."""
    return contextlib.nullcontext() if has_models(config) else connected(config.cluster.address, needs_gpu=True)
