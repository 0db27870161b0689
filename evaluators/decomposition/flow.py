"""Which step makes which content, and which steps read it.

Variables of the output are names of memory; memory is used again for other contents. A *content* is what a memory holds
from one write to the next. It is named after the variable that it was written through, which is the name of Inductor's
buffer, and has that variable's shape.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from db.records import TensorSpec
from evaluators.decomposition.access import Access, access_of
from evaluators.decomposition.kernels import dtype_of, pointers
from evaluators.decomposition.steps import (
    Allocation,
    AnyStep,
    Extern,
    Fill,
    Item,
    Launch,
    Layout,
    Operand,
    Output,
    Release,
    View,
)

AT_ENTRY = -1  # the producer of what the graph is given


class Binding(NamedTuple):
    """What a variable names: a memory, and how it looks at it."""

    memory: str  # the variable that the memory was first bound to
    spec: TensorSpec
    offset: int = 0  # elements


class Content(NamedTuple):
    """What a memory holds. `is_part`: the last write filled a part of it, the rest is what was there before; such a
    content has the memory's own name and shape."""

    name: str
    memory: str
    spec: TensorSpec
    producer: int  # index of the step, or AT_ENTRY
    is_part: bool = False


class Use(NamedTuple):
    """A content that a step reads, through a parameter of its kernel where it is a launch."""

    content: Content
    parameter: str = ""


class StepFlow(NamedTuple):
    """What a step reads and makes, and the variables as they are before it."""

    reads: list[Use]
    writes: list[Use]
    before: dict[str, Binding]


