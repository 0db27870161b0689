"""What the compiler changes around a convolution, so that buffers lose the nodes whose values they hold.

On a GPU Inductor peels the bias off and adds it in the kernel that comes next, because cuDNN is slower with it, and
lays out anew what goes in (torch/_inductor/kernel/conv.py). What the library answers then is the value of no node of
the graph; what it takes is, but Inductor does not note of which.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from torch import fx

from evaluators.decomposition.steps import Extern, Output

_BIAS = 2  # aten.convolution(input, weight, bias, ...)


def biasless(output: Output, aten: fx.GraphModule, origins: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The convolution of the graph for each buffer that holds its value less the bias.

    Args:
        aten: the graph that Inductor lowered.
        origins: the nodes that a buffer comes from, where it holds the value of none.
    """
    found = {}
    with_bias = [node.name for node in aten.graph.nodes if _has_bias(node)]
    for step in output.externs:
        come_from = set(origins.get(step.result, ()))
        nodes = [name for name in with_bias if name in come_from]
        if nodes and _is_called_without_bias(step):
            found[step.result] = nodes[-1]  # others were fused into what goes in
    return found


def laid_out(output: Output, aten: fx.GraphModule, known: Mapping[str, str]) -> dict[str, str]:
    """The node whose value each buffer holds that a convolution takes: its input, its weight.

    Args:
        known: the convolution of the graph for what a library answers, with its bias or without.
    """
    nodes = {node.name: node for node in aten.graph.nodes}
    found: dict[str, str] = {}
    for step in (step for step in output.externs if _is_convolution(step)):
        node = nodes.get(known.get(step.result, ""))
        for name, argument in zip(step.reads[:_BIAS], node.args[:_BIAS] if node is not None else (), strict=False):
            if isinstance(argument, fx.Node):
                found.setdefault(name, argument.name)
    return found


def bias_of(node: fx.Node) -> fx.Node:
    """The bias of a convolution that has one."""
    bias = node.args[_BIAS]
    assert isinstance(bias, fx.Node)
    return bias


def _has_bias(node: fx.Node) -> bool:
    is_convolution = node.op == "call_function" and str(node.target) == "aten.convolution.default"
    return is_convolution and isinstance(node.args[_BIAS], fx.Node)


def _is_convolution(step: Extern) -> bool:
    return step.target.rpartition(".")[2] == "convolution"


def _is_called_without_bias(step: Extern) -> bool:
    if not _is_convolution(step):
        return False
    calls = [node for node in ast.walk(ast.parse(step.text)) if isinstance(node, ast.Call)]
    return any(
        keyword.arg == "bias" and isinstance(keyword.value, ast.Constant) and keyword.value.value is None
        for call in calls
        for keyword in call.keywords
    )
