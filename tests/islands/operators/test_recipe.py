"""A recipe does to one program what made another one fast."""

from __future__ import annotations

import random

import pytest
from support.parents import kernel_sources, parent_of

from db.measures import Tier
from db.profile import BottleneckReport, PerformanceState
from db.recipes import Recipe, Setting
from db.records import LatencyKind
from islands.knowledge import KnowledgeBase, Situation
from islands.operators import default_operators
from islands.operators.recipe import FollowRecipe, settings_of, techniques_of, with_settings
from islands.operators.structural.analysis import analyse
from islands.operators.structural.knobs import knobs_of
from islands.settings import IslandSettings

KINDS = ("scan", "matmul", "reduction")
SOURCES = kernel_sources()
SOFTMAX = SOURCES["row_softmax"]
SOURCE_RECIPE = Recipe(
    problem="layer_norm",
    latency_kind=LatencyKind.MEASURED,
    hardware_id="nvidia-h200",
    techniques=("exp2", "no_such_technique"),
    settings=(Setting(kernel=0, kind="num_warps", value=16),),
    octaves=0.5,
)


def warps(source: str) -> list[str | None]:
    program = analyse(source)
    assert program is not None
    return [knob.text for knob in knobs_of(program) if knob.parameter == "num_warps"]


def proposals(recipe: Recipe, source: str = SOFTMAX, n: int = 20) -> list[tuple[str, str]]:
    operator = FollowRecipe(default_operators(), [recipe])
    found = [operator.propose([parent_of(source)], random.Random(seed)) for seed in range(n)]
    return [(p.source, p.detail) for p in found if p is not None]


def test_rewrites_and_settings_come_together_and_apart() -> None:
    found = proposals(SOURCE_RECIPE)
    assert {detail for _, detail in found} == {
        "as layer_norm: exp2, num_warps 16",
        "as layer_norm: exp2",
        "as layer_norm: num_warps 16",
    }
    for source, detail in found:
        assert ("exp2(" in source) == ("exp2" in detail)
        assert (warps(source) == ["16"]) == ("num_warps" in detail)


def test_the_same_generator_follows_the_same_recipe() -> None:
    assert proposals(SOURCE_RECIPE) == proposals(SOURCE_RECIPE)


def test_what_does_not_apply_gives_nothing() -> None:
    nowhere = SOURCE_RECIPE.model_copy(update={"techniques": ("split_k",), "settings": ()})
    assert proposals(nowhere) == []
    assert FollowRecipe(default_operators(), []).propose([parent_of(SOFTMAX)], random.Random(0)) is None


def test_a_tile_that_its_threads_cannot_hold_is_left_out() -> None:
    huge = (
        Setting(kernel=0, kind="tile", shape="row", value=65536),
        Setting(kernel=0, kind="num_warps", value=1),
    )
    source = SOURCES["bias_gelu"]
    followed = with_settings(parent_of(source), huge)
    assert "65536" not in followed.source


def test_settings_carry_over_to_a_relative() -> None:
    """What is read off one program and set in another stands there."""
    fast = with_settings(parent_of(SOFTMAX), [Setting(kernel=0, kind="num_warps", value=8)])
    assert fast.done == ("num_warps 8",)
    read = settings_of(parent_of(fast.source))
    assert Setting(kernel=0, kind="num_warps", value=8) in read
    other = with_settings(parent_of(SOURCES["bias_gelu"]), read)
    assert warps(other.source)[0] == "8"


def test_settings_of_a_program_with_other_kernels_are_left_out() -> None:
    of_two = [Setting(kernel=k, kind="num_warps", value=8) for k in (0, 1)]
    assert with_settings(parent_of(SOFTMAX), of_two).done == ()


def test_what_gained_more_is_expected_to_gain_more() -> None:
    small, large = (SOURCE_RECIPE.model_copy(update={"octaves": octaves}) for octaves in (0.1, 0.6))
    priors = [FollowRecipe([], recipes).prior for recipes in ([small], [small, large], [large], [])]
    naive = SOURCE_RECIPE.model_copy(update={"octaves": 6.0})  # its search began with a program 64 times slower
    assert FollowRecipe([], [naive]).prior == pytest.approx(1.6)
    assert priors == [pytest.approx(0.08), pytest.approx(0.8 * 0.37 / 0.7), pytest.approx(0.48), 0.0]


def test_what_is_expected_of_a_recipe_is_what_those_for_the_kind_of_kernel_gained() -> None:
    scan, product, unknown = (
        SOURCE_RECIPE.model_copy(
            update={"octaves": octaves, "state": f"dram_bandwidth/-/-/{kind}/sm_90" if kind else ""}
        )
        for octaves, kind in ((0.1, "scan"), (2.0, "matmul"), (0.5, ""))
    )
    known = FollowRecipe([], [scan, product])
    assert known.kind_priors == {"scan": pytest.approx(0.08), "matmul": pytest.approx(1.6)}
    assert known.prior == pytest.approx(0.8 * 4.01 / 2.1)
    assert FollowRecipe([], [scan, unknown]).kind_priors == {"scan": pytest.approx(0.8 * 0.26 / 0.6)}  # both are drawn
    settings = IslandSettings(operator_choice="knowledge")
    base = KnowledgeBase({known.name: known}, settings)
    said = {kind: base.predict(Situation(f"dram_bandwidth/-/-/{kind}/sm_90"), known.name) for kind in KINDS}
    assert said["scan"] < 0.1 < 1.0 < said["reduction"] < said["matmul"]  # of reductions nothing is known


def test_what_a_recipe_did_is_taken_apart_again() -> None:
    steps = [
        ("retune", "num_warps of k 4 -> 8, BLOCK of k 64 -> 128"),
        ("one_pass", "n of k in one tile"),
        ("recipe", "as mine: rms_norm: defer_reduction, exp2, num_warps 16, BLOCK 8192"),
        ("crossover", "k/num_warps of abc"),
    ]
    assert techniques_of(steps) == ("one_pass", "defer_reduction", "exp2")


def test_kinds_of_kernels_keep_apart() -> None:
    of_a_product = SOURCE_RECIPE.model_copy(update={"state": "dram_bandwidth/-/-/matmul/sm_90"})
    of_a_reduction = SOURCE_RECIPE.model_copy(update={"state": "dram_bandwidth/-/-/reduction/sm_90"})
    state = PerformanceState.parse("dram_bandwidth/memory_latency/-/reduction/sm_90")
    report = BottleneckReport(tier=Tier.MEMORY_BOUND, source="compiled", state=state, limit="its bandwidth")
    parent = parent_of(SOFTMAX)
    parent = parent._replace(verdict=parent.verdict.model_copy(update={"bottleneck": report}))
    for recipe, follows in ((of_a_product, False), (of_a_reduction, True), (SOURCE_RECIPE, True)):
        operator = FollowRecipe(default_operators(), [recipe])
        assert (operator.propose([parent], random.Random(0)) is not None) is follows
