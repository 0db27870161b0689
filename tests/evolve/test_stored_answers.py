"""The stored answers of `benchmarks.llm_operators`: every one makes a program, and prompts find theirs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks.scripted_model import Turn
from benchmarks.stored_answers import CASES, FOLDER, NOTHING, Case, StoredAnswers, read_prompt
from evaluators.problems import load_problem, read_seed
from islands.llm.answers import read_answer
from islands.llm.plans import read_plans
from islands.llm.refusals import Answer, Refusal
from islands.prompts import render
from tests.support.prompt_facts import facts_for

ANSWERS = sorted((FOLDER / "answers").glob("*.txt"))
OPERATORS = ("mutate", "crossover", "plan", "execute", "fuse", "synthesize")


def made_of(path: Path) -> Answer | Refusal:
    """The program that an answer makes of the problem's first one, or of the answer that a gate refused."""
    problem, operator, _ = path.stem.split(".")
    seeds = load_problem(next(case.source for case in CASES if case.problem == problem)).seeds
    base = seeds[0] if seeds else ""
    if operator == "repair":
        refused = made_of(FOLDER / "answers" / f"{problem}.mutate.1.txt")
        assert isinstance(refused, Answer)
        base = refused.source
    return read_answer(path.read_text(), base, entry_point="ModelNew")


@pytest.mark.parametrize("path", [path for path in ANSWERS if ".plan." not in path.name], ids=lambda path: path.stem)
def test_every_stored_answer_makes_a_program(path: Path) -> None:
    made = made_of(path)
    assert isinstance(made, Answer), made
    assert ast.parse(made.source)


def test_stored_plans_are_as_many_as_can_be_carried_out() -> None:
    plans = read_plans((FOLDER / "answers" / "long_row_max.plan.1.txt").read_text(), 4)
    assert not isinstance(plans, Refusal)
    assert len(plans) == len(list((FOLDER / "answers").glob("long_row_max.execute.*.txt")))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.operator)
def test_every_operator_has_a_problem_with_an_answer(case: Case) -> None:
    assert list((FOLDER / "answers").glob(f"{case.problem}.{case.operator}.1.txt"))
    assert bool(load_problem(case.source).seeds) is (case.operator != "synthesize")
    for seed in case.seeds:
        assert read_seed(FOLDER / "seeds" / seed, load_problem(case.source).entry_point)


def turns_of(name: str) -> list[Turn]:
    return [Turn(one.role, one.content) for one in render(name, facts_for(name), 10**6).messages]


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_prompt_says_its_operator_its_problem_and_its_figures(operator: str) -> None:
    n_parents = {"crossover": 2, "synthesize": 0}.get(operator, 1)
    prompt = read_prompt(turns_of(operator))
    assert (prompt.problem, prompt.operator, prompt.is_again) == ("softmax", operator, False)
    assert prompt.n_counted == len(prompt.figures) == n_parents
    assert all(len(lines) > 5 for lines in prompt.figures)


def test_a_conversation_that_goes_on_is_told_from_one_that_begins() -> None:
    begun = turns_of("mutate")
    repaired = read_prompt([*begun, Turn("assistant", "a program"), *turns_of("repair")])
    assert (repaired.operator, repaired.is_again) == ("repair", False)
    assert read_prompt([*begun, Turn("assistant", "blocks"), *turns_of("refused")]).is_again
    assert not read_prompt([*begun, Turn("assistant", NOTHING), *turns_of("refused")]).is_again


def test_an_answer_waits_for_counters_and_is_given_once() -> None:
    turns = [turn._replace(content=turn.content.replace("# Problem: softmax", "# Problem: scaled_transpose"))
             for turn in turns_of("mutate")]  # fmt: skip
    modelled = [turn._replace(content=turn.content.replace("read by Nsight Compute", "modelled")) for turn in turns]
    patient = StoredAnswers(counters_within_s=60.0)
    assert patient(modelled).text == NOTHING
    assert "tile_kernel" in patient(turns).text
    assert patient(turns).text == NOTHING
    assert len(patient.prompts) == 2
    assert "tile_kernel" in StoredAnswers(counters_within_s=0.0)(modelled).text
