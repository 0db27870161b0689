"""mask_elision: no mask where the tiles divide the extent. The host decides, so every shape stays right."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from islands.operators.structural.accesses import Access, accesses_of
from islands.operators.structural.analysis import Launch, Program, Scope, argument, integer, names_in
from islands.operators.structural.extents import extent_value
from islands.operators.structural.grids import fresh_name, operand
from islands.operators.structural.kernels import loops_of
from islands.operators.structural.program_loop import add_arguments, add_parameters
from islands.operators.structural.recurrences import assignment_of
from islands.operators.structural.row_loops import is_parameter, nearest
from islands.operators.structural.setting import tiles_of
from islands.operators.structural.technique import Context, Rewrite, Technique
from islands.operators.structural.text import Edit

_MAX_DEPTH = 12

Condition = tuple[str, str]  # extent and tile, names of parameters: the extent must be a multiple of the tile


class MaskSite(NamedTuple):
    """The accesses of a kernel, and what keeps a running value, whose masks are all true under the conditions."""

    kernel: str
    accesses: tuple[Access, ...]
    selects: tuple[cst.Call, ...]  # `total = tl.where(mask, new, total)`
    conditions: tuple[Condition, ...]


class MaskElision(Technique[MaskSite]):
    """A compile-time flag, true where every extent is a multiple of its tile, chooses accesses without masks, and new
    running values in every lane."""

    name = "mask_elision"
    prior = 0.02
    citation = (
        "EVEN_K of Tillet's matmul; masks cost predicates and narrow vectors, https://github.com/triton-lang/kernels"
    )
    cost = 2.0

    def sites(self, program: Program) -> list[MaskSite]:
        kernels = [k for k in program.kernels.values() if program.launches_of(k)]
        return [site for kernel in kernels if (site := _site(program, kernel)) is not None]

    def rewrite(self, context: Context, site: MaskSite) -> Rewrite | None:
        program = context.program
        kernel, device = program.kernels[site.kernel], program.alias("triton.language")
        if any(_is_known_false(context, kernel, condition) for condition in site.conditions):
            return None
        flag = fresh_name(program, "EVEN")
        edits = [add_parameters(program, kernel, [f"{flag}: {device}.constexpr = False"])]
        edits += [edit for access in site.accesses for edit in _conditional(program, access, flag)]
        edits += [_taken(program, call, flag) for call in site.selects]
        for launch in program.launches_of(kernel):
            edits.append(add_arguments(program, launch, {flag: _condition(program, launch, site.conditions)}))
        n_masks = len(site.accesses) + len(site.selects)
        return Rewrite(tuple(edits), f"{n_masks} masks of {site.kernel} where tiles divide the extent")


def _is_known_false(context: Context, kernel: Scope, condition: Condition) -> bool:
    """Whether a tile is known not to divide its extent: the flag would never be set."""
    program, observed, _ = context
    extent = extent_value(program, observed, kernel, condition[0])
    tile = tiles_of(program, observed, kernel.name, {}).get(condition[1])
    return extent is not None and tile is not None and extent % tile != 0


def _site(program: Program, kernel: Scope) -> MaskSite | None:
    accesses: list[Access] = []
    conditions: dict[Condition, None] = {}
    for access in accesses_of(program, kernel):
        mask = argument(access.call, 1 if access.is_load else 2, "mask")
        found = None if mask is None else mask_conditions(program, kernel, mask)
        if found:
            accesses.append(access)
            conditions.update(dict.fromkeys(found))
    selects = {id(c): (c, found) for c in _keeping(program, kernel) if (found := _of_select(program, kernel, c))}
    for _, found in selects.values():
        conditions.update(dict.fromkeys(found))
    launches = program.launches_of(kernel)
    known = all(name in launch.arguments for launch in launches for pair in conditions for name in pair)
    kept = tuple(call for call, _ in selects.values())
    return MaskSite(kernel.name, tuple(accesses), kept, tuple(conditions)) if accesses and known else None


def _keeping(program: Program, kernel: Scope) -> list[cst.Call]:
    """The calls in `total = tl.where(mask, new, total)`."""
    found: list[cst.Call] = []
    for statement in kernel.all(cst.Assign):
        assigned = assignment_of(statement)
        if assigned is None or not isinstance(assigned[1], cst.Call) or program.device_call(assigned[1]) != "where":
            continue
        plain = [a for a in assigned[1].args if a.keyword is None and not a.star]
        if len(plain) == len(assigned[1].args) == 3 and program.text(plain[2].value) == assigned[0]:
            found.append(assigned[1])
    return found


def _of_select(program: Program, kernel: Scope, call: cst.Call) -> list[Condition] | None:
    return mask_conditions(program, kernel, call.args[0].value)


def mask_conditions(program: Program, kernel: Scope, mask: cst.CSTNode) -> list[Condition] | None:
    """What makes a mask true everywhere, or None where that cannot be told."""
    return _conditions(program, kernel, mask, 0)


def _conditions(program: Program, kernel: Scope, node: cst.CSTNode, depth: int) -> list[Condition] | None:
    if depth > _MAX_DEPTH:
        return None
    if isinstance(node, cst.Subscript):
        return _conditions(program, kernel, node.value, depth + 1)
    if isinstance(node, cst.Name):
        binding = nearest(program, kernel, node.value, program.span(node).start)
        known = binding is not None and binding.value is not None
        return _conditions(program, kernel, binding.value, depth + 1) if known and binding and binding.value else None
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.BitAnd):
        left, right = (_conditions(program, kernel, side, depth + 1) for side in (node.left, node.right))
        return None if left is None or right is None else left + right
    if not isinstance(node, cst.Comparison) or len(node.comparisons) != 1:
        return None
    target = node.comparisons[0]
    if not isinstance(target.operator, cst.LessThan) or not is_parameter(program, kernel, target.comparator):
        return None
    extent = program.text(target.comparator)
    tile = _tile_of_index(program, kernel, node.left, extent)
    return None if tile is None else [(extent, tile)]


def _tile_of_index(program: Program, kernel: Scope, node: cst.CSTNode, extent: str) -> str | None:
    """The tile of an index that is `tl.arange(0, tile)` plus multiples of the tile below the extent."""
    terms = _terms(program, kernel, node, 0)
    tiles = [_extent_of_arange(program, kernel, t) for t in terms]
    named = [t for t in tiles if t is not None]
    if len(named) != 1:
        return None
    rest = [t for t, tile in zip(terms, tiles, strict=True) if tile is None]
    loops = [loop for loop in loops_of(program, kernel) if loop.target in {n for t in rest for n in names_in(t)}]
    if any(loop.step is not None and program.text(loop.stop) != extent for loop in loops):
        return None
    return named[0] if all(_is_multiple(program, kernel, t, named[0], 0) for t in rest) else None


def _terms(program: Program, kernel: Scope, node: cst.CSTNode, depth: int) -> list[cst.CSTNode]:
    """The summands of an index, followed through names, `[:, None]` and casts."""
    if depth > _MAX_DEPTH:
        return [node]
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add):
        return [t for side in (node.left, node.right) for t in _terms(program, kernel, side, depth + 1)]
    if isinstance(node, cst.Subscript):
        return _terms(program, kernel, node.value, depth + 1)
    if isinstance(node, cst.Name):
        binding = nearest(program, kernel, node.value, program.span(node).start)
        if binding is not None and binding.value is not None:
            return _terms(program, kernel, binding.value, depth + 1)
    return [node]


def _extent_of_arange(program: Program, kernel: Scope, node: cst.CSTNode) -> str | None:
    is_arange = isinstance(node, cst.Call) and program.device_call(node) == "arange" and len(node.args) == 2
    if not is_arange or not isinstance(node, cst.Call) or integer(node.args[0].value) != 0:
        return None
    extent = node.args[1].value
    return program.text(extent) if is_parameter(program, kernel, extent, constexpr=True) else None


def _is_multiple(program: Program, kernel: Scope, node: cst.CSTNode | None, tile: str, depth: int) -> bool:
    """Whether an integer is a multiple of the tile whatever the inputs are."""
    if node is None or depth > _MAX_DEPTH:
        return False
    if isinstance(node, cst.BinaryOperation):
        sides = [_is_multiple(program, kernel, side, tile, depth + 1) for side in (node.left, node.right)]
        if isinstance(node.operator, cst.Multiply):
            return any(sides) or tile in (program.text(node.left), program.text(node.right))
        return isinstance(node.operator, cst.Add | cst.Subtract) and all(sides)
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value == "to":
        return _is_multiple(program, kernel, node.func.value, tile, depth + 1)
    if not isinstance(node, cst.Name):
        return integer(node) == 0
    for loop in loops_of(program, kernel):
        if loop.target == node.value and loop.node in program.ancestors(node):
            starts = loop.start is None or _is_multiple(program, kernel, loop.start, tile, depth + 1)
            once = integer(loop.stop) == 1 and loop.step is None
            return starts and (once or (loop.step is not None and program.text(loop.step) == tile))
    binding = nearest(program, kernel, node.value, program.span(node).start)
    return binding is not None and _is_multiple(program, kernel, binding.value, tile, depth + 1)


def _conditional(program: Program, access: Access, flag: str) -> list[Edit]:
    """No mask, and nothing instead of what is masked, where the flag is set."""
    position = 1 if access.is_load else 2
    other = argument(access.call, 2, "other") if access.is_load else None
    nodes = [n for n in (argument(access.call, position, "mask"), other) if n is not None]
    return [Edit(*program.span(n), f"None if {flag} else {operand(program, n)}") for n in nodes]


def _taken(program: Program, call: cst.Call, flag: str) -> Edit:
    """The new value without a choice, where the flag is set."""
    start, end = program.span(call)
    new = operand(program, call.args[1].value)
    return Edit(start, end, f"({new} if {flag} else {program.source[start:end]})")


def _condition(program: Program, launch: Launch, conditions: tuple[Condition, ...]) -> str:
    pairs = [[operand(program, launch.arguments[name].value) for name in pair] for pair in conditions]
    return " and ".join(f"{extent} % {tile} == 0" for extent, tile in pairs)
