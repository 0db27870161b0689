from typing import Any

import pytest
import torch

from db.errors import DeviceError, ProblemError
from db.records import Problem, Tolerance, Workload
from evaluators.gates.integrity import has_same_bytes
from evaluators.input_sets import Drawn, ReferenceSets, list_sets, n_bytes_of, sets_of
from evaluators.problems.variants import ADVERSARIAL

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


def make_problem(forward: str = "x * 2", inputs: str = "torch.randn(n, 3)", **given: Any) -> Problem:
    return Problem(
        name="p",
        kind="kernelbench",
        source=SOURCE.replace("FORWARD", forward).replace("INPUTS", inputs),
        workloads=(
            Workload(name="full", role="full", sizes={"n": 8}),
            Workload(name="small", role="small", sizes={"n": 2}),
        ),
        **given,
    )


def open_sets(problem: Problem, budget_bytes: int = 1 << 20, secret_seed: int | None = 7) -> ReferenceSets:
    return ReferenceSets(problem, list_sets([problem.small, problem.full], secret_seed), "cpu", budget_bytes)


def test_both_workloads_get_the_known_seeds_and_secret_variants() -> None:
    sets = list_sets([make_problem().small, make_problem().full], None)
    for role in ("small", "full"):
        mine = [s for s in sets if s.workload.role == role]
        assert {0, 42, 1337} <= {s.seed for s in mine if not s.is_secret}
        values = {"plain", "flipped", "scaled"} | (set(ADVERSARIAL) if role == "small" else set())
        assert {s.variant for s in mine if s.is_secret} == values
        assert [s.has_exact for s in mine if s.is_secret and s.variant == "plain"] == [True]
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
        assert has_same_bytes(a.inputs[0], b.inputs[0]) and has_same_bytes(b.expected[0], c.expected[0])
    assert kept.drawn(kept.sets[-1]) is kept.drawn(kept.sets[-1])
    assert drawn_again.drawn(drawn_again.sets[-1]) is not drawn_again.drawn(drawn_again.sets[-1])


def test_variants_on_which_the_reference_is_not_finite_are_left_out() -> None:
    sets = open_sets(make_problem("torch.log(x)", "torch.rand(n, 3) + 0.1")).sets
    assert {s.variant for s in sets} == {"plain", "scaled"}


def test_integer_inputs_have_no_variants() -> None:
    sets = open_sets(make_problem("x + 1", "torch.randint(0, 9, (n, 3))"))
    assert {s.variant for s in sets.sets} == {"plain"}


def test_float64_is_known_for_floating_outputs_of_the_model_gates_seeds() -> None:
    sets = open_sets(make_problem("(x.exp(), x.argmax(1))"))
    wanted = next(s for s in sets.sets if s.has_exact)
    drawn = sets.drawn(wanted)
    assert drawn.exact[0] is not None and drawn.exact[0].dtype == torch.float64 and drawn.exact[1] is None
    assert drawn.errors[0] is not None and 0 < drawn.errors[0].d_ref < 1e-5
    assert [s.seed for s in sets.sets if s.has_exact and s.workload.role == "small"] == [0, 42, 123, 7]


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


def adversarial(forward: str, inputs: str = "torch.randn(n, 300)") -> dict[str, Drawn]:
    """What is drawn of each adversarial variant that is used."""
    sets = open_sets(make_problem(forward, inputs))
    return {s.variant: sets.drawn(s) for s in sets.sets if s.variant in ADVERSARIAL}


def test_adversarial_values_are_used_where_the_reference_answers() -> None:
    assert set(adversarial("torch.softmax(x, 1)")) == set(ADVERSARIAL)
    # exp overflows far from zero
    assert set(adversarial("torch.exp(x)")) == {"tiny", "negative", "one_nan"}
    assert set(adversarial("(x > 0, x[:0].int())")) == {"large", "tiny", "constant_rows", "negative"}
    assert set(adversarial("(x * 3).to(torch.int32)")) == {"large", "tiny", "constant_rows", "negative"}


def test_values_that_a_sign_flip_would_spoil_stay_as_they_are() -> None:
    assert adversarial("torch.log(x)", "torch.rand(n, 300) + 0.1") == {}


def test_what_hangs_on_the_last_bits_of_its_inputs_is_not_asked() -> None:
    assert {"large", "constant_rows"}.isdisjoint(adversarial("torch.sin(x * 1e4)"))
    assert "tiny" in adversarial("torch.sin(x * 1e4)")


