"""Running means as Inductor writes them: Welford's update lane by lane in a loop, and a combination of lanes after it.

What `torch._inductor.runtime.triton_helpers` calls `welford_reduce` and `welford` is copied into programs under other
names, so the functions are known by what they do.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import libcst as cst

from islands.operators.structural.analysis import Program, Scope, integer
from islands.operators.structural.initial import initial_value
from islands.operators.structural.kernels import Loop, helper_calls, loops_of
from islands.operators.structural.known_functions import body_of, called_function, calls_with_body, canonical_body
from islands.operators.structural.names import bindings
from islands.operators.structural.recurrences import assignment_of
from islands.operators.structural.row_loops import nearest

_N_STATE = 3  # mean, sum of squares of differences from it, weight
_UPDATE = canonical_body(
    """
if first_iteration:
    new_weight = tl.full(weight.shape, 1, weight.dtype)
    new_mean = value
    new_m2 = tl.zeros_like(m2)
else:
    delta = value - mean
    new_weight = weight + 1
    new_mean = mean + delta / new_weight
    new_m2 = m2 + delta * (value - new_mean)
return new_mean, new_m2, new_weight
"""
)
_JOIN = "return tl.reduce((mean, m2, weight), dim, {combine})"
_COMBINE = ("new_weight = weight_1 + weight_2", "m2_1 + m2_2 + delta * delta * weight_1 * w2_over_w")


class Update(NamedTuple):
    """One call of the update in a loop. Every lane that a step counts for has counted in all steps before it."""

    call: cst.Call
    loop: Loop
    state: tuple[str, str, str]  # names of mean, m2 and weight


class Welford(NamedTuple):
    """Running means of a kernel, and where lanes are combined: the calls of the function that does it."""

    kernel: str
    updates: tuple[Update, ...]
    joins: tuple[cst.Call, ...]


def welford_sites(program: Program) -> list[Welford]:
    """The kernels of a program that combine running means, each once."""

    def compute() -> list[Welford]:
        kernels = [k for k in program.kernels.values() if program.launches_of(k)]
        found = [_welford(program, kernel) for kernel in kernels]
        return [site for site in found if site is not None]

    return program.derived("welford", compute)


def _welford(program: Program, kernel: Scope) -> Welford | None:
    """What is understood of a kernel's running means; None where that is nothing."""
    if program.alias("triton.language") != "tl":
        return None
    calls = helper_calls(program, kernel)
    joins = [c for c in calls if _is_join(program, called_function(program, c)) and _is_plain(c, 4)]
    updates = [
        update
        for call in calls_with_body(program, kernel, _UPDATE)
        if (update := _update(program, kernel, call)) is not None
    ]
    return Welford(kernel.name, tuple(updates), tuple(joins)) if updates or joins else None


def _is_join(program: Program, function: Scope) -> bool:
    """Whether a function reduces mean, m2 and weight over a dimension with the formula of Chan et al."""
    combining = [n for n in program.kernels if body_of(program, function) == _JOIN.format(combine=n)]
    return any(all(part in body_of(program, program.kernels[name]) for part in _COMBINE) for name in combining)


def _is_plain(call: cst.Call, n_arguments: int) -> bool:
    return len(call.args) == n_arguments and not any(a.keyword is not None or a.star for a in call.args)


def _update(program: Program, kernel: Scope, call: cst.Call) -> Update | None:
    """A call `update(value, mean, m2, weight, offset == 0)` in a loop from zero whose state starts from zeros."""
    loop = next((x for x in loops_of(program, kernel) if x.node in program.ancestors(call)), None)
    if loop is None or not _is_plain(call, 5) or not (loop.start is None or integer(loop.start) == 0):
        return None
    names = tuple(a.value.value for a in call.args[1:4] if isinstance(a.value, cst.Name))
    if len(names) != _N_STATE or not _says_first(program, kernel, loop, call.args[4].value):
        return None
    start = program.span(loop.node).start
    initials = [initial_value(program, kernel, name, start) for name in names]
    if not all(initial is not None and initial.is_zero and initial.shape for initial in initials):
        return None
    state = cast(tuple[str, str, str], names)
    return Update(call, loop, state) if _is_kept(program, kernel, loop, call, state) else None


