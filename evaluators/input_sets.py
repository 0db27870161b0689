"""What candidates are run on: input sets with what the reference makes of them, held by the judge alone."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from db.errors import ProblemError
from db.records import Problem, Tolerance, Workload
from evaluators.gates.model_gate import ReferenceError64, reference_error
from evaluators.problems.reference import Reference
from evaluators.tolerances import tolerance_for

Variant = Literal["plain", "flipped", "scaled"]
CORRECTNESS_SEEDS = (0, 42, 1337)
MODEL_SEEDS = (0, 42, 123)  # these are also compared with float64


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
        variant = "" if self.variant == "plain" else f", inputs {self.variant}"
        return f"{self.workload.name} workload, {seed}{variant}"


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


def list_sets(workloads: Sequence[Workload], secret_seed: int | None) -> list[InputSet]:
    """The sets of a run, cheapest first: every workload with the known seeds and secret ones, flipped and scaled.

    Args:
        workloads: those that are judged, in the order in which they are asked.
        secret_seed: makes the secret sets repeatable; None draws fresh ones.
    """
    base = secrets.randbits(40) if secret_seed is None else secret_seed
    sets = []
    for i, workload in enumerate(workloads):
        is_full = workload.role == "full"
        seeds = CORRECTNESS_SEEDS if is_full else tuple(sorted({*CORRECTNESS_SEEDS, *MODEL_SEEDS}))
        exact_seeds = MODEL_SEEDS[:1] if is_full else MODEL_SEEDS
        sets += [InputSet(workload, seed, "plain", False, seed in exact_seeds) for seed in seeds]
        variants: tuple[Variant, ...] = ("plain", "flipped", "scaled")
        sets += [InputSet(workload, base + 3 * i + j, v, True, False) for j, v in enumerate(variants)]
    return sets


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
        self.sets = self._usable(sets)

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

    def close(self) -> None:
        self._kept.clear()
        self._weights.clear()

    def _usable(self, sets: Sequence[InputSet]) -> list[InputSet]:
        """Drops variants that change nothing (no float input) or that the reference answers with NaN or infinity."""
        return [wanted for wanted in sets if self._is_usable(wanted)]

    def _is_usable(self, wanted: InputSet) -> bool:
        if wanted.variant == "plain":
            if not self.drawn(wanted).expected:
                raise ProblemError(f"problem {self.problem.name!r}: its reference returns no tensor")
            return True
        try:
            drawn = self.drawn(wanted)
        except ProblemError:  # a reference need not take inputs of another sign or size
            return False
        if _has_floats(drawn.inputs) and all(_is_finite(e) for e in drawn.expected):
            return True
        self._forget(wanted)
        return False

    def _forget(self, unwanted: InputSet) -> None:
        drawn = self._kept.pop(unwanted.key, None)
        if drawn is not None:
            self._budget_bytes += drawn.n_bytes

    def _draw(self, wanted: InputSet) -> Drawn:
        reference = self.references[wanted.workload.name]
        with torch.no_grad():
            inputs = reference.draw_inputs(wanted.seed, self._device, wanted.variant)
            expected = reference.expected(inputs)
            exact = self._exact(reference, inputs, expected) if wanted.has_exact else [None] * len(expected)
            errors = [None if x is None else reference_error(r, x) for r, x in zip(expected, exact, strict=True)]
        return Drawn(inputs, expected, exact, errors, self._tolerances(wanted, expected))

    def _tolerances(self, wanted: InputSet, expected: list[Tensor]) -> list[Tolerance]:
        plain = [tolerance_for(self.problem, str(e.dtype).removeprefix("torch.")) for e in expected]
        if wanted.variant != "scaled":
            return plain
        drawn_plainly = self.drawn(self._first_of[wanted.workload.name]).expected
        return [_grown(t, e, p) for t, e, p in zip(plain, expected, drawn_plainly, strict=True)]

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
    usual = _rms(drawn_plainly) if expected.is_floating_point() else 0.0
    growth = _rms(expected) / usual if usual > 0 else 1.0
    return Tolerance(rtol=tolerance.rtol, atol=tolerance.atol * max(1.0, growth))


def _rms(values: Tensor) -> float:
    """Root of the mean square of floats."""
    norm = torch.linalg.vector_norm(values, dtype=torch.promote_types(values.dtype, torch.float32))
    return float(norm.item() / max(1, values.numel()) ** 0.5)


def _has_floats(inputs: Sequence[Any]) -> bool:
    return any(isinstance(v, Tensor) and v.is_floating_point() for v in inputs)


def _is_finite(values: Tensor) -> bool:
    return bool(values.isfinite().all().item())
