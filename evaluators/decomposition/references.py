"""What a part computes, in ATen terms: the piece of the graph between its inputs and its outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from evaluators.decomposition.convolutions import bias_of
from evaluators.decomposition.parts import Part, Tensor

_ONLINE_SOFTMAX = "prims.prepare_softmax_online.default"


def aten_code(
    aten: fx.GraphModule, buffers: Mapping[str, str], part: Part, biasless: Mapping[str, str] | None = None
) -> str | None:
    """`def forward(self, ...)` over ATen operations, or None where the part is no piece of the graph.

    A part is none when one of its tensors is a step on the way to a node (a partial sum, for example).

    Args:
        aten: the graph that Inductor lowered.
        buffers: the node whose value each buffer holds.
        part: its inputs become the arguments, in order.
        biasless: the convolution of which a buffer holds the value less the bias.
    """
    lacking = biasless or {}
    nodes = {node.name: node for node in aten.graph.nodes}
    inputs = [_node(tensor, nodes, {**buffers, **lacking}) for tensor in part.inputs]
    outputs = [_node(tensor, nodes, buffers) for tensor in part.outputs]
    whole = {node for node, tensor in zip(inputs, part.inputs, strict=True) if tensor.name not in lacking}
    if None in inputs or None in outputs or whole & set(outputs):
        return None
    piece = _Piece()
    for tensor, node in zip(part.inputs, inputs, strict=True):
        piece.begin(node, tensor.name, lacks_bias=tensor.name in lacking)
    try:
        answers = [piece.copied(node) for node in outputs]
    except _NotClosed:
        return None
    piece.graph.output(tuple(answers) if len(answers) > 1 else answers[0])
    code: str = fx.GraphModule(torch.nn.Module(), piece.graph).code
    return code.strip() + "\n"


def _node(tensor: Tensor, nodes: Mapping[str, Any], buffers: Mapping[str, str]) -> Any:
    """The node of a tensor, if its value has the same shape."""
    node = nodes.get(buffers.get(tensor.name, tensor.name))
    value = node.meta.get("val") if node is not None else None
    is_same = isinstance(value, torch.Tensor) and tuple(value.shape) == tensor.spec.shape
    return node if is_same else None


class _NotClosed(Exception):  # noqa: N818  an answer, not an error
    """The piece needs something that is not among its inputs."""


class _Piece:
    """A graph that grows from its outputs back to its inputs."""

    def __init__(self) -> None:
        self.graph = fx.Graph()
        self._copies: dict[Any, Any] = {}
        self._lacking_bias: dict[Any, Any] = {}

    def begin(self, node: Any, name: str, *, lacks_bias: bool = False) -> None:
        """The value of a node is given, or that of a convolution less its bias."""
        held = self._lacking_bias if lacks_bias else self._copies
        held[node] = self.graph.placeholder(name)

    def copied(self, node: Any) -> Any:
        """The copy of a node, after those that it needs; iterative, because graphs are deep."""
        waiting = [node]
        while waiting:
            current = waiting[-1]
            missing = [n for n in self._needs(current) if n not in self._copies]
            if current in self._copies or not missing:
                waiting.pop()
                self._copy(current)
            else:
                waiting += missing
        return self._copies[node]

    def _needs(self, node: Any) -> list[Any]:
        return [bias_of(node)] if node in self._lacking_bias else list(node.all_input_nodes)

    def _copy(self, node: Any) -> None:
        if node in self._copies:
            return
        if node.op != "call_function":
            raise _NotClosed(node.name)
        if node in self._lacking_bias:
            self._copies[node] = self._with_bias(node)
        elif str(node.target) == _ONLINE_SOFTMAX:
            self._copies[node] = self._online_softmax(*node.args)
        elif getattr(node.target, "__name__", "") == "getitem" and isinstance(self._copies[node.args[0]], tuple):
            self._copies[node] = self._copies[node.args[0]][node.args[1]]
        else:
            self._copies[node] = self.graph.node_copy(node, lambda n: self._copies[n])

    def _with_bias(self, node: Any) -> Any:
        call, bias = self.graph.call_function, self._copies[bias_of(node)]
        along_channels = call(torch.ops.aten.reshape.default, (bias, [-1] + [1] * (node.meta["val"].dim() - 2)))
        return call(torch.ops.aten.add.Tensor, (self._lacking_bias[node], along_channels))

    def _online_softmax(self, x: Any, dim: int) -> tuple[Any, Any]:
        """Inductor's own operation, spelt out: the maximum, and the sum of exponentials."""
        call, x = self.graph.call_function, self._copies[x]
        greatest = call(torch.ops.aten.amax.default, (x, [dim], True))
        shifted = call(torch.ops.aten.exp.default, (call(torch.ops.aten.sub.Tensor, (x, greatest)),))
        return greatest, call(torch.ops.aten.sum.dim_IntList, (shifted, [dim], True))
