"""Loading a candidate: every job that runs candidate code begins here, inside a child."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from evaluators.sandbox.confinement import confine_for_candidate

MODULE_NAME = "candidate"
CONSTRUCTION_SEED = 0


class CandidateError(Exception):
    """The source does not define what a candidate must define, or cannot take the reference's weights."""


def load_candidate(source: str, path: Path | None = None) -> ModuleType:
    """Write the source to a file (`candidate.py` in the working folder) and import it from there: Triton reads the
    source of a kernel from its file. In a child of the sandbox it is confined for good before."""
    path = Path(path or Path.cwd() / f"{MODULE_NAME}.py").absolute()
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(MODULE_NAME, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE_NAME] = module
    confine_for_candidate()
    spec.loader.exec_module(module)
    return module


def build(
    module: ModuleType,
    entry_point: str,
    init_args: Sequence[Any] = (),
    weights: Mapping[str, torch.Tensor] | None = None,
    device: str | torch.device = "cpu",
) -> Callable[..., Any]:
    """What takes the inputs: `kernel_function` itself, or a `ModelNew` built from `init_args` under a fixed random
    seed, with the reference's weights of the same names, in evaluation mode, on a device.

    Raises:
        CandidateError: no such entry point, or a weight of another shape.
    """
    entry = getattr(module, entry_point, None)
    if not callable(entry):
        raise CandidateError(f"the program defines no {entry_point}")
    if not isinstance(entry, type):
        function: Callable[..., Any] = entry
        return function
    torch.manual_seed(CONSTRUCTION_SEED)
    model = entry(*init_args)
    if not isinstance(model, torch.nn.Module):
        raise CandidateError(f"{entry_point} must be a torch.nn.Module, got {type(model).__name__}")
    try:
        model.load_state_dict(dict(weights or {}), strict=False)
    except RuntimeError as error:
        raise CandidateError(f"{entry_point} cannot take the reference's weights: {error}") from error
    built: Callable[..., Any] = model.to(device).eval()
    return built
