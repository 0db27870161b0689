"""Running means as Inductor writes them: Welford's update lane by lane in a loop, and a combination of lanes after it.

What `torch._inductor.runtime.triton_helpers` calls `welford_reduce` and `welford` is copied into programs under other
names, so the functions are known by what they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import libcst as cst

from islands.operators.structural.analysis import Program, Scope, integer
from islands.operators.structural.falling_masks import only_falls
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
    is_group: bool  # takes a mean, an m2 of zero and a weight of zero or one, else a value and whether it is the first


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
    found = [_update(program, kernel, call) for call in calls_with_body(program, kernel, _UPDATE)]
    found += [_group_update(program, kernel, c) for c in calls if _is_combine(program, called_function(program, c))]
    updates = [update for update in found if update is not None]
    return Welford(kernel.name, tuple(updates), tuple(joins)) if updates or joins else None


def _is_join(program: Program, function: Scope) -> bool:
    """Whether a function reduces mean, m2 and weight over a dimension with the formula of Chan et al."""
    combining = [n for n in program.kernels if body_of(program, function) == _JOIN.format(combine=n)]
    return any(_is_combine(program, program.kernels[name]) for name in combining)


def _is_combine(program: Program, function: Scope) -> bool:
    """Whether a function combines mean, m2 and weight of two groups; versions of torch differ in what they guard."""
    return all(part in body_of(program, function) for part in _COMBINE)


def _is_plain(call: cst.Call, n_arguments: int) -> bool:
    return len(call.args) == n_arguments and not any(a.keyword is not None or a.star for a in call.args)


def _update(program: Program, kernel: Scope, call: cst.Call) -> Update | None:
    """A call `update(value, mean, m2, weight, offset == 0)` in a loop."""
    loop = _loop_around(program, kernel, call)
    if loop is None or not _is_plain(call, 5) or not _says_first(program, kernel, loop, call.args[4].value):
        return None
    return Update(call, loop, is_group=False) if _is_running(program, kernel, loop, call, call.args[1:4]) else None


def _group_update(program: Program, kernel: Scope, call: cst.Call) -> Update | None:
    """A call `combine(mean, m2, weight, value, 0, one or zero)` in a loop: a value that only some lanes have."""
    loop = _loop_around(program, kernel, call)
    if loop is None or not _is_plain(call, 6):
        return None
    numbers = [_number_or_zero(program, kernel, loop, call.args[i].value) for i in (4, 5)]
    is_running = _is_running(program, kernel, loop, call, call.args[:3])
    return Update(call, loop, is_group=True) if numbers == [0.0, 1.0] and is_running else None


def _loop_around(program: Program, kernel: Scope, call: cst.Call) -> Loop | None:
    """The loop that a call stands in, where that starts from zero."""
    loop = next((x for x in loops_of(program, kernel) if x.node in program.ancestors(call)), None)
    return loop if loop is not None and (loop.start is None or integer(loop.start) == 0) else None


def _is_running(program: Program, kernel: Scope, loop: Loop, call: cst.Call, args: Sequence[cst.Arg]) -> bool:
    """Whether arguments are the state that starts from zeros and that the loop keeps from what a call answers."""
    names = tuple(a.value.value for a in args if isinstance(a.value, cst.Name))
    if len(names) != _N_STATE:
        return False
    start = program.span(loop.node).start
    initials = [initial_value(program, kernel, name, start) for name in names]
    if not all(initial is not None and initial.is_zero and initial.shape for initial in initials):
        return False
    return _is_kept(program, kernel, loop, call, cast(tuple[str, str, str], names))


def _number_or_zero(program: Program, kernel: Scope, loop: Loop, node: cst.BaseExpression) -> float | None:
    """The number that a value of a loop is in lanes that a falling mask has; in the others it is zero."""
    value = resolved(program, kernel, node)
    if isinstance(value, cst.Call) and program.device_call(value) == "where" and _is_plain(value, 3):
        mask, chosen, other = (a.value for a in value.args)
        if not only_falls(program, kernel, loop, mask) or _full(program, kernel, other) != 0.0:
            return None
        return _full(program, kernel, chosen)
    return _full(program, kernel, node)


def _full(program: Program, kernel: Scope, node: cst.BaseExpression) -> float | None:
    """The number in `tl.full(shape, number, dtype)`."""
    value = resolved(program, kernel, node)
    if not isinstance(value, cst.Call) or program.device_call(value) != "full" or len(value.args) < 2:
        return None
    text = program.text(value.args[1].value)
    return float(text) if text.replace(".", "", 1).isdigit() else None


def resolved(program: Program, kernel: Scope, node: cst.BaseExpression) -> cst.BaseExpression:
    """What a name stands for, through `tl.broadcast_to`."""
    for _ in range(8):
        binding = nearest(program, kernel, node.value, program.span(node).start) if isinstance(node, cst.Name) else None
        if binding is not None and binding.value is not None:
            node = binding.value
        elif isinstance(node, cst.Call) and program.device_call(node) == "broadcast_to":
            node = node.args[0].value
    return node


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
    return (program.text(kept), program.text(other)) == (new, name) and only_falls(program, kernel, loop, mask)
