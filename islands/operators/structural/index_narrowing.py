"""index_narrowing: offsets in 32 bits wherever every tensor is small enough; the host decides, launch by launch.

64-bit offsets cost two registers each, and an addition or a product of them two instructions and more. Whoever writes
them means tensors of 2^31 elements; most launches have none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import libcst as cst

from islands.operators.structural.accesses import Access, accesses_of
from islands.operators.structural.analysis import Launch, Program, Scope
from islands.operators.structural.carried import reads_of
from islands.operators.structural.grids import fresh_name
from islands.operators.structural.names import Binding, bindings
from islands.operators.structural.parts import children
from islands.operators.structural.program_loop import add_arguments, add_parameters
from islands.operators.structural.technique import Context, Rewrite, Technique
from islands.operators.structural.text import Edit

# what is compared with an extent may lie a tile or a few beyond it; 2^24 is more than a program holds
_LIMIT = "2**31 - 2**24"
_TRANSPARENT = frozenset(
    ["arange", "broadcast_to", "cast", "cdiv", "expand_dims", "max_contiguous", "maximum", "minimum", "multiple_of"]
)
_METHODS = frozenset(["to", "cast"])


class WideSite(NamedTuple):
    """The types that a kernel casts its indices to, and the tensors that it reaches by them."""

    kernel: str
    types: tuple[cst.BaseExpression, ...]
    tensors: tuple[str, ...]


class IndexNarrowing(Technique[WideSite]):
    """`.to(tl.int64)` becomes `.to(tl.int64 if WIDE else tl.int32)`. WIDE is a compile-time flag: whether the last
    element of a tensor lies close to 2^31 elements from its first, or beyond."""

    name = "index_narrowing"
    prior = 0.01
    citation = (
        "64-bit integer arithmetic, https://docs.nvidia.com/cuda/cuda-c-programming-guide/#arithmetic-instructions"
    )
    cost = 2.0

    def sites(self, program: Program) -> list[WideSite]:
        kernels = [k for k in program.kernels.values() if program.launches_of(k)]
        return [site for kernel in kernels if (site := _site(program, kernel)) is not None]

    def rewrite(self, context: Context, site: WideSite) -> Rewrite | None:
        program = context.program
        kernel, device = program.kernels[site.kernel], program.alias("triton.language")
        wide = fresh_name(program, "WIDE")
        chosen = f"{device}.int64 if {wide} else {device}.int32"
        edits = [add_parameters(program, kernel, [f"{wide}: {device}.constexpr = True"])]
        edits += [Edit(*program.span(node), chosen) for node in site.types]
        for launch in program.launches_of(kernel):
            edits.append(add_arguments(program, launch, {wide: _is_wide(program, launch, site.tensors)}))
        return Rewrite(tuple(edits), f"{len(site.types)} casts to int64 in {site.kernel} where tensors are large")


def _is_wide(program: Program, launch: Launch, tensors: tuple[str, ...]) -> str:
    """Whether an offset of one of the tensors needs 64 bits, as an expression for where the launch stands."""
    given = "".join(f"{program.text(launch.arguments[name].value)}, " for name in tensors)
    last = "sum((n - 1) * s for n, s in zip(t.shape, t.stride()))"
    return f"max(({last} for t in ({given.strip()}) if t is not None), default=0) >= {_LIMIT}"


def _site(program: Program, kernel: Scope) -> WideSite | None:
    device = program.alias("triton.language")
    casts = _casts(program, kernel) if device else []
    if not casts:
        return None
    flow = _Flow(program, kernel, [call for call, _, _ in casts])
    if not flow.only_addresses():
        return None
    reached = [access for access in accesses_of(program, kernel) if flow.reaches(access)]
    tensors = tuple(dict.fromkeys(access.tensor for access in reached))
    launches = program.launches_of(kernel)
    if not tensors or not all(name in launch.arguments for launch in launches for name in tensors):
        return None
    return WideSite(kernel.name, tuple(dtype for _, _, dtype in casts), tensors)


def _casts(program: Program, kernel: Scope) -> list[tuple[cst.Call, cst.CSTNode, cst.BaseExpression]]:
    """The casts to int64 of what was not loaded: call, operand, and the type as it is written."""
    found: list[tuple[cst.Call, cst.CSTNode, cst.BaseExpression]] = []
    for call in kernel.all(cst.Call):
        plain = [a.value for a in call.args if a.keyword is None]
        if program.device_call(call) == "cast" and len(plain) == len(call.args) == 2:
            operand, dtype = plain
        elif isinstance(call.func, cst.Attribute) and call.func.attr.value in _METHODS and len(plain) == 1:
            operand, dtype = call.func.value, plain[0]
        else:
            continue
        if program.qualified(dtype) == "triton.language.int64":
            found.append((call, operand, dtype))
    loaded = _loaded_names(program, kernel)
    return [(c, o, t) for c, o, t in found if not _loads(program, o) and not _names_outside_loads(program, o) & loaded]


def _loaded_names(program: Program, kernel: Scope) -> set[str]:
    """The names whose value comes out of memory, or is computed from such a value."""
    everything = [b for group in bindings(program, kernel).values() for b in group]
    reached = {b.name for b in everything if _loads(program, b.statement)}
    while True:
        more = {b.name for b in everything if b.name not in reached and b.sources & reached}
        if not more:
            return reached
        reached |= more


def _loads(program: Program, node: cst.CSTNode) -> bool:
    return any(
        isinstance(n, cst.Call) and program.device_call(n) == "load" for n in _outside_loads(program, node, True)
    )


def _outside_loads(program: Program, node: cst.CSTNode, with_loads: bool = False) -> Iterator[cst.CSTNode]:
    """The nodes of a piece of code, without what is inside a load; the calls of loads themselves where asked for."""
    stack = [node]
    while stack:
        item = stack.pop()
        if isinstance(item, cst.Call) and program.device_call(item) == "load":
            if with_loads:
                yield item
            continue
        yield item
        if isinstance(item, cst.For):
            stack.append(item.iter)
        elif isinstance(item, cst.Attribute | cst.Arg):
            stack.append(item.value)
        else:
            stack.extend(children(item))


def _names_outside_loads(program: Program, node: cst.CSTNode) -> set[str]:
    return {n.value for n in _outside_loads(program, node) if isinstance(n, cst.Name)}


class _Flow:
    """Where the values of some casts go, up to the memory that they address."""

    def __init__(self, program: Program, kernel: Scope, casts: list[cst.Call]) -> None:
        self.program = program
        self.kernel = kernel
        self.casts = casts
        marked = {id(c) for c in casts}
        everything = [b for group in bindings(program, kernel).values() for b in group]
        self.names: set[str] = set()
        while True:
            more = {b.name for b in everything if b.name not in self.names and self._is_index(b, marked)}
            if not more:
                break
            self.names |= more

    def _is_index(self, binding: Binding, marked: set[int]) -> bool:
        nodes = list(_outside_loads(self.program, _right_side(binding.statement)))
        return any(id(n) in marked or (isinstance(n, cst.Name) and n.value in self.names) for n in nodes)

    def only_addresses(self) -> bool:
        """Whether the values end in addresses, masks and comparisons alone."""
        reads = [n for name in self.names for n in reads_of(self.program, self.kernel, name)]
        return all(self._ends_well(node) for node in (*reads, *self.casts))

    def reaches(self, access: Access) -> bool:
        pointer = access.call.args[0].value if access.call.args else access.call
        marked = {id(c) for c in self.casts}
        nodes = list(_outside_loads(self.program, pointer))
        return any(id(n) in marked or (isinstance(n, cst.Name) and n.value in self.names) for n in nodes)

    def _ends_well(self, node: cst.CSTNode) -> bool:
        child = node
        for parent in self.program.ancestors(node):
            if isinstance(parent, cst.Comparison | cst.Assign | cst.AugAssign | cst.AnnAssign | cst.For):
                return True
            if isinstance(parent, cst.Call) and child is not parent.func:
                function = self.program.device_call(parent)
                if function in ("load", "store"):
                    return self._is_address_or_mask(parent, child, function)
                if function not in _TRANSPARENT and self.program.text(parent.func) not in ("range", "min", "max"):
                    return function in ("range", "static_range")
            if isinstance(parent, cst.BaseStatement | cst.BaseSmallStatement):
                return False
            child = parent
        return False

    def _is_address_or_mask(self, call: cst.Call, child: cst.CSTNode, function: str) -> bool:
        position = next((i for i, a in enumerate(call.args) if a is child), -1)
        label = call.args[position].keyword
        if label is not None:
            return label.value in ("pointer", "mask")
        return position in ((0, 1) if function == "load" else (0, 2))


def _right_side(statement: cst.CSTNode) -> cst.CSTNode:
    return statement.iter if isinstance(statement, cst.For) else getattr(statement, "value", statement)
