"""The table over many modules: every one once, what is known is kept, and what the papers print of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.evolving import evolve

from db.errors import ConfigError, ProblemError
from evaluators.decomposition.classify import ModelOutcome, ModelResult, RootCause
from evaluators.problems import load_problem
from evolve.cli.bench import ending_of, row_values, summary_lines
from evolve.config import RunConfig, make_config
from evolve.models.bench import bench, modules_of
from evolve.models.dominant import Operation
from evolve.models.output import write_model
from evolve.models.places import place_of, places_named
from evolve.models.records import ModelRun
from evolve.models.table import BenchTable, as_values
from tests.support.decompositions import decomposition_of, module_text

RESULTS = {
    "fast": ModelResult(outcome=ModelOutcome.OPTIMIZED, speedup=2.0),
    "faster": ModelResult(outcome=ModelOutcome.OPTIMIZED, speedup=1.15),
    "equal": ModelResult(outcome=ModelOutcome.MATCHED, speedup=1.02),
    "products": ModelResult(outcome=ModelOutcome.FALLBACK, speedup=1.0, cause=RootCause.GEMM, reason="99% in mm"),
}


class Improving:
    """Ends every module as `RESULTS` says, on disk as well, and notes which it was asked for."""

    def __init__(self, interrupted: str = "") -> None:
        self.asked: list[RunConfig] = []
        self._interrupted = interrupted

    def __call__(self, config: RunConfig) -> ModelRun:
        self.asked.append(config)
        name = Path(config.problem).stem
        if name not in RESULTS:
            raise ProblemError(f"{name} has no Model", "add one")
        ended = ModelRun(
            problem_name=name,
            result=RESULTS[name],
            problem_id=load_problem(config.problem).problem_id,
            decomposition=decomposition_of("lstm"),
            is_interrupted=name == self._interrupted,
        )
        return write_model(ended, Path("no.duckdb"), Path(config.out))

    @property
    def names(self) -> list[str]:
        return [Path(config.problem).stem for config in self.asked]


@pytest.fixture
def modules(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "modules"
    folder.mkdir()
    for name in [*RESULTS, "broken"]:
        (folder / f"{name}.py").write_text("" if name == "broken" else module_text(name))
    return modules_of([folder])


def run(modules: list[Path], improving: Improving, tmp_path: Path) -> BenchTable:
    return bench(modules, make_config({"problem": "x", "evaluations": 30}), improving, folder=tmp_path / "out")


def test_the_table_counts_what_the_papers_count(modules: list[Path], tmp_path: Path) -> None:
    table = run(modules, Improving(), tmp_path)
    assert [row.module for row in table.rows] == ["broken", "equal", "fast", "faster", "products"]
    figures = table.classes[0].all
    assert figures.outcomes["optimized"].n == 2 and table.n_errors == figures.n_errors == 1
    assert figures.delivered is not None and figures.optimized is not None
    geomean = (2.0 * 1.15) ** (1 / 4)  # the baseline counts as 1, what has none not at all
    assert figures.delivered.geomean == pytest.approx(geomean)
    assert figures.optimized.geomean == pytest.approx((2.0 * 1.15) ** 0.5)
    assert figures.fast_p == {"1": 0.4, "1.1": 0.4, "1.2": 0.2, "1.5": 0.2, "2": 0.0}
    assert {cause: found.n for cause, found in figures.causes.items()} == {"GEMM-dominant": 1}
    assert {row.dominant for row in table.rows if not row.error} == {Operation.RNN}


def test_what_is_known_is_not_run_again_and_what_failed_is(modules: list[Path], tmp_path: Path) -> None:
    first, again = Improving(), Improving()
    before, after = run(modules, first, tmp_path), run(modules, again, tmp_path)
    assert len(first.asked) == 5 and again.names == ["broken"]
    assert [row.speedup for row in after.rows] == [row.speedup for row in before.rows]
    assert {config.parts for config in first.asked} == {"always"} and first.asked[0].evaluations == 30


def test_a_result_is_known_by_what_its_module_asks(tmp_path: Path) -> None:
    """Not by its name: another module that has it, or a later text of the same one, is run and keeps its own result."""
    out = tmp_path / "out"
    places = [tmp_path / folder / "fast.py" for folder in ("a", "b")]
    for place in places:
        place.parent.mkdir()
        place.write_text(module_text(place.parent.name))
    for place in places:
        assert run([place], first := Improving(), tmp_path).rows[0].is_known is False and first.names == ["fast"]
    for place in places:
        assert run([place], again := Improving(), tmp_path).rows[0].is_known and again.names == []
    assert len(list(out.glob("fast*/summary.json"))) == 2
    places[0].write_text(places[0].read_text() + "\n# a remark\n")
    assert run(places[:1], Improving(), tmp_path).rows[0].is_known
    places[0].write_text(module_text("another"))
    assert not run(places[:1], Improving(), tmp_path).rows[0].is_known
    assert len(list(out.glob("fast*/summary.json"))) == 3
    places[0].write_text("no problem any more")
    assert not run(places[:1], Improving(), tmp_path).rows[0].is_known


def test_the_result_of_a_module_at_other_sizes_is_another(tmp_path: Path) -> None:
    module = tmp_path / "fast.py"
    module.write_text(module_text("a"))
    places = [place_of(module, tmp_path / "out", shapes) for shapes in ({}, {"n": 64})]
    assert places[0] == places[1] == tmp_path / "out" / "fast"  # nothing is there yet
    run([module], Improving(), tmp_path)
    assert place_of(module, tmp_path / "out", {}) == places[0]
    other = place_of(module, tmp_path / "out", {"n": 64})
    assert other != places[0] and places_named("fast", tmp_path / "out") == [places[0]]
    for name in (other.name, "fast-forward"):
        (tmp_path / "out" / name).mkdir()
    assert places_named("fast", tmp_path / "out") == [places[0], other]


def test_an_interrupt_ends_it_and_that_module_is_tried_again(modules: list[Path], tmp_path: Path) -> None:
    first, again = Improving(interrupted="equal"), Improving()
    assert [row.module for row in run(modules, first, tmp_path).rows] == ["broken", "equal"]
    run(modules, again, tmp_path)
    assert again.names == ["broken", "equal", "fast", "faster", "products"]


def test_people_and_scripts_read_the_same(modules: list[Path], tmp_path: Path) -> None:
    table = run(modules, Improving(), tmp_path)
    lines = summary_lines(table)
    outcomes = "2 optimized (40%), 1 matched (20%), 0 matched (synthesis failed) (0%), 1 fallback (20%), 1 could not"
    assert lines[0] == "reference precision" and lines[1].startswith(f"5 modules: {outcomes}")
    assert lines[3] == "geometric mean 1.23x over all, 1.52x over the optimized"
    assert row_values(table.rows[0]) == {
        **dict.fromkeys(["cause", "speedup"], ""),
        **{"module": "broken", "outcome": "error", "parts": "0 of 0", "took": "0s", "reason": "broken has no Model"},
    }
    values = json.loads(json.dumps(as_values(table)))
    assert values["precision"]["reference"]["all"]["fast_p"] == {"1": 0.4, "1.1": 0.4, "1.2": 0.2, "1.5": 0.2, "2": 0.0}
    assert values["errors"] == 1 and [row["module"] for row in values["modules"]] == [r.module for r in table.rows]


def test_places_without_a_module_and_two_of_one_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no module"):
        modules_of([tmp_path])
    with pytest.raises(ConfigError, match="holds no module"):
        modules_of([tmp_path / "none.py"])
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "one.py").write_text("")
    with pytest.raises(ConfigError, match="two modules are called one"):
        modules_of([tmp_path / "a", tmp_path / "b"])


def test_an_interrupted_sitting_says_how_to_go_on_also_after_its_last_module(
    modules: list[Path], tmp_path: Path
) -> None:
    cut = run(modules, Improving(interrupted="equal"), tmp_path)
    goes_on = "the same command goes on where this one stopped"
    assert ending_of(cut, 5) == (130, f"interrupted with 5 of 5 modules left: {goes_on}")  # one could not be run
    last = run(modules, Improving(interrupted="products"), tmp_path)
    assert len(last.rows) == 5 and last.is_interrupted
    assert ending_of(last, 5) == (130, f"interrupted with 2 of 5 modules left: {goes_on}")
    assert ending_of(run(modules, Improving(), tmp_path), 5) == (1, "")
    assert ending_of(run(modules[1:], Improving(), tmp_path), 4) == (0, "")


def test_the_table_of_what_is_known_needs_no_gpu(tmp_path: Path) -> None:
    """And options of language models, knowledge and earlier archives are those of a run."""
    (tmp_path / "fast.py").write_text(module_text("fast"))
    run([tmp_path / "fast.py"], Improving(), tmp_path)
    options = ("--out", "out", "--set", "device=cpu", "--model", "openai/any", "--knowledge", "none")
    known = evolve("bench", "fast.py", *options, "--seed-from", "lab.duckdb", cwd=tmp_path)
    assert known.code == 0 and "optimized" in known.out and "torch 2.11.0+cu130" in known.out
    assert '<a href="fast/report.html">fast</a>' in (tmp_path / "out" / "bench.html").read_text()
    (tmp_path / "other.py").write_text(module_text("other"))
    more = evolve("bench", "fast.py", "other.py", *options, cwd=tmp_path)
    assert more.code == 2 and "needs a GPU" in more.complaint[0]


def test_without_a_gpu_it_says_so_at_once(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("")
    ended = evolve("bench", "one.py", "--set", "device=cpu", cwd=tmp_path)
    assert ended.code == 2 and "needs a GPU" in ended.complaint[0]
    assert [path.name for path in tmp_path.iterdir()] == ["one.py"]
    budgeted = evolve("bench", "one.py", "--budget", "2m", "--set", "device=cpu", cwd=tmp_path)
    assert budgeted.code == 2 and "needs a GPU" in budgeted.complaint[0]
