"""What a run starts from: its programs, or nothing where a language model is there to write the first."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.runs import make_problem, make_run, one_evaluation

from db.errors import SeedError
from evolve.config import RunConfig
from evolve.seeding import as_it_began, collect_seeds, with_seeds
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