def _says_first(program: Program, kernel: Scope, loop: Loop, node: cst.CSTNode) -> bool:
    """Whether an expression is `offset == 0`, with the loop's own name or another for the offset."""
    if not isinstance(node, cst.Comparison) or len(node.comparisons) != 1:
        return False
    target = node.comparisons[0]
    if not isinstance(target.operator, cst.Equal) or integer(target.comparator) != 0:
        return False
    return isinstance(node.left, cst.Name) and _is_offset(program, kernel, loop, node.left)


def _is_offset(program: Program, kernel: Scope, loop: Loop, name: cst.Name) -> bool:
    if name.value == loop.target:
        return True
    binding = nearest(program, kernel, name.value, program.span(name).start)
    return binding is not None and isinstance(binding.value, cst.Name) and binding.value.value == loop.target


def _is_kept(program: Program, kernel: Scope, loop: Loop, call: cst.Call, state: tuple[str, str, str]) -> bool:
    """Whether the loop binds each name of the state once, to what the call answers, or to that where a mask is true."""
    target = program.parents[call]
    if not isinstance(target, cst.Assign) or not isinstance(target.targets[0].target, cst.Tuple):
        return False
    answered = [program.text(e.value) for e in target.targets[0].target.elements]
    inside = {
        n: [b for b in bindings(program, kernel)[n] if loop.node in program.ancestors(b.statement)] for n in state
    }
    if len(answered) != _N_STATE or any(len(group) != 1 for group in inside.values()):
        return False
    return all(
        _keeps(program, kernel, loop, inside[n][0].statement, n, new) for n, new in zip(state, answered, strict=True)
    )


def _keeps(program: Program, kernel: Scope, loop: Loop, statement: cst.CSTNode, name: str, new: str) -> bool:
    assigned = assignment_of(statement)
    if assigned is None:
        return False
    if program.text(assigned[1]) == new:
        return True
    value = assigned[1]
    if isinstance(value, cst.IfExp) and program.text(value.body) == new:  # what mask_elision writes
        value = value.orelse
    if not isinstance(value, cst.Call) or program.device_call(value) != "where" or not _is_plain(value, 3):
        return False
    mask, kept, other = (a.value for a in value.args)
    return (program.text(kept), program.text(other)) == (new, name) and _only_falls(program, kernel, loop, mask)


def _only_falls(program: Program, kernel: Scope, loop: Loop, node: cst.BaseExpression) -> bool:
    """Whether a mask that is false in one step is so in all that follow: the same in all, or `index < extent` with an
    index that grows with the loop."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.BitAnd):
        return all(_only_falls(program, kernel, loop, side) for side in (node.left, node.right))
    if not isinstance(node, cst.Name):
        return False
    binding = nearest(program, kernel, node.value, program.span(node).start)
    if binding is None or binding.value is None:
        return False
    if loop.node not in program.ancestors(binding.statement):
        return True
    if isinstance(binding.value, cst.Comparison):
        return _grows(program, kernel, loop, binding.value)
    full = binding.value.value if isinstance(binding.value, cst.Subscript) else binding.value
    is_full = isinstance(full, cst.Call) and program.device_call(full) == "full"
    return is_full and isinstance(full, cst.Call) and program.text(full.args[1].value) == "True"


def _grows(program: Program, kernel: Scope, loop: Loop, node: cst.Comparison) -> bool:
    """Whether a comparison is `index < extent`, with an index that is the loop's offset plus lanes."""
    target = node.comparisons[0]
    if (
        len(node.comparisons) != 1
        or not isinstance(target.operator, cst.LessThan)
        or not isinstance(node.left, cst.Name)
    ):
        return False
    index = nearest(program, kernel, node.left.value, program.span(node).start)
    value = index.value if index is not None else None
    if not isinstance(value, cst.BinaryOperation) or not isinstance(value.operator, cst.Add):
        return False
    sides = {program.text(value.left), program.text(value.right)}
    extent_moves = any(
        loop.node in program.ancestors(b.statement)
        for b in bindings(program, kernel).get(program.text(target.comparator), [])
    )
    return loop.target in sides and len(sides) == 2 and not extent_moves
