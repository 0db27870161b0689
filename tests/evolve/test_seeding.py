"""What a run starts from: its programs, or nothing where a language model is there to write the first."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.runs import make_problem, make_run, one_evaluation

from db.errors import SeedError
from evolve.config import RunConfig
from evolve.seeding import as_it_began, collect_seeds, seeds_again, with_seeds, with_what_is_there
from islands.seed import Seed

PROBLEM = make_problem()
BARE = PROBLEM.model_copy(update={"seeds": ()})


def config(**values: object) -> RunConfig:
    return RunConfig.model_validate({"problem": "mine.py", **values})


def test_nothing_is_enough_where_a_language_model_may_write() -> None:
    assert collect_seeds(config(models=("openai/gpt-4o",)), BARE) == []
    assert collect_seeds(config(llm={"replay": "answers.jsonl"}), BARE) == []
    with pytest.raises(SeedError) as caught:
        collect_seeds(config(), BARE)
    for way in ("--seed-program FILE", "--seed-from ARCHIVE", "--model provider/name"):
        assert way in caught.value.hint


def test_a_program_is_started_from_whoever_else_may_write(tmp_path: Path) -> None:
    (tmp_path / "seed.py").write_text(PROBLEM.seeds[0])
    given = config(models=("openai/gpt-4o",), seed_programs=(str(tmp_path / "seed.py"),))
    (seed,) = collect_seeds(given, BARE)
    assert seed.source == PROBLEM.seeds[0] and with_seeds(BARE, [seed]).seeds == PROBLEM.seeds


def test_a_problem_keeps_the_seeds_that_it_has() -> None:
    assert with_seeds(PROBLEM, [Seed(source="other = 1")]) == PROBLEM
    assert with_seeds(BARE, []).seeds == ()


def test_a_run_that_began_without_a_program_is_resumed_without() -> None:
    run = make_run(PROBLEM)
    first, later = one_evaluation(PROBLEM, run, 0, 50.0, operator="synthesize"), one_evaluation(PROBLEM, run, 1, 50.0)
    assert as_it_began(PROBLEM, [first, later]).seeds == ()
    assert as_it_began(PROBLEM, [later, first]) == as_it_began(PROBLEM, []) == PROBLEM


def test_a_run_is_resumed_where_its_files_are_gone(tmp_path: Path) -> None:
    """On another machine: its first programs are in its archive, what it knew before need not be."""
    here = tmp_path / "seed.py"
    here.write_text(PROBLEM.seeds[0])
    given = config(seed_programs=(str(here), "gone.py"), seed_from=("gone.duckdb",), knowledge="gone.json")
    left, gone = with_what_is_there(given)
    assert gone == ["gone.duckdb", "gone.py", "gone.json"]
    assert left == given.model_copy(update={"seed_programs": (str(here),), "seed_from": (), "knowledge": "archive"})
    assert with_what_is_there(left) == (left, [])

    run = make_run(BARE)
    first = one_evaluation(BARE, run, 0, 50.0, operator="seed")
    again = seeds_again(config(), BARE, [first, one_evaluation(BARE, run, 1, 40.0, operator="retune")])
    assert [seed.source for seed in again] == [first.candidate.source]
    assert {seed.source for seed in seeds_again(left, BARE, [first])} == {first.candidate.source, PROBLEM.seeds[0]}
    with pytest.raises(SeedError):
        seeds_again(config(), BARE, [])
