"""What torch.compile makes of a model, caught where Inductor hands it over. Needs a GPU.

The hook is `inner_compile` of `compile_fx`, which is how Inductor itself lets others stand around it: it sees every
graph, the compiled code, and, at the first call, the flat argument list with the real weights in Inductor's order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor, nn

from evaluators.baseline_session import COMPILE_OPTIONS
from evaluators.decomposition.errors import DecompositionError


@dataclass
class CapturedGraph:
    """One graph. `buffers` gives Inductor's buffers the node of the ATen graph whose value they hold, `origins` those
    that hold the value of none the nodes that they come from."""

    source: str
    constants: dict[str, Any]
    aten: torch.fx.GraphModule | None = None
    buffers: dict[str, str] = field(default_factory=dict)
    origins: dict[str, tuple[str, ...]] = field(default_factory=dict)
    arguments: list[Any] = field(default_factory=list)
    returns: list[Any] = field(default_factory=list)

    @property
    def namespace(self) -> dict[str, Any]:
        """The names of the module that Inductor made of the source: its kernels, compiled and tuned."""
        from torch._inductor.codecache import PyCodeCache

        for module in reversed(PyCodeCache.modules):
            if module.__file__ and Path(module.__file__).read_text() == self.source:
                return dict(vars(module))
        raise DecompositionError("Inductor did not keep the module of its output")


@dataclass
class Captured:
    """All graphs of a model, in the order in which they were compiled, and what the model answered."""

    graphs: list[CapturedGraph]
    answer: Any
    break_reasons: list[str]


def capture(model: nn.Module, inputs: Sequence[Any], way: str) -> Captured:
    """Compiles and calls a model once.

    Args:
        model: on the GPU, in evaluation mode, its weights without gradients.
        inputs: real ones; the code is specialised to their shapes.
        way: of `COMPILE_OPTIONS`: "compile" or "max-autotune".
    """
    torch._dynamo.reset()
    graphs: list[CapturedGraph] = []
    compiled = torch.compile(model, backend=_backend(graphs, way), dynamic=False)
    with torch.no_grad(), _fresh():
        answer = compiled(*inputs)
    torch.cuda.synchronize()
    breaks = torch._dynamo.utils.counters["graph_break"]
    return Captured(graphs, answer, [str(reason) for reason in breaks])


def _backend(graphs: list[CapturedGraph], way: str) -> Callable[..., Any]:
    from torch._inductor import list_mode_options
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    mode = COMPILE_OPTIONS[way].get("mode")

    def inner(graph_module: torch.fx.GraphModule, examples: Sequence[Any], **options: Any) -> Any:
        with _watched_lowering() as lowered:
            compiled = compile_fx_inner(graph_module, examples, **options)
        captured = CapturedGraph(compiled.source_code, dict(compiled.constants or {}))
        if lowered:
            captured.aten, captured.buffers, captured.origins = lowered[-1]
        compiled.current_callable = _recording(captured, compiled.current_callable)
        graphs.append(captured)
        return compiled

    def backend(graph_module: torch.fx.GraphModule, examples: Sequence[Any]) -> Any:
        patches = list_mode_options(mode) if mode else {}
        return compile_fx(graph_module, examples, inner_compile=inner, config_patches=patches or None)

    return backend


class _Lowered(NamedTuple):
    """A graph as Inductor took it, and where its buffers come from."""

    aten: torch.fx.GraphModule
    buffers: dict[str, str]
    origins: dict[str, tuple[str, ...]]


def _recording(captured: CapturedGraph, call: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """The compiled code, which notes the arguments of its last call. Inductor empties the list that it is given."""

    def recorded(arguments: list[Any]) -> Any:
        captured.arguments = list(arguments)
        captured.returns = list(call(arguments))
        return captured.returns

    return recorded


@contextmanager
def _fresh() -> Iterator[None]:
    """Inside, nothing comes from Inductor's caches of graphs: a graph from there never was lowered here."""
    import torch._functorch.config
    import torch._inductor.config

    torch._dynamo.utils.counters.clear()
    with (
        torch._inductor.config.patch(fx_graph_cache=False, fx_graph_remote_cache=False),
        torch._functorch.config.patch(enable_autograd_cache=False),
    ):
        yield


@contextmanager
def _watched_lowering() -> Iterator[list[_Lowered]]:
    """Inside, every lowering of a graph leaves its ATen graph and the origins of its buffers in the list."""
    from torch._inductor.graph import GraphLowering

    found: list[_Lowered] = []
    codegen = GraphLowering.codegen

    def watched(lowering: Any) -> Any:
        code = codegen(lowering)
        if not getattr(lowering, "is_const_graph", False):
            found.append(_Lowered(lowering.module, *_origins(lowering)))
        return code

    with patch.object(GraphLowering, "codegen", watched):
        yield found


def _origins(lowering: Any) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """The node whose value a buffer holds, or else all that it comes from, by the buffer's name."""
    nodes = {buffer.get_name(): buffer.get_origin_node() for buffer in lowering.buffers}
    held = {name: node.name for name, node in nodes.items() if node is not None}
    others = [buffer for buffer in lowering.buffers if buffer.get_name() not in held]
    return held, {buffer.get_name(): tuple(node.name for node in buffer.origins) for buffer in others}


def same_tensor(one: Any, other: Any) -> bool:
    """Whether two tensors look at the same memory in the same way."""
    return (
        isinstance(one, Tensor)
        and isinstance(other, Tensor)
        and one.data_ptr() == other.data_ptr()
        and one.shape == other.shape
        and one.stride() == other.stride()
        and one.dtype == other.dtype
    )
