"""What the `call` function of Inductor's output does, one record a statement."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from db.records import Record, TensorSpec

Scalar = int | float | bool | str | None


class Kernel(Record):
    """One Triton kernel as Inductor wrote it.

    `source` is the text of a module of its own: imports, functions that the kernel calls, the kernel under its
    heuristics. `types` gives parameters their Triton type ("*fp32", "i32").
    """

    name: str
    source: str
    parameters: tuple[str, ...]  # those that a launch passes, in order
    constexprs: tuple[str, ...]  # those that a configuration sets: block sizes
    types: dict[str, str] = Field(default_factory=dict)
    heuristics: str  # "pointwise", "reduction", "persistent_reduction", "split_scan", "template", ...
    size_hints: dict[str, int] = Field(default_factory=dict)
    mutated: tuple[str, ...] = ()  # parameters whose tensors hold something before the launch that it changes
    grid_type: str = ""
    fixed_grid: tuple[str, ...] = ()
    num_warps: int | None = None  # where the decorator fixes them: templates
    num_stages: int | None = None
    has_atomics: bool = False


class Configuration(Record):
    """Block sizes and launch options of one kernel."""

    constants: dict[str, int]
    num_warps: int
    num_stages: int


class Operand(Record):
    """A tensor in an argument list: a variable, or a view of it. `spec` is empty for a plain variable."""

    name: str
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    offset: int = 0  # elements
    is_view: bool = False


class Step(Record):
    """A statement of `call`; `text` is what it says."""

    text: str


class Allocation(Step):
    """`name = empty_strided_cuda(shape, strides, dtype)`"""

    kind: Literal["allocation"] = "allocation"
    name: str
    spec: TensorSpec


class View(Step):
    """`name = operand`: another name of the same memory, perhaps of another shape."""

    kind: Literal["view"] = "view"
    name: str
    operand: Operand


class Launch(Step):
    """`kernel.run(*arguments, stream=...)`"""

    kind: Literal["launch"] = "launch"
    kernel: str
    arguments: tuple[Operand | Scalar, ...]


class Extern(Step):
    """A call of a library: `extern_kernels.mm(a, b, out=c)`, `buf = torch.ops.aten.x.default(...)`.

    `target` is its dotted name; `writes` are the variables that it fills or changes, `result` the one it makes.
    """

    kind: Literal["extern"] = "extern"
    target: str
    reads: tuple[str, ...]
    writes: tuple[str, ...] = ()
    result: str = ""


class Item(Step):
    """`name = of[index]`: one of several results of a library's call."""

    kind: Literal["item"] = "item"
    name: str
    of: str
    index: int


class Layout(Step):
    """`assert_size_stride(name, shape, strides, ...)`: what a library must have answered."""

    kind: Literal["layout"] = "layout"
    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Release(Step):
    """`del name`"""

    kind: Literal["release"] = "release"
    names: tuple[str, ...]


class Fill(Step):
    """`name.zero_()`: what a workspace needs before its kernel."""

    kind: Literal["fill"] = "fill"
    name: str


AnyStep = Annotated[Allocation | View | Launch | Extern | Item | Layout | Release | Fill, Field(discriminator="kind")]


class Output(Record):
    """Inductor's output for one graph.

    `arguments` are the names of the flat argument list in Inductor's order, `argument_specs` their shapes and strides;
    `constants` are module-level tensors that the graph brought along. `returns` are the answers: tensors, or None.
    """

    source: str
    arguments: tuple[str, ...]
    argument_specs: dict[str, TensorSpec]
    kernels: dict[str, Kernel]
    steps: tuple[AnyStep, ...]
    returns: tuple[Operand | Scalar, ...]
    constants: tuple[str, ...] = ()

    @property
    def launches(self) -> list[Launch]:
        return [step for step in self.steps if isinstance(step, Launch)]

    @property
    def externs(self) -> list[Extern]:
        return [step for step in self.steps if isinstance(step, Extern)]

    def bound(self, launch: Launch) -> dict[str, Operand | Scalar]:
        """What the run-time parameters of a launch's kernel are bound to, in order."""
        return dict(zip(self.kernels[launch.kernel].parameters, launch.arguments, strict=False))
