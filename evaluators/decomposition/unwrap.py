"""A part as a program: plain Triton kernels, and host code that allocates, launches with an explicit grid, and returns.

Inductor changes tensors in place and uses memory again; a program must leave its inputs as they are. So whatever is
written for the first time gets memory of its own, with the strides that Inductor gave it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from db.records import EntryPoint, TensorSpec
from evaluators.decomposition.access import is_two
from evaluators.decomposition.flow import Content, Flow, StepFlow
from evaluators.decomposition.grids import grid_text
from evaluators.decomposition.parts import Part, inputs_of, outputs_of
from evaluators.decomposition.plain import definitions_text, import_text, plain
from evaluators.decomposition.steps import Configuration, Fill, Kernel, Launch, Operand, Scalar


def unwrapped(flow: Flow, part: Part, chosen: Mapping[str, Configuration], entry_point: EntryPoint) -> str:
    """The source of a program that does what a part does.

    Args:
        chosen: the configuration of each kernel of the part.
        entry_point: `ModelNew`, whose forward takes the part's inputs, or `kernel_function`.

    Raises:
        DecompositionError: a kernel or its grid cannot be written in plain Triton.
    """
    names = dict.fromkeys(part.kernels)
    kernels = [plain(flow.output.kernels[name], in_place=False) for name in names]
    host = _Host(flow, part, chosen)
    lines = host.lines()
    arguments = ", ".join(tensor.name for tensor in part.inputs)
    if entry_point is EntryPoint.FUNCTION:
        head, indent, imports = f"def kernel_function({arguments}):\n", "    ", ""
    else:
        head = f"class ModelNew(nn.Module):\n    def forward(self, {arguments}):\n"
        indent, imports = "        ", "import torch.nn as nn\n"
    body = "".join(f"{indent}{line}\n" for line in lines)
    return f"{import_text(kernels)}{imports}\n\n{definitions_text(kernels)}\n\n{head}{body}"


class _Held(NamedTuple):
    """The variable that holds a memory's content in the program, and whether the program made it."""

    variable: str
    spec: TensorSpec
    is_own: bool


class _Host:
    """Writes the host code of one part."""

    def __init__(self, flow: Flow, part: Part, chosen: Mapping[str, Configuration]) -> None:
        self._flow = flow
        self._part = part
        self._chosen = chosen
        self._outputs = {content.name for content in outputs_of(flow, part)}
        self._memories = {c.memory: _Held(c.name, c.spec, is_own=False) for c in inputs_of(flow, part)}
        self._device = f"{part.inputs[0].name}.device"
        self._lines: list[str] = []
        self._n_launches = 0

    def lines(self) -> list[str]:
        for index in range(self._part.first, self._part.last + 1):
            step, its = self._flow.output.steps[index], self._flow.steps[index]
            if isinstance(step, Launch):
                self._launch(step, its)
            elif isinstance(step, Fill) and self._is_read(its.writes[0].content):
                self._fill(its)
        outputs = [self._memories[content.memory].variable for content in outputs_of(self._flow, self._part)]
        return [*self._lines, f"return {', '.join(outputs)}"]

    def _launch(self, step: Launch, its: StepFlow) -> None:
        kernel = self._flow.output.kernels[step.kernel]
        read = {use.parameter for use in its.reads}
        written = {use.parameter: use.content for use in its.writes}
        arguments: list[str] = []
        made: dict[str, _Held] = {}
        for name, value in self._flow.output.bound(step).items():
            if not isinstance(value, Operand):
                arguments.append(repr(value))
                continue
            bound = self._flow.binding(value, its.before)
            if name in read:
                arguments.append(self._pointer(self._memories[bound.memory].variable, bound.offset))
            if name in written and (name not in read or is_two(kernel, name)):
                made[bound.memory] = self._target(bound.memory, written[name].name, written[name].spec)
                arguments.append(self._pointer(made[bound.memory].variable, bound.offset))
        self._memories |= made
        self._write_launch(kernel, arguments, self._flow.output.bound(step))

    def _target(self, memory: str, name: str, spec: TensorSpec) -> _Held:
        """Where to write: memory that the program has made already, or a new one."""
        held = self._memories.get(memory)
        if held and held.is_own:
            return held if held.spec == spec else self._seen_as(held, name, spec)
        self._lines.append(f"{name} = torch.empty_strided({_layout(spec)}, device={self._device})")
        return _Held(name, spec, is_own=True)

    def _seen_as(self, held: _Held, name: str, spec: TensorSpec) -> _Held:
        """Memory that is used again for a tensor of another shape: where that tensor comes out, it has to look so."""
        if name == held.variable or name not in self._outputs:
            return held
        self._lines.append(f"{name} = {held.variable}.as_strided({spec.shape}, {spec.strides})")
        return _Held(name, spec, is_own=True)

    def _is_read(self, content: Content) -> bool:
        return any(use.content == content for its in self._flow.steps for use in its.reads)

    def _fill(self, its: StepFlow) -> None:
        content = its.writes[0].content
        shape, dtype = content.spec.shape, content.spec.dtype
        self._lines.append(f"{content.name} = torch.zeros({shape}, dtype=torch.{dtype}, device={self._device})")
        self._memories[content.memory] = _Held(content.name, content.spec, is_own=True)

    def _pointer(self, variable: str, offset: int) -> str:
        """Kernels know the shape; only where a tensor begins matters."""
        return f"{variable}.as_strided((1,), (1,), {variable}.storage_offset() + {offset})" if offset else variable

    def _write_launch(self, kernel: Kernel, arguments: list[str], bound: Mapping[str, Operand | Scalar]) -> None:
        configuration = self._chosen[kernel.name]
        suffix = f"_{self._n_launches}" if len(self._part.kernels) > 1 else ""
        self._n_launches += 1
        blocks = {name: f"{name}{suffix}" for name in configuration.constants}
        self._lines += [f"{blocks[name]} = {value}" for name, value in configuration.constants.items()]
        n_launched = len(kernel.parameters) - len(kernel.fixed_grid)
        sizes = {name: value for name, value in bound.items() if not isinstance(value, Operand)}
        grid = grid_text(kernel, sizes, blocks)
        if kernel.fixed_grid and list(bound)[n_launched:] == list(kernel.fixed_grid):
            arguments = arguments[: -len(kernel.fixed_grid)]
        keywords = [f"{name}={block}" for name, block in blocks.items()]
        keywords += [f"num_warps={configuration.num_warps}", f"num_stages={configuration.num_stages}"]
        self._lines.append(f"{kernel.name}[{grid}](")
        self._lines.append(f"    {', '.join([*arguments, *keywords])}")
        self._lines.append(")")


def _layout(spec: TensorSpec) -> str:
    return f"{spec.shape}, {spec.strides}, dtype=torch.{spec.dtype}"
