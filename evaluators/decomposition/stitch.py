"""Winners back into the model: one Python file that needs torch and triton alone.

The file follows Inductor's output step by step: its kernels in plain Triton where nothing better was found, the same
calls of libraries, and for each part that was won the winner's program.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from db.records import EntryPoint, TensorSpec
from evaluators.decomposition.embedding import embedded
from evaluators.decomposition.errors import DecompositionError
from evaluators.decomposition.flow import Binding, Content, Flow
from evaluators.decomposition.grids import grid_text
from evaluators.decomposition.libraries import as_torch, strided
from evaluators.decomposition.modules import attribute, constructor_lines
from evaluators.decomposition.parts import Part, inputs_of, outputs_of
from evaluators.decomposition.plain import Plain, definitions_text, import_text, plain
from evaluators.decomposition.records import Argument, Graph
from evaluators.decomposition.steps import (
    Allocation,
    AnyStep,
    Extern,
    Fill,
    Item,
    Launch,
    Layout,
    Operand,
    Release,
    Scalar,
    View,
)

_CHECKS = '''def laid_out(tensor, shape, strides):
    """The tensor, which must have these strides wherever a dimension has more than one element."""
    found = tensor.stride()
    if found == strides and tensor.shape == shape:
        return tensor
    if tensor.shape != shape or any(n > 1 and a != b for n, a, b in zip(shape, found, strides)):
        raise RuntimeError(f"expected shape {shape} and strides {strides}, got {tuple(tensor.shape)} and {found}")
    return tensor


def leaves(answer):
    return answer if isinstance(answer, (tuple, list)) else (answer,)
'''


def stitched(graph: Graph, parts: Sequence[Part], winners: Mapping[str, str], title: str = "") -> str:
    """The source of `ModelNew` with the winners in the place of their parts.

    Args:
        graph: the compiled graph.
        parts: all that `winners` may name.
        winners: sources of programs by the name of their part; each defines `ModelNew` or `kernel_function`.
        title: the first line of the file's docstring.

    Raises:
        DecompositionError: two of the parts overlap, or something cannot be written without Inductor.
    """
    chosen = [part for part in parts if part.name in winners]
    _check_apart(chosen)
    entries = {part.name: _entry_of(winners[part.name]) for part in chosen}
    weaver = _Weaver(graph, chosen, entries)
    forward = weaver.lines()
    pieces = [embedded(winners[part.name], f"{part.name}_") for part in chosen]
    imports = {line: None for piece in pieces for line in piece.imports}
    head = import_text(weaver.plains) + "import torch.nn as nn\n"
    head += "".join(f"{line}\n" for line in imports if f"\n{line}\n" not in f"\n{head}")
    modules = [name for name, entry in entries.items() if entry is EntryPoint.MODEL]
    body = [f'"""{title or "A model put together again"}"""', head, *(piece.body for piece in pieces)]
    body += [definitions_text(weaver.plains), _CHECKS, _class(graph, modules, forward)]
    return "\n\n".join(block.strip("\n") + "\n" for block in body if block.strip("\n"))


def _check_apart(parts: Sequence[Part]) -> None:
    ordered = sorted(parts, key=lambda part: part.first)
    for one, other in pairwise(ordered):
        if other.first <= one.last:
            raise DecompositionError(f"{one.name} and {other.name} share a launch; give the winner of one of them")


def _entry_of(source: str) -> EntryPoint:
    names = {getattr(statement, "name", "") for statement in ast.parse(source).body}
    return EntryPoint.MODEL if EntryPoint.MODEL in names else EntryPoint.FUNCTION


def _class(graph: Graph, modules: list[str], forward: list[str]) -> str:
    """`ModelNew`: weights under their names, values that the model holds beside them, winners, and forward."""
    init = ["super().__init__()", *constructor_lines(graph.weights)]
    values = [(f"value_{i}", a) for i, a in enumerate((*graph.arguments, *graph.constants)) if a.kind == "value"]
    init += [f"self.register_buffer({name!r}, {_value(a)}, persistent=False)" for name, a in values]
    init += [f"self.{name} = {name}_{EntryPoint.MODEL}()" for name in modules]
    inputs = "".join(f", input_{i}" for i in range(graph.n_inputs))
    lines = [f"class {EntryPoint.MODEL}(nn.Module):", "    def __init__(self, *arguments):"]
    lines += [f"        {line}" for line in init]
    lines += ["", f"    def forward(self{inputs}):", *(f"        {line}" for line in forward)]
    return "\n".join(lines) + "\n"


def _value(argument: Argument) -> str:
    assert argument.spec is not None
    values = ", ".join(repr(v) if math.isfinite(v) else f"float('{v}')" for v in argument.values)
    flat = f"torch.tensor([{values}], dtype=torch.{argument.spec.dtype})"
    return f"{flat}.as_strided({argument.spec.shape}, {argument.spec.strides})"


class _Weaver:
    """Writes `forward`, statement by statement."""

    def __init__(self, graph: Graph, parts: Sequence[Part], entries: Mapping[str, EntryPoint]) -> None:
        self._graph = graph
        self._flow = Flow(graph.output)
        self._entries = entries
        self._starts = {part.first: part for part in parts}
        self._replaced = {i: part for part in parts for i in range(part.first, part.last + 1)}
        kept = [s for i, s in enumerate(graph.output.steps) if isinstance(s, Launch) and i not in self._replaced]
        names = dict.fromkeys(launch.kernel for launch in kept)
        self.plains: list[Plain] = [plain(graph.output.kernels[name], in_place=True) for name in names]
        self._defined: set[str] = set()
        self._lines: list[str] = []

    def lines(self) -> list[str]:
        self._enter()
        for index, step in enumerate(self._graph.output.steps):
            if index in self._starts:
                self._winner(self._starts[index])
            self._step(index, step)
        answers = [self._operand(value) for value in self._graph.output.returns]
        return [*self._lines, f"return {self._graph.answer.format(*answers)}"]

    # ------------------------------------------------------------------------------------------------------- details

    def _write(self, line: str, *names: str) -> None:
        self._lines.append(line)
        self._defined.update(names)

    def _enter(self) -> None:
        """The arguments of the graph, from weights and inputs."""
        names = (*self._graph.output.arguments, *self._graph.output.constants)
        given = (*self._graph.arguments, *self._graph.constants)
        for index, (name, argument) in enumerate(zip(names, given, strict=True)):
            if argument.kind == "weight":
                self._write(f"{name} = {attribute(argument.name)}", name)
            elif argument.kind == "input":
                self._write(f"{name} = input_{argument.index}", name)
            else:
                self._write(f"{name} = self.value_{index}", name)
        self._write(f"device = {names[0]}.device")

    def _step(self, index: int, step: AnyStep) -> None:
        if isinstance(step, Launch | Fill) and index in self._replaced:
            return
        if isinstance(step, Launch):
            self._launch(step)
        elif isinstance(step, Allocation):
            self._allocation(index, step)
        elif isinstance(step, View):
            self._view(index, step)
        elif isinstance(step, Release):
            self._release(step)
        elif isinstance(step, Extern):
            self._write(as_torch(step.text), *filter(None, [step.result]))
        elif isinstance(step, Item):
            self._write(step.text, step.name)
        elif isinstance(step, Fill):
            self._write(f"{step.name}.zero_()")
        elif isinstance(step, Layout) and self._is_of_library(index, step):
            self._write(f"{step.name} = laid_out({step.name}, {step.shape}, {step.strides})", step.name)

    def _is_of_library(self, index: int, step: Layout) -> bool:
        """Inputs are as the caller gives them; what a library answers has to be looked at."""
        bound = self._flow.steps[index].before.get(step.name)
        return bound is not None and bound.memory not in self._graph.output.arguments

    def _allocation(self, index: int, step: Allocation) -> None:
        if not self._is_made_by_winner(index, step.name):
            self._write(f"{step.name} = torch.empty_strided({_layout(step.spec)}, device=device)", step.name)

    def _view(self, index: int, step: View) -> None:
        """Another name. Inside a part, names of what the winner answers are bound already.

        Memory that the output uses again may be one that a winner has made superfluous: then it is allocated here.
        """
        bound = self._flow.steps[index + 1].before[step.name]
        part = self._replaced.get(index)
        if part and bound.memory in {content.memory for content in outputs_of(self._flow, part)}:
            return
        if step.operand.name in self._defined:
            self._write(f"{step.name} = {self._operand(step.operand)}", step.name)
        elif not part and not self._is_made_by_winner(index, bound.memory):
            self._write(f"{step.name} = torch.empty_strided({_layout(bound.spec)}, device=device)", step.name)

    def _is_made_by_winner(self, index: int, memory: str) -> bool:
        """Whether the next to write to a memory is a winner, which brings memory of its own."""
        later = list(enumerate(self._flow.steps))[index:]
        writers = (i for i, its in later if any(use.content.memory == memory for use in its.writes))
        return next(writers, None) in self._replaced

    def _release(self, step: Release) -> None:
        names = [name for name in step.names if name in self._defined]
        if names:
            self._write(f"del {', '.join(names)}")
            self._defined.difference_update(names)

    def _operand(self, value: Operand | Scalar) -> str:
        if not isinstance(value, Operand):
            return repr(value)
        return strided(value.name, value.shape, value.strides, value.offset) if value.is_view else value.name

    def _launch(self, step: Launch) -> None:
        kernel, bound = self._graph.output.kernels[step.kernel], self._graph.output.bound(step)
        configuration = self._graph.chosen[step.kernel]
        blocks = {name: str(value) for name, value in configuration.constants.items()}
        sizes = {name: value for name, value in bound.items() if not isinstance(value, Operand)}
        arguments = [self._operand(value) for name, value in bound.items() if name not in kernel.fixed_grid]
        arguments += [f"{name}={value}" for name, value in blocks.items()]
        arguments += [f"num_warps={configuration.num_warps}", f"num_stages={configuration.num_stages}"]
        self._write(f"{kernel.name}[{grid_text(kernel, sizes, blocks)}]({', '.join(arguments)})")

    # -------------------------------------------------------------------------------------------------------- winners

    def _winner(self, part: Part) -> None:
        """The call of a winner. What the steps of the part bound to its outputs' memory is bound to its answers."""
        before = self._flow.steps[part.first].before
        arguments = [self._given(content, before) for content in inputs_of(self._flow, part)]
        outputs = outputs_of(self._flow, part)
        names = [content.name for content in outputs]
        is_module = self._entries[part.name] is EntryPoint.MODEL
        entry = f"self.{part.name}" if is_module else f"{part.name}_{EntryPoint.FUNCTION}"
        self._write(f"{', '.join(names)}, = leaves({entry}({', '.join(arguments)}))", *names)
        for content in outputs:
            shape, strides = content.spec.shape, content.spec.strides
            self._write(f"{content.name} = laid_out({content.name}, {shape}, {strides})")
        for content in outputs:
            self._rebind(part, content)

    def _given(self, content: Content, before: Mapping[str, Binding]) -> str:
        """The content by a variable that names its memory, in the content's own shape."""
        variables = [n for n, b in before.items() if b.memory == content.memory and n in self._defined]
        if content.name in variables and before[content.name].spec == content.spec:
            return content.name
        name = variables[-1]
        if before[name].spec == content.spec and before[name].offset == 0:
            return name
        return strided(name, content.spec.shape, content.spec.strides, -before[name].offset)

    def _rebind(self, part: Part, content: Content) -> None:
        """Other names of the same memory that later steps use."""
        after = self._flow.steps[part.last + 1].before
        for name, bound in after.items():
            if bound.memory == content.memory and name != content.name:
                view = strided(content.name, bound.spec.shape, bound.spec.strides, bound.offset)
                self._write(f"{name} = {view}", name)


def _layout(spec: TensorSpec) -> str:
    return f"{spec.shape}, {spec.strides}, dtype=torch.{spec.dtype}"
