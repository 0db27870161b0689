import pytest
import torch

from db.errors import ProblemError
from db.records import Problem, Workload
from evaluators.input_sets import ReferenceSets, list_sets, n_bytes_of

SOURCE = """
import torch
import torch.nn as nn

n = 8


class Model(nn.Module):
    def forward(self, x):
        return FORWARD


def get_inputs():
    return [INPUTS]


def get_init_inputs():
    return []
"""


def make_problem(forward: str = "x * 2", inputs: str = "torch.randn(n, 3)") -> Problem:
    return Problem(
        name="p",
        kind="kernelbench",
        source=SOURCE.replace("FORWARD", forward).replace("INPUTS", inputs),
        workloads=(Workload(name="full", role="full"), Workload(name="small", role="small", sizes={"n": 2})),
    )


def open_sets(problem: Problem, budget_bytes: int = 1 << 20, secret_seed: int | None = 7) -> ReferenceSets:
    return ReferenceSets(problem, list_sets([problem.small, problem.full], secret_seed), "cpu", budget_bytes)


def test_both_workloads_get_the_known_seeds_and_secret_variants() -> None:
    sets = list_sets([make_problem().small, make_problem().full], None)
    for role in ("small", "full"):
        mine = [s for s in sets if s.workload.role == role]
        assert {0, 42, 1337} <= {s.seed for s in mine if not s.is_secret}
        assert {s.variant for s in mine if s.is_secret} == {"plain", "flipped", "scaled"}
    assert sets[0].workload.role == "small"  # cheapest first


def test_a_secret_seed_is_secret_and_differs_between_runs() -> None:
    small, full = make_problem().small, make_problem().full
    one, other = ([s for s in list_sets([small, full], None) if s.is_secret] for _ in range(2))
    assert {s.seed for s in one}.isdisjoint({s.seed for s in other})
    assert all(str(s.seed) not in s.label for s in one)
    assert [s.seed for s in list_sets([small], 7)] == [s.seed for s in list_sets([small], 7)]


def test_a_set_is_the_same_whether_it_is_kept_or_drawn_again() -> None:
    kept, drawn_again = open_sets(make_problem()), open_sets(make_problem(), budget_bytes=0)
    for wanted in kept.sets:
        a, b, c = kept.drawn(wanted), drawn_again.drawn(wanted), drawn_again.drawn(wanted)
        assert torch.equal(a.inputs[0], b.inputs[0]) and torch.equal(b.expected[0], c.expected[0])
    assert kept.drawn(kept.sets[-1]) is kept.drawn(kept.sets[-1])
    assert drawn_again.drawn(drawn_again.sets[-1]) is not drawn_again.drawn(drawn_again.sets[-1])


def test_variants_on_which_the_reference_is_not_finite_are_left_out() -> None:
    variants = {s.variant for s in open_sets(make_problem("torch.log(x)", "torch.rand(n, 3) + 0.1")).sets}
    assert variants == {"plain", "scaled"}


def test_integer_inputs_have_no_variants() -> None:
    sets = open_sets(make_problem("x + 1", "torch.randint(0, 9, (n, 3))"))
    assert {s.variant for s in sets.sets} == {"plain"}


def test_float64_is_known_for_floating_outputs_of_the_model_gates_seeds() -> None:
    sets = open_sets(make_problem("(x.exp(), x.argmax(1))"))
    wanted = next(s for s in sets.sets if s.has_exact)
    drawn = sets.drawn(wanted)
    assert drawn.exact[0] is not None and drawn.exact[0].dtype == torch.float64 and drawn.exact[1] is None
    assert drawn.errors[0] is not None and 0 < drawn.errors[0].d_ref < 1e-5
    assert [s.seed for s in sets.sets if s.has_exact and s.workload.role == "small"] == [0, 42, 123]


def test_a_reference_that_cannot_widen_has_no_float64() -> None:
    sets = open_sets(make_problem("x @ torch.eye(3, dtype=torch.float32)"))
    assert all(x is None for s in sets.sets for x in sets.drawn(s).exact)


def test_a_reference_without_outputs_is_no_problem() -> None:
    with pytest.raises(ProblemError, match="returns no tensor"):
        open_sets(make_problem("None"))


def test_repeated_elements_count_once() -> None:
    assert n_bytes_of([torch.zeros(1, 4).expand(100, 4), 3, torch.zeros(2, dtype=torch.int8)]) == 18


def scaled_and_plain_atol(forward: str) -> tuple[float, float]:
    sets = open_sets(make_problem(forward))
    chosen = {s.variant: s for s in sets.sets if s.is_secret and s.workload.role == "full"}
    scaled, plain = (sets.drawn(chosen[variant]).tolerances[0] for variant in ("scaled", "plain"))
    assert scaled.rtol == plain.rtol
    return scaled.atol, plain.atol


def test_an_absolute_bound_grows_with_outputs_that_scaled_inputs_make_larger() -> None:
    scaled, plain = scaled_and_plain_atol("x.cumsum(0)")
    assert 4 * plain < scaled < 16 * plain


def test_an_absolute_bound_stays_where_outputs_do_not_grow() -> None:
    scaled, plain = scaled_and_plain_atol("torch.softmax(x, 1)")
    assert scaled < 2 * plain


def test_bounds_of_integers_do_not_grow() -> None:
    scaled, plain = scaled_and_plain_atol("(x * 3).to(torch.int32)")
    assert scaled == plain
