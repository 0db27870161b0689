"""What candidates are run on: input sets with what the reference makes of them, held by the judge alone."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from db.errors import DeviceError, ProblemError
from db.records import Problem, Tolerance, Workload
from evaluators.gates.correctness import compare
from evaluators.gates.model_gate import ReferenceError64, reference_error
from evaluators.problems.bounds import root_mean_square, too_wide
from evaluators.problems.hidden import hidden_workloads, is_hidden
from evaluators.problems.reference import Reference
from evaluators.problems.variants import ADVERSARIAL, Variant, nudged, with_others
from evaluators.tolerances import tolerance_for

CORRECTNESS_SEEDS = (0, 42, 1337)
MODEL_SEEDS = (0, 42, 123)  # these are also compared with float64, and so is the plain secret one
SEED_STRIDE = 16  # between the secret seeds of two workloads
RESPONSES = 4.0  # an answer may be off by so many times what the last bit of its inputs changes
MAX_RESPONSE = 0.1  # of the largest answer; where the last bit of an input changes more, nobody can be held to it
CHANCE = 0.01  # of an answer's NaN: elements that hang on nothing because another factor happens to be zero
OWN_SHARE = 0.5  # of the bound, that the reference's own error may take


class InputSet(NamedTuple):
    """One drawing of inputs. A secret set's seed is not known to whoever wrote the candidate."""

    workload: Workload
    seed: int
    variant: Variant
    is_secret: bool
    has_exact: bool  # compared with float64 too

    @property
    def key(self) -> tuple[str, int, str]:
        """What makes it another set than the next."""
        return self.workload.name, self.seed, self.variant

    @property
    def label(self) -> str:
        """How a reason names it; a secret seed stays secret."""
        seed = "a secret seed" if self.is_secret else f"seed {self.seed}"
        variant = "" if self.variant == "plain" else f", inputs {self.variant.replace('_', ' ')}"
        return f"{_named(self.workload)}, {seed}{variant}"


def _named(workload: Workload) -> str:
    """A workload as a reason names it."""
    if not is_hidden(workload):
        return f"{workload.name} workload"
    if workload.layout != "plain":
        return f"small workload with {workload.layout} inputs"
    n_ones = sum(type(size) is int and size == 1 for size in workload.sizes.values())
    return f"hidden workload, odd sizes{', some of one' if n_ones else ''}"


class Drawn(NamedTuple):
    """An input set with values: inputs, the reference's outputs, and those in float64 (None: not to be had).

    `tolerances` bound each output elementwise. An `atol` is meant for outputs as the problem draws them: where scaled
    inputs make them larger, it grows with them, because the reference's own rounding does.
    """

    inputs: list[Any]
    expected: list[Tensor]
    exact: list[Tensor | None]
    errors: list[ReferenceError64 | None]
    tolerances: list[Tolerance]

    @property
    def n_bytes(self) -> int:
        return sum(n_bytes_of(part) for part in (self.inputs, self.expected, self.exact))


def n_bytes_of(values: Sequence[Any]) -> int:
    """Bytes of the elements of all tensors among the values; an element that a stride repeats counts once."""
    return sum(_stored_elements(v) * v.element_size() for v in values if isinstance(v, Tensor))


def _stored_elements(tensor: Tensor) -> int:
    sizes = [size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride != 0]
    return int(torch.Size(sizes).numel()) if tensor.numel() else 0


def sets_of(problem: Problem, workloads: Sequence[Workload], secret_seed: int | None) -> list[InputSet]:
    """The sets of a run on a problem: those of `list_sets`, with the hidden workloads that the problem allows.

    Args:
        workloads: those of the problem that are judged, the small one first.
        secret_seed: makes the secret sets and the hidden workloads repeatable; None draws fresh ones.
    """
    base = secrets.randbits(40) if secret_seed is None else secret_seed
    return list_sets(workloads, base, hidden_workloads(problem, base))


def list_sets(
    workloads: Sequence[Workload], secret_seed: int | None, hidden: Sequence[Workload] = ()
) -> list[InputSet]:
    """The sets of a run, cheapest first: every workload with the known seeds and secret ones, flipped and scaled, and
    one workload with adversarial values: the first hidden one of other sizes, else the small one.

    Args:
        workloads: those that are judged, in the order in which they are asked.
        secret_seed: makes the secret sets repeatable; None draws fresh ones.
        hidden: workloads that come after the small one, with secret seeds alone.
    """
    base = secrets.randbits(40) if secret_seed is None else secret_seed
    small, full = ([w for w in workloads if w.role == role] for role in ("small", "full"))
    hardest = next((w for w in [*hidden, *small] if w.layout == "plain"), None)
    sets = []
    for i, workload in enumerate([*small, *hidden, *full]):
        first = base + SEED_STRIDE * i
        if not is_hidden(workload):
            sets += _known_sets(workload)
        sets += _secret_sets(workload, first)
        if workload == hardest:
            sets += [InputSet(workload, first + 3 + j, v, True, False) for j, v in enumerate(ADVERSARIAL)]
    return sets


