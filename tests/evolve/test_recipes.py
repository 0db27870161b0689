"""Recipes come out of archives, go into files, and are followed by islands that know them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.runs import make_problem, make_run, one_evaluation

from db.archive import ProgramArchive
from db.recipes import Recipe, Setting
from db.records import Evaluation, LatencyKind, PrecisionClass
from evolve.config import make_config
from evolve.knowledge import Knowledge, collect_knowledge, write_knowledge
from evolve.recipes import recipes_in

SEED = "import triton\n# first\n"


@pytest.fixture
def archive(tmp_path: Path) -> ProgramArchive:
    return ProgramArchive.open(tmp_path / "evolve.duckdb")


REFERENCE, RELAXED = PrecisionClass.REFERENCE, PrecisionClass.RELAXED


def filled(
    archive: ProgramArchive, *latencies_us: float, precision: PrecisionClass = REFERENCE, run_id: str = "r1a2b3c4"
) -> list[Evaluation]:
    """A chain of programs: a seed, and a technique for each latency after it."""
    problem = make_problem()
    run = make_run(problem, run_id=run_id).model_copy(update={"precision": precision})
    archive.add_problem(problem)
    archive.add_run(run)
    chain: list[Evaluation] = []
    for n, us in enumerate(latencies_us):
        technique = ("", "one_pass", "retune", "exp2")[n % 4]
        made = one_evaluation(problem, run, n, us, technique=technique, parents=chain[-1:], precision=precision)
        chain.append(made)
    archive.insert(chain)
    return chain


def test_the_fastest_programs_say_how_they_came_about(archive: ProgramArchive) -> None:
    filled(archive, 100.0, 80.0, 60.0, 50.0)
    best = recipes_in(archive)[0]
    assert best.techniques == ("one_pass", "exp2")  # a retune shows in the settings
    assert best.octaves == pytest.approx(1.0)
    assert best.at_s > 0


def test_what_gained_little_is_no_recipe(archive: ProgramArchive) -> None:
    filled(archive, 100.0, 97.0)
    assert recipes_in(archive) == []


def test_a_program_of_several_problems_is_held_against_its_latency_at_the_same_one(archive: ProgramArchive) -> None:
    wide, narrow = make_problem(dim=65536), make_problem(dim=1024)
    runs = [make_run(wide), make_run(narrow, run_id="s1a2b3c4")]
    seed = one_evaluation(wide, runs[0], 0, 100.0, source="SEED = 1")
    again = one_evaluation(narrow, runs[1], 0, 10.0, source="SEED = 1")
    faster = one_evaluation(narrow, runs[1], 1, 5.0, technique="one_pass", parents=[again])
    for problem, run in zip((wide, narrow), runs, strict=True):
        archive.add_problem(problem)
        archive.add_run(run)
    archive.insert([seed, again, faster])
    assert [(r.techniques, r.octaves) for r in recipes_in(archive)] == [(("one_pass",), 1.0)]


def test_a_kind_of_latency_can_be_asked_for(archive: ProgramArchive) -> None:
    filled(archive, 100.0, 50.0)
    assert recipes_in(archive, latency_kind=LatencyKind.MODELLED) == []
    assert recipes_in(archive, latency_kind=LatencyKind.MEASURED) == recipes_in(archive)


def test_a_recipe_says_of_which_precision_class_its_winner_is(archive: ProgramArchive) -> None:
    """And what it gained is told within that class: the same programs may take other times under other flags."""
    filled(archive, 100.0, 80.0)
    filled(archive, 50.0, 25.0, precision=RELAXED, run_id="r2a2b3c4")
    found = {recipe.precision: (recipe.techniques, recipe.octaves) for recipe in recipes_in(archive)}
    assert found == {REFERENCE: (("one_pass",), pytest.approx(0.3219, abs=1e-4)), RELAXED: (("one_pass",), 1.0)}


@pytest.mark.parametrize(("asked", "followed"), [(REFERENCE, {REFERENCE}), (RELAXED, {REFERENCE, RELAXED})])
@pytest.mark.parametrize("place", ["archive", "file"])
def test_what_only_relaxed_precision_allowed_leads_no_run_that_asks_for_the_reference(
    archive: ProgramArchive, tmp_path: Path, place: str, asked: PrecisionClass, followed: set[PrecisionClass]
) -> None:
    filled(archive, 100.0, 80.0)
    filled(archive, 50.0, 25.0, precision=RELAXED, run_id="r2a2b3c4")
    options = {"archive": str(archive.path), "precision": asked.value}
    if place == "file":
        write_knowledge(Knowledge([], recipes_in(archive)), tmp_path / "known.json")
        options["knowledge"] = str(tmp_path / "known.json")
    archive.close()
    known = collect_knowledge(make_config({"problem": "other", **options}), "other", LatencyKind.MEASURED, 2e9)
    assert {recipe.precision for recipe in known.recipes} == followed


def test_a_gain_that_is_no_number_is_no_recipe() -> None:
    for octaves in (float("inf"), float("nan"), 1e300, 1e-300, 0.0):
        with pytest.raises(ValueError, match="octaves"):
            Recipe(problem="softmax", latency_kind="measured", hardware_id="h", octaves=octaves)


def test_a_problem_can_be_left_out_and_so_can_what_came_later(archive: ProgramArchive) -> None:
    chain = filled(archive, 100.0, 50.0)
    assert recipes_in(archive, without=[make_problem().name]) == []
    assert recipes_in(archive, until_s=chain[0].created_at) == []


def test_imported_recipes_take_the_place_of_those_of_the_same_file(archive: ProgramArchive) -> None:
    one = Recipe(
        problem="rms_norm",
        latency_kind="measured",
        hardware_id="nvidia-h200",
        settings=(Setting(kernel=0, kind="tile", shape="row", value=4096),),
        octaves=0.4,
    )
    archive.import_knowledge([], "file.json", [one, one])
    archive.import_knowledge([], "file.json", [one])
    assert recipes_in(archive) == [one]
    assert recipes_in(archive, with_imported=False) == []
    assert recipes_in(archive, until_s=1.0) == []
