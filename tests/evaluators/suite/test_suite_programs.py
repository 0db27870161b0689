"""Under the interpreter every seed of the suite is right and every mutant is refused, by plain comparison."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evaluators.problems import mutants, suite_names, suite_problem

Report = dict[str, dict[str, list[float]]]


@pytest.fixture(scope="module")
def report() -> Report:
    """Error over tolerance of every program and drawing, from one interpreting process."""
    script = Path(__file__).with_name("interpreted_suite.py")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=240,
        check=True,
    )
    found: Report = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", suite_names())
def test_the_seed_is_right_with_room_to_spare(report: Report, name: str) -> None:
    assert max(report[name]["seed"]) < 0.5, "errors as a share of the tolerance, by drawing"


@pytest.mark.parametrize("name", suite_names())
def test_no_mutant_passes_the_three_seeds(report: Report, name: str) -> None:
    wrong = {mutant: max(shares) for mutant, shares in report[name].items() if mutant != "seed"}
    assert wrong.keys() == mutants(suite_problem(name)).keys()
    assert {mutant for mutant, share in wrong.items() if share <= 1.0} == set()
