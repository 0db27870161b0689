"""`evolve run`: a search, watched; of a module, the searches of its parts."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any

from evaluators.problems.importable import with_inputs
from evolve.cli import run_options as opt
from evolve.cli.console import note
from evolve.cli.live import watching
from evolve.cli.model_view import ModelView, finish_model, silent
from evolve.cli.options import parse_shapes
from evolve.cli.summary import finish
from evolve.config import RunConfig, in_order, load_config, parse_duration
from evolve.models.run import is_taken_apart, run_model
from evolve.run import run_search


def run(
    problem: opt.ProblemName,
    inputs: opt.Inputs = None,
    archive: opt.Archive = None,
    islands: opt.Islands = None,
    evaluations: opt.Evaluations = None,
    time: opt.Time = None,
    device: opt.DeviceChoice = None,
    target: opt.Target = None,
    shape: opt.Shapes = None,
    sets: opt.Sets = None,
    config: opt.Config = None,
    preset: opt.Preset = "",
    seed_from: opt.SeedFrom = None,
    seed_program: opt.SeedProgram = None,
    knowledge: opt.Knowledge = None,
    model: opt.Models = None,
    parts: opt.PartsChoice = None,
    rng_seed: opt.RngSeed = None,
    deterministic: opt.Deterministic = False,
    precision: opt.Precision = None,
    strategy: opt.StrategyChoice = None,
    out: opt.Out = None,
    ray_address: opt.RayAddress = None,
    quiet: opt.Quiet = False,
) -> None:
    """Search for a faster kernel for a problem.

    On a GPU, a module without a first program is taken apart, improved part by part and put together again. Everything
    that is tried is kept in the archive; Ctrl-C stops cleanly and says how to resume.
    """
    problem = with_inputs(problem, inputs) if inputs else problem
    options = {
        "archive": archive,
        "islands": islands,
        "evaluations": evaluations,
        "time_s": parse_duration(time) if time else None,
        "device": device,
        "target": target,
        "shapes": parse_shapes(shape or ()),
        "seed_from": seed_from,
        "seed_programs": seed_program,
        "knowledge": knowledge,
        "models": model,
        "parts": parts,
        "rng_seed": rng_seed,
        "precision": precision,
        "strategy": strategy,
        "out": out,
        "cluster": {"address": ray_address} if ray_address else None,
    }
    layer = {key: _plain(value) for key, value in options.items() if value not in (None, [], {})}
    settings = load_config(problem, preset=preset, file=config, sets=sets or (), options=layer)
    if deterministic:
        settings = in_order(settings)
        note(_what_repeats(settings))
    if is_taken_apart(settings):
        ended = run_model(settings, silent if quiet else ModelView())
        finish_model(ended, archive=settings.archive, module=problem)
        return
    with watching(quiet=quiet) as on_event:
        result = run_search(settings, on_event=on_event)
    finish(result, archive=settings.archive)


def _what_repeats(config: RunConfig) -> str:
    """What a run in order promises, and what keeps it from being repeated."""
    spoils = ["measured latencies"] * (config.device != "cpu") + ["the end by --time"] * (config.time_s is not None)
    spoils += ["answers of models that are not replayed"] * bool(config.models and not config.llm.replay)
    text = f"deterministic: {config.in_order} candidates in flight, told in the order of asking"
    return f"{text}; not repeated: {', '.join(spoils)}" if spoils else text


def _plain(value: Any) -> Any:
    """An option's value as a config file would hold it."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, StrEnum):
        return value.value
    return str(value) if isinstance(value, Path) else value