def _known_sets(workload: Workload) -> list[InputSet]:
    is_full = workload.role == "full"
    seeds = CORRECTNESS_SEEDS if is_full else tuple(sorted({*CORRECTNESS_SEEDS, *MODEL_SEEDS}))
    exact_seeds = MODEL_SEEDS[:1] if is_full else MODEL_SEEDS
    return [InputSet(workload, seed, "plain", False, seed in exact_seeds) for seed in seeds]


def _secret_sets(workload: Workload, first: int) -> list[InputSet]:
    """A plain set, and for a workload of the problem's own two more. At hidden sizes float64 decides nothing: where
    little is computed, the reference may meet the exact value by luck."""
    if is_hidden(workload):
        return [InputSet(workload, first, "plain", True, False)]
    variants: tuple[Variant, ...] = ("plain", "flipped", "scaled")
    return [InputSet(workload, first + j, v, True, v == "plain") for j, v in enumerate(variants)]


class ReferenceSets:
    """The input sets of a problem on one device, drawn once and kept while they fit a budget, else drawn again.

    Not safe to use from two threads at once.
    """

    def __init__(self, problem: Problem, sets: Sequence[InputSet], device: str, budget_bytes: int) -> None:
        self.problem = problem
        self.references = {s.workload.name: Reference(problem, s.workload) for s in sets}
        self._device = device
        self._budget_bytes = budget_bytes
        self._first_of = {s.workload.name: s for s in reversed(sets)}
        self._firsts = {s.key for s in self._first_of.values()}  # always kept: sessions are filled from them
        self._kept: dict[tuple[str, int, str], Drawn] = {}
        self._weights: dict[str, dict[str, Tensor]] = {}
        self._exact_works = True
        self._takes_flipped = False
        self._bounds: dict[str, list[Tolerance]] = {}  # of a workload's outputs, as they are when drawn plainly
        self.sets = self._usable(sets)

    @cached_property
    def built_alike(self) -> list[list[InputSet]]:
        """The sets, those together whose programs are built of the same arguments and weights."""
        groups: list[list[InputSet]] = []
        for wanted in self.sets:
            alike = (group for group in groups if self._is_built_alike(group[0].workload, wanted.workload))
            group = next(alike, None)
            if group is None:
                groups.append([wanted])
            else:
                group.append(wanted)
        return groups

    def _is_built_alike(self, one: Workload, other: Workload) -> bool:
        if one == other:
            return True
        weights, others = self.weights(one), self.weights(other)
        pairs = zip([*self.init_args(one), *weights.values()], [*self.init_args(other), *others.values()], strict=False)
        return weights.keys() == others.keys() and all(_is_same(a, b) for a, b in pairs)

    def drawn(self, wanted: InputSet) -> Drawn:
        """The values of a set; the same bits every time on one device."""
        if wanted.key in self._kept:
            return self._kept[wanted.key]
        drawn = self._draw(wanted)
        if drawn.n_bytes <= self._budget_bytes or wanted.key in self._firsts:
            self._budget_bytes -= drawn.n_bytes
            self._kept[wanted.key] = drawn
        return drawn

    def weights(self, workload: Workload) -> dict[str, Tensor]:
        """The reference's weights for a workload, made once."""
        if workload.name not in self._weights:
            self._weights[workload.name] = self.references[workload.name].weights(self._device)
        return self._weights[workload.name]

    def init_args(self, workload: Workload) -> list[Any]:
        """The arguments that programs are built with for a workload."""
        return self.references[workload.name].init_args()

    def close(self) -> None:
        self._kept.clear()
        self._weights.clear()

    def _usable(self, sets: Sequence[InputSet]) -> list[InputSet]:
        """Leaves out what asks nothing fair: variants that change nothing, sets that the reference refuses or answers
        with infinities, and those where its answer hangs on the last bits of its inputs."""
        return [wanted for wanted in sets if self._is_usable(wanted)]

    def _is_usable(self, wanted: InputSet) -> bool:
        if wanted.variant == "plain" and not is_hidden(wanted.workload):
            if not self.drawn(wanted).expected:
                raise ProblemError(f"problem {self.problem.name!r}: its reference returns no tensor")
            return True
        try:
            is_fair = self._is_fair(wanted, self.drawn(wanted))
        except ProblemError:  # a reference need not take inputs of another size or sign
            is_fair = False
        except (DeviceError, torch.OutOfMemoryError):
            if wanted.variant not in ADVERSARIAL:
                raise
            is_fair = False  # what is fair to ask takes more memory than to judge
        if not is_fair:
            self._forget(wanted)
        if wanted.variant == "flipped" and wanted.workload.role == "small":
            self._takes_flipped = is_fair
        return is_fair

    def _is_fair(self, wanted: InputSet, drawn: Drawn) -> bool:
        if not drawn.expected or (wanted.workload.layout == "unaligned" and self._device == "cpu"):
            return False  # the interpreter knows no alignment
        if wanted.variant == "one_nan":
            return self._is_fair_nan(wanted, drawn)
        if not all(_is_finite(e) for e in drawn.expected):
            return False
        if wanted.variant in ("flipped", "scaled"):
            return any(map(_is_floating, drawn.inputs))
        if wanted.variant in ADVERSARIAL and not self._changes(wanted, drawn):
            return False
        return self._is_conditioned(wanted, drawn)

    def _is_fair_nan(self, wanted: InputSet, drawn: Drawn) -> bool:
        """Whether the reference answers a NaN with floats that are NaN only where they hang on that element. A NaN
        times a zero is one too, and a program need not take the product to be right."""
        if not all(e.is_floating_point() and not e.float().isinf().any() for e in drawn.expected):
            return False  # no whole number is a NaN
        plain = self.references[wanted.workload.name].draw_inputs(wanted.seed, self._device)
        answers = [self._most_exact(wanted, inputs) for inputs in with_others(drawn.inputs, plain)]
        if any(not _are_alike(drawn.expected, answer) for answer in answers):
            return False
        hanging = [torch.stack([p != m for m in moved]).any(dim=0) for p, *moved in zip(*answers, strict=True)]
        has_nan = any(bool(v.float().isnan().any()) for v in drawn.inputs if _is_floating(v))
        pairs = [(e.float().isnan(), hangs) for e, hangs in zip(drawn.expected, hanging, strict=True)]
        return has_nan and all(int((nan & ~hangs).sum()) <= CHANCE * int(nan.sum()) for nan, hangs in pairs)

    def _most_exact(self, wanted: InputSet, inputs: Sequence[Any]) -> list[Tensor]:
        exact = self._in_float64(wanted, inputs)
        return self.references[wanted.workload.name].expected(inputs) if exact is None else exact

    def _changes(self, wanted: InputSet, drawn: Drawn) -> bool:
        """Whether the variant is not what `get_inputs` draws anyway."""
        plain = self.references[wanted.workload.name].draw_inputs(wanted.seed, self._device)
        return any(not torch.equal(a, b) for a, b in zip(drawn.inputs, plain, strict=True) if _is_floating(a))

    def _is_conditioned(self, wanted: InputSet, drawn: Drawn) -> bool:
        """Whether the reference is close to itself in float64, and that to itself on inputs a bit beside these. Where
        float64 is not to be had, only plain values are trusted."""
        exact = self._in_float64(wanted, drawn.inputs)
        if exact is None:
            return wanted.variant == "plain"
        if not _are_alike(drawn.expected, exact):
            return False
        for value, expected, bound, response in zip(
            exact, drawn.expected, drawn.tolerances, self._responses(wanted, drawn.inputs, exact), strict=True
        ):
            own = Tolerance(rtol=OWN_SHARE * bound.rtol, atol=OWN_SHARE * bound.atol)
            if not _is_finite(value) or (response > 0 and response > MAX_RESPONSE * float(value.abs().max().item())):
                return False
            if compare(expected.to(value.dtype), value, own if expected.is_floating_point() else bound) is not None:
                return False
        return True

    def _forget(self, unwanted: InputSet) -> None:
        drawn = self._kept.pop(unwanted.key, None)
        if drawn is not None:
            self._budget_bytes += drawn.n_bytes

    def _draw(self, wanted: InputSet) -> Drawn:
        reference = self.references[wanted.workload.name]
        with torch.no_grad():
            inputs = reference.draw_inputs(wanted.seed, self._device, wanted.variant, is_any_free=self._takes_flipped)
            expected = reference.expected(inputs)
            exact = self._exact(reference, inputs, expected) if wanted.has_exact else [None] * len(expected)
            errors = [None if x is None else reference_error(r, x) for r, x in zip(expected, exact, strict=True)]
            tolerances = self._tolerances(wanted, Drawn(inputs, expected, exact, errors, []))
        return Drawn(inputs, expected, exact, errors, tolerances)

    def _tolerances(self, wanted: InputSet, drawn: Drawn) -> list[Tolerance]:
        """The bounds of the workload, wider where a variant makes the answers larger or hang on their inputs' bits."""
        first = self._first_of[wanted.workload.name]
        if wanted.workload.name not in self._bounds:
            plain = drawn if wanted.key == first.key else self.drawn(first)
            self._bounds.setdefault(wanted.workload.name, self._plain_bounds(first, plain))
        bounds = self._bounds[wanted.workload.name]
        if wanted.variant == "one_nan" or (wanted.variant in ("plain", "flipped") and not is_hidden(wanted.workload)):
            return bounds
        if wanted.variant != "plain":
            usual = self.drawn(first).expected
            bounds = [_grown(t, e, p) for t, e, p in zip(bounds, drawn.expected, usual, strict=True)]
        if wanted.variant == "scaled":
            return bounds
        exact = self._in_float64(wanted, drawn.inputs)
        if exact is None or not _are_alike(drawn.expected, exact):
            return bounds
        responses = self._responses(wanted, drawn.inputs, exact)
        return [
            Tolerance(rtol=t.rtol, atol=t.atol + RESPONSES * response) if math.isfinite(response) else t
            for t, response in zip(bounds, responses, strict=True)
        ]

    def _plain_bounds(self, wanted: InputSet, drawn: Drawn) -> list[Tolerance]:
        """The problem's bounds or the table's, tighter where wrong answers would pass.

        Raises:
            ProblemError: a bound that the problem states lets wrong answers pass.
        """
        bounds = []
        for i, (expected, error) in enumerate(zip(drawn.expected, drawn.errors, strict=True)):
            dtype = str(expected.dtype).removeprefix("torch.")
            bound = tolerance_for(self.problem, dtype)
            found = too_wide(expected, drawn.inputs, bound, error.d_ref if error is not None else 0.0)
            if found is not None and dtype in self.problem.tolerances and not is_hidden(wanted.workload):
                raise ProblemError(
                    f"problem {self.problem.name!r} is too weak to judge: within its tolerance for {dtype}, "
                    f"{found.mutant} would pass for output {i} ({wanted.label})",
                    f'state TOLERANCES = {{"{dtype}": ({bound.rtol:g}, {found.tighter.atol:.2g})}} or less, '
                    "or draw inputs whose outputs are larger",
                )
            bounds.append(bound if found is None else found.tighter)
        return bounds

    def _in_float64(self, wanted: InputSet, inputs: Sequence[Any]) -> list[Tensor] | None:
        """All outputs in float64 (whole numbers as they are), or None where the reference cannot run so."""
        try:
            found = self.references[wanted.workload.name].expected_float64(inputs)
        except ProblemError:
            return None
        return None if any(x.is_floating_point() and x.dtype != torch.float64 for x in found) else found

    def _responses(self, wanted: InputSet, inputs: Sequence[Any], exact: Sequence[Tensor]) -> list[float]:
        """How far the last bit of float32 in every input moves each output, at most, in float64; whole numbers by 0.
        Infinite where an output is not finite."""
        moved = self._in_float64(wanted, nudged(inputs, wanted.seed))
        if moved is None or not _are_alike(exact, moved):
            return [math.inf] * len(exact)
        pairs = zip(moved, exact, strict=True)
        return [_farthest(m, x) if x.is_floating_point() and x.numel() else 0.0 for m, x in pairs]

    def _exact(self, reference: Reference, inputs: list[Any], expected: list[Tensor]) -> list[Tensor | None]:
        """The reference in float64, for floating outputs; all None where it cannot run in float64."""
        nothing: list[Tensor | None] = [None] * len(expected)
        if not self._exact_works:
            return nothing
        try:
            found = reference.expected_float64(inputs)
        except ProblemError:
            self._exact_works = False
            return nothing
        if len(found) != len(expected):
            return nothing
        pairs = zip(found, expected, strict=True)
        return [x if e.is_floating_point() and x.dtype == torch.float64 else None for x, e in pairs]


def _grown(tolerance: Tolerance, expected: Tensor, drawn_plainly: Tensor) -> Tolerance:
    """The tolerance with an `atol` for outputs that are larger than they are when drawn plainly."""
    usual = root_mean_square(drawn_plainly) if expected.is_floating_point() else 0.0
    growth = root_mean_square(expected) / usual if usual > 0 else 1.0
    return Tolerance(rtol=tolerance.rtol, atol=tolerance.atol * max(1.0, growth))


def _is_floating(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _are_alike(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Whether two answers have the same shapes: those of some references follow the values of their inputs."""
    return [one.shape for one in some] == [other.shape for other in others]


def _farthest(one: Tensor, other: Tensor) -> float:
    distance = float((one - other).abs().max().item())
    return math.inf if math.isnan(distance) else distance


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return bool(one.dtype == other.dtype and torch.equal(one, other))
    return type(one) is type(other) and not isinstance(one, Tensor) and bool(one == other)


def _is_finite(values: Tensor) -> bool:
    return bool((values.float() if values.element_size() == 1 else values).isfinite().all().item())
