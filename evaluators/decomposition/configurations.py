"""Block sizes and launch options that Inductor would try for one of its kernels, from its own heuristics.

Inductor writes a rule into its output ("a persistent reduction of 512 rows"); the rule's code, run here on the device
properties that the output names, gives the configurations. That needs no GPU.
"""

from __future__ import annotations

import ast
from typing import Any

from evaluators.decomposition.errors import DecompositionError
from evaluators.decomposition.kernels import definition, heuristics_of
from evaluators.decomposition.plain import definitions_text, import_text, plain
from evaluators.decomposition.steps import Configuration, Kernel
from evaluators.problems.module import load_module


def configurations(kernel: Kernel) -> list[Configuration]:
    """In Inductor's order; without measuring, the first is as good a guess as any.

    Raises:
        DecompositionError: this version of torch has no such rule, or it fails.
    """
    decorator = heuristics_of(definition(kernel.source, kernel.name))
    try:
        tuned = _evaluated(decorator)(_function(kernel))
        found = [configuration_of(config, kernel) for config in tuned.configs]
    except DecompositionError:
        raise
    except Exception as error:  # another version's rule, or one that wants a GPU: Inductor fails in its own ways
        raise DecompositionError(f"no configuration for {kernel.name}: {type(error).__name__}: {error}") from error
    return [config for i, config in enumerate(found) if config not in found[:i]]


def configuration_of(config: Any, kernel: Kernel) -> Configuration:
    """A `triton.Config` as a record; what the kernel has no parameter for is left out."""
    constants = {name: value for name, value in config.kwargs.items() if name in kernel.constexprs}
    return Configuration(constants=constants, num_warps=config.num_warps, num_stages=config.num_stages)


def _evaluated(decorator: ast.Call) -> Any:
    from torch._inductor.runtime import hints, triton_heuristics

    names = {name: getattr(hints, name) for name in dir(hints) if name[:1].isupper()}
    scope = {**names, "triton_heuristics": triton_heuristics, "__file__": "/nonexistent/kernel.py"}
    return eval(compile(ast.Expression(decorator), "<heuristics>", "eval"), scope)


def _function(kernel: Kernel) -> Any:
    """The kernel under `@triton.jit`, as a function that knows its parameters."""
    parts = [plain(kernel, in_place=True)]
    module = load_module(import_text(parts) + definitions_text(parts), f"inductor_{kernel.name}")
    return getattr(module, kernel.name)