def test_a_bound_leaves_room_for_the_last_bits_of_the_inputs() -> None:
    drawn = adversarial("torch.sin(x)")
    assert 1.3e-3 < drawn["large"].tolerances[0].atol < 1e-2  # sines of thousands
    assert drawn["tiny"].tolerances[0].atol < 1.001e-3


def test_adversarial_values_that_take_too_much_memory_are_left_out_and_others_are_not() -> None:
    hungry = "x * 2 if float(x.abs().max()) < LIMIT else (_ for _ in ()).throw(torch.OutOfMemoryError('CUDA'))"
    assert set(adversarial(hungry.replace("LIMIT", "500.0"))) == {"tiny", "negative", "constant_rows"}
    with pytest.raises(DeviceError, match="does not fit"):
        adversarial(hungry.replace("LIMIT", "8.0"))


def test_one_nan_is_one() -> None:
    drawn = adversarial("x.cumsum(1)")["one_nan"]
    assert int(drawn.inputs[0].isnan().sum()) == 1 and 0 < int(drawn.expected[0].isnan().sum()) < 300


def test_a_nan_that_only_meets_zeros_is_not_asked() -> None:
    assert "one_nan" not in adversarial("x @ torch.diag(torch.ones(300, dtype=x.dtype))")
    assert "one_nan" in adversarial("torch.softmax(x, 1).relu()")


def test_hidden_workloads_have_secret_sets_of_their_own() -> None:
    problem = make_problem("torch.softmax(x, 1)", varies=("n",), layouts=("transposed", "unaligned"))
    sets = ReferenceSets(problem, sets_of(problem, [problem.small, problem.full], 7), "cpu", 1 << 20)
    hidden = [s for s in sets.sets if s.workload.name.startswith("hidden")]
    assert all(s.is_secret and not s.has_exact for s in hidden)
    assert {s.variant for s in hidden if s.workload.name == "hidden-1"} == {"plain", *ADVERSARIAL}
    assert {s.variant for s in sets.sets if s.workload == problem.small} == {"plain", "flipped", "scaled"}
    assert sets.drawn(hidden[0]).inputs[0].shape[0] % 2 == 1
    assert [s.workload.name for s in hidden if s.variant == "plain"][-1] == "hidden-transposed"  # no GPU: all aligned
    (x,) = sets.drawn(hidden[-1]).inputs
    assert x.shape == (2, 3) and x.stride() == (1, 2)
    assert len(sets.built_alike) == 1


def test_programs_are_built_anew_where_weights_differ() -> None:
    source = SOURCE.replace("FORWARD", "x * self.scale").replace("INPUTS", "torch.randn(3, n)")
    source = source.replace(
        "    def forward",
        "    def __init__(self):\n        super().__init__()\n"
        "        self.scale = nn.Parameter(torch.randn(n))\n\n    def forward",
    )
    problem = make_problem(varies=("n",)).model_copy(update={"source": source})
    sets = ReferenceSets(problem, sets_of(problem, [problem.small], 7), "cpu", 1 << 20)
    groups = [{s.workload.name for s in group} for group in sets.built_alike]
    assert groups == [{"small"}, {"hidden-1"}, {"hidden-2"}]


WEAK = "torch.softmax(x, 1) * 1e-5"


def test_a_table_s_bound_shrinks_where_zeros_would_pass() -> None:
    sets = open_sets(make_problem(WEAK))
    atol = sets.drawn(sets.sets[0]).tolerances[0].atol
    assert 1e-9 < atol < 1e-8


def test_a_stated_bound_that_lets_zeros_pass_is_told() -> None:
    stated = {"float32": Tolerance(rtol=1e-3, atol=1e-3)}
    with pytest.raises(ProblemError, match="zeros would pass") as told:
        open_sets(make_problem(WEAK, tolerances=stated))
    assert 'TOLERANCES = {"float32": (0.001, ' in told.value.hint


def test_an_answer_that_is_constant_is_no_weak_problem() -> None:
    stated = {"float32": Tolerance(rtol=1e-3, atol=1e-3)}
    for forward in ("x * 0", "x * 0 + 1"):
        sets = open_sets(make_problem(forward, tolerances=stated))
        assert sets.drawn(sets.sets[0]).tolerances == [stated["float32"]]