class Flow:
    """The flow of a whole output. `steps[i]` belongs to `output.steps[i]`; the last one stands for `return`."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self.access: dict[str, Access] = {name: access_of(kernel) for name, kernel in output.kernels.items()}
        self.memories: dict[str, TensorSpec] = {}
        self.dtypes = _dtypes(output)
        self._variables: dict[str, Binding] = {}
        self._contents: dict[str, Content] = {}
        self.steps: list[StepFlow] = []
        for name in (*output.arguments, *output.constants):
            self._enter(name)
        for index, step in enumerate(output.steps):
            self._follow(index, step)
        returned = [value for value in output.returns if isinstance(value, Operand)]
        reads = [Use(self._contents[b.memory]) for v in returned if (b := self.binding(v)).memory in self._contents]
        self.steps.append(StepFlow(reads, [], dict(self._variables)))

    def binding(self, operand: Operand, variables: dict[str, Binding] | None = None) -> Binding:
        """What an operand names, by the variables as they are at the end or as given."""
        bound = (self._variables if variables is None else variables)[operand.name]
        if not operand.is_view:
            return bound
        spec = TensorSpec(shape=operand.shape, strides=operand.strides, dtype=bound.spec.dtype)
        return Binding(bound.memory, spec, bound.offset + operand.offset)

    # ------------------------------------------------------------------------------------------------------- details

    def _enter(self, name: str) -> None:
        known = self.output.argument_specs.get(name)
        spec = known or TensorSpec(shape=(), dtype=self.dtypes.get(name, ""), strides=())
        self._bind(name, spec)
        self._contents[name] = Content(name, name, spec, AT_ENTRY)

    def _bind(self, name: str, spec: TensorSpec) -> None:
        self._variables[name] = Binding(name, spec)
        self.memories[name] = spec

    def _follow(self, index: int, step: AnyStep) -> None:
        before = dict(self._variables)
        reads, writes = self._uses(index, step)
        self.steps.append(StepFlow(reads, writes, before))

    def _uses(self, index: int, step: AnyStep) -> tuple[list[Use], list[Use]]:
        if isinstance(step, Launch):
            return self._launch(index, step)
        if isinstance(step, Extern):
            return self._extern(index, step)
        if isinstance(step, Fill):
            return [], [Use(self._write(index, step.name, Operand(name=step.name)))]
        if isinstance(step, Allocation):
            self._bind(step.name, step.spec)
        elif isinstance(step, View):
            self._variables[step.name] = self.binding(step.operand)
        elif isinstance(step, Item):
            return self._item(index, step)
        elif isinstance(step, Layout):
            self._layout(step)
        elif isinstance(step, Release):
            for name in step.names:
                self._variables.pop(name, None)
        return [], []

    def _launch(self, index: int, step: Launch) -> tuple[list[Use], list[Use]]:
        access = self.access[step.kernel]
        bound = {n: v for n, v in self.output.bound(step).items() if isinstance(v, Operand)}
        reads = [
            Use(self._contents[memory], name)
            for name in access.reads
            if name in bound and (memory := self.binding(bound[name]).memory) in self._contents
        ]
        writes = []
        for name in (n for n in access.writes if n in bound):
            held = self._contents.get(self.binding(bound[name]).memory)
            writes.append(Use(self._write(index, bound[name].name, bound[name]), name))
            if held and writes[-1].content.is_part:
                reads.append(Use(held))
        return reads, writes

    def _extern(self, index: int, step: Extern) -> tuple[list[Use], list[Use]]:
        memories = [self._variables[name].memory for name in step.reads if name in self._variables]
        reads = [Use(self._contents[memory]) for memory in memories if memory in self._contents]
        writes = [Use(self._write(index, name, Operand(name=name))) for name in step.writes if name in self._variables]
        if step.result:
            self._bind(step.result, TensorSpec(shape=(), dtype=self.dtypes.get(step.result, ""), strides=()))
            writes.append(Use(self._write(index, step.result, Operand(name=step.result))))
        return reads, writes

    def _item(self, index: int, step: Item) -> tuple[list[Use], list[Use]]:
        of = self._contents[self._variables[step.of].memory]
        self._bind(step.name, TensorSpec(shape=(), dtype=self.dtypes.get(step.name, ""), strides=()))
        return [Use(of)], [Use(self._write(index, step.name, Operand(name=step.name)))]

    def _layout(self, step: Layout) -> None:
        """The shape of what a library made is said only after the call."""
        bound = self._variables.get(step.name)
        content = self._contents.get(bound.memory) if bound else None
        if bound and content and content.name == step.name and not bound.spec.shape:
            spec = TensorSpec(shape=step.shape, strides=step.strides, dtype=bound.spec.dtype)
            self._bind(step.name, spec)
            self._respecify(content, content._replace(spec=spec))

    def _respecify(self, old: Content, new: Content) -> None:
        self._contents[old.memory] = new
        for step in self.steps:
            for uses in (step.reads, step.writes):
                uses[:] = [use._replace(content=new) if use.content == old else use for use in uses]

    def _write(self, index: int, name: str, operand: Operand) -> Content:
        bound = self.binding(operand)
        whole = self.memories[bound.memory]
        is_part = bound.offset > 0 or n_elements(bound.spec) < n_elements(whole)
        content = Content(name, bound.memory, bound.spec, index)
        if is_part:
            content = Content(bound.memory, bound.memory, whole, index, is_part=True)
        self._contents[bound.memory] = content
        return content


def n_elements(spec: TensorSpec) -> int:
    """Elements of memory that a tensor spans, gaps included."""
    if 0 in spec.shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(spec.shape, spec.strides, strict=True))


def is_dense(spec: TensorSpec) -> bool:
    """Whether a tensor fills its memory without gaps and without overlap."""
    return n_elements(spec) == math.prod(spec.shape)


def _dtypes(output: Output) -> dict[str, str]:
    """What kernels take the variables for: libraries' results say no dtype."""
    found: dict[str, str] = {}
    for launch in output.launches:
        kernel, bound = output.kernels[launch.kernel], output.bound(launch)
        for name in pointers(kernel):
            operand = bound.get(name)
            if isinstance(operand, Operand):
                found.setdefault(operand.name, dtype_of(kernel, name))
    aliases = [(s.name, s.operand.name) for s in output.steps if isinstance(s, View)]
    for name, of in reversed(aliases):
        if name in found:
            found.setdefault(of, found[name])
    return found
