"""Several modules at once: who runs when and on which GPU, what becomes of those that fail, and one archive at the end.

The processes are real; most of them are stand-ins for `evolve run`, which needs a GPU.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from db.archive import ProgramArchive
from db.errors import ConfigError
from db.profile import Bottleneck
from db.reflections import LearntTechnique, Lesson, Reflection
from evaluators.decomposition.classify import ModelOutcome, ModelResult
from evaluators.problems import load_problem
from evolve.config import RunConfig, load_config, make_config
from evolve.models.bench import known_row
from evolve.models.fleet import CONFIG, Seat, bench_side_by_side
from evolve.models.merging import merge_archives
from evolve.models.order import in_order_of_gain
from evolve.models.output import summary_of
from evolve.models.records import ModelRun
from evolve.models.rows import BenchRow
from evolve.models.sitting import bench_here, seats_of, visible_gpus
from tests.support.decompositions import decomposition_of, module_text
from tests.support.runs import make_problem, make_run, one_evaluation

STAND_IN = str(Path(__file__).parents[1] / "support" / "module_stand_in.py")
TWO = [Seat("0", 4), Seat("1", 4)]


def stand_in(module: Path, place: Path) -> list[str]:
    return [sys.executable, STAND_IN, str(module), str(place)]


def summary(module: Path, decomposition: str = "lstm", **more: Any) -> str:
    result = ModelResult(outcome=ModelOutcome.OPTIMIZED, speedup=1.5)
    names = {"problem_name": module.stem, "problem_id": load_problem(str(module)).problem_id}
    ended = ModelRun(**names, result=result, decomposition=decomposition_of(decomposition), **more)
    return json.dumps(summary_of(ended))


def modules_in(folder: Path, *names: str, failing: tuple[str, ...] = ()) -> list[Path]:
    for name in names:
        module = folder / f"{name}.py"
        module.write_text("" if name in failing else module_text(name))
        if name not in failing:
            module.with_suffix(".json").write_text(summary(module))
    return [folder / f"{name}.py" for name in names]


def config_in(folder: Path) -> RunConfig:
    return make_config({"problem": "x", "device": "cpu", "archive": str(folder / "all.duckdb"), "evaluations": 30})


def begun(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "begun.jsonl").read_text().splitlines()]


def test_each_gpu_has_one_module_at_a_time_and_none_waits_for_another(tmp_path: Path) -> None:
    modules = modules_in(tmp_path, "a", "b", "c", "d", "e")
    out, told = tmp_path / "out", []
    start = time.monotonic()
    rows = bench_side_by_side(
        modules,
        config_in(tmp_path),
        TWO,
        folder=out,
        on_begin=lambda m, s: told.append((m.stem, s.gpus)),
        command=stand_in,
    )
    assert time.monotonic() - start < 4.0  # one after the other: more than 2.0 s of sleep alone
    assert {row.module: row.speedup for row in rows} == dict.fromkeys("abcde", 1.5)
    assert [name for name, _ in told] == ["a", "b", "c", "d", "e"]
    entries = begun(out)
    assert dict(told) == {entry["module"]: entry["gpus"] for entry in entries}
    for gpu in ("0", "1"):
        spans = sorted((entry["began"], entry["ended"]) for entry in entries if entry["gpus"] == gpu)
        assert len(spans) >= 2 and all(one[1] <= other[0] for one, other in itertools.pairwise(spans))
    first, second = sorted((entry["began"], entry["ended"]) for entry in entries)[:2]
    assert second[0] < first[1], "two at once"


def test_a_module_that_fails_is_a_row_and_the_next_one_runs(tmp_path: Path) -> None:
    modules = modules_in(tmp_path, "broken", "crashes", "surprises", "fine", failing=("broken",))
    rows = bench_side_by_side(modules, config_in(tmp_path), TWO[:1], folder=tmp_path / "out", command=stand_in)
    assert [(row.module, row.error) for row in rows] == [
        ("broken", "broken has no Model"),
        ("crashes", "killed by signal 9"),
        ("surprises", "its process ended with 70: KeyError: 'buf7'"),
        ("fine", ""),
    ]


def test_the_command_itself_says_why_a_module_cannot_be_run(tmp_path: Path) -> None:
    """`evolve run`, on a machine without a GPU, with the configuration that it was given."""
    modules = modules_in(tmp_path, "one")
    modules[0].write_text("import torch\n")
    ProgramArchive.open(tmp_path / "all.duckdb").close()
    (row,) = bench_side_by_side(modules, config_in(tmp_path), TWO[:1], folder=tmp_path / "out")
    assert row.outcome is None and "one.py" in row.error and "Model" in row.error
    own = load_config("x", file=tmp_path / "out" / "one" / CONFIG)
    assert (own.evaluations, own.cluster.n_preparers, own.cluster.n_island_processes) == (30, 1, 2)
    assert own.archive == str(tmp_path / "out" / "one" / "archive.duckdb")
    assert own.seed_from == (str(tmp_path / "all.duckdb"),)


@pytest.mark.parametrize(("wanted", "own"), [(8, 2), (1, 1), (0, 0)])
def test_a_process_has_no_more_evaluators_than_gpus(tmp_path: Path, wanted: int, own: int) -> None:
    config = config_in(tmp_path)
    config = config.model_copy(update={"cluster": config.cluster.model_copy(update={"n_evaluators": wanted})})
    modules = modules_in(tmp_path, "broken", failing=("broken",))
    bench_side_by_side(modules, config, [Seat("0,3", 4)], folder=tmp_path / "out", command=stand_in)
    assert load_config("x", file=tmp_path / "out" / "broken" / CONFIG).cluster.n_evaluators == own


def test_an_interrupt_reaches_every_process_and_their_modules_are_tried_again(tmp_path: Path) -> None:
    modules = modules_in(tmp_path, "fine", "waits", "waits_too", "never")
    out = tmp_path / "out"

    def interrupt() -> None:
        while not all((out / name / "waiting").exists() for name in ("waits", "waits_too")):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    threading.Thread(target=interrupt, daemon=True).start()
    rows = bench_side_by_side(modules, config_in(tmp_path), TWO, folder=out, command=stand_in)
    assert [row.module for row in rows] == ["fine"] and not (out / "never").exists()
    assert signal.getsignal(signal.SIGINT) is before


KILLED = """
from pathlib import Path
from evolve.config import make_config
from evolve.models.fleet import Seat, bench_side_by_side
from tests.evolve.test_fleet import stand_in
folder = Path.cwd()
config = make_config({"problem": "x", "archive": str(folder / "all.duckdb")})
bench_side_by_side([folder / "waits.py"], config, [Seat("0", 4)], folder=folder / "out", command=stand_in)
"""


def test_where_the_command_is_killed_its_processes_end_too(tmp_path: Path) -> None:
    modules_in(tmp_path, "waits")
    note = tmp_path / "out" / "waits" / "waiting"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen([sys.executable, "-c", KILLED], cwd=tmp_path, env=environment) as command:
        assert happens(lambda: note.exists() and note.read_text() != "")
        command.kill()
    assert happens(lambda: not is_alive(int(note.read_text())))


def happens(condition: Callable[[], bool], limit_s: float = 20.0) -> bool:
    deadline = time.monotonic() + limit_s
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def is_alive(pid: int) -> bool:
    """Whether it runs; what has ended and waits for its parent to look does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_the_processes_found_goes_into_one_archive(tmp_path: Path) -> None:
    modules = modules_in(tmp_path, "a", "b")
    problem, out = make_problem(), tmp_path / "out"
    for name, latency_us in (("a", 50.0), ("b", 40.0)):
        run = make_run(problem).model_copy(update={"run_id": f"run-{name}"})
        (out / name).mkdir(parents=True)
        with ProgramArchive.open(out / name / "archive.duckdb") as archive:
            archive.add_problem(problem)
            archive.add_run(run)
            archive.insert([one_evaluation(problem, run, 1, latency_us)])
    bench_side_by_side(modules, config_in(tmp_path), TWO, folder=out, command=stand_in)
    with ProgramArchive.open(tmp_path / "all.duckdb", read_only=True) as merged:
        assert {run.run_id for run in merged.runs()} == {"run-a", "run-b"}
        found = [e.verdict.latency for run in merged.runs() for e in merged.evaluations(run.run_id)]
        assert sorted(latency.device_us for latency in found if latency) == [40.0, 50.0]
    assert not (out / "a" / "archive.duckdb").exists()
    again = merge_archives([tmp_path / "all.duckdb"], tmp_path / "other.duckdb")
    assert (again, merge_archives([tmp_path / "all.duckdb"], tmp_path / "other.duckdb")) == (2, 0)


def test_what_language_models_learnt_goes_along(tmp_path: Path) -> None:
    problem, run = make_problem(), make_run(make_problem())
    told = {"run_id": run.run_id, "created_at": 1.0}
    lessons = tuple(
        Lesson(island=island, position=n, text=f"{island} {n}", **told) for island in (0, 1) for n in (0, 1)
    )
    technique = LearntTechnique(name="a", changes="c", instruction="i", addresses=(Bottleneck.SPILLS,), **told)
    with ProgramArchive.open(tmp_path / "one.duckdb") as archive:
        archive.add_problem(problem)
        archive.add_run(run)
        for island in (0, 1):
            own = tuple(lesson for lesson in lessons if lesson.island == island)
            archive.add_reflection(
                Reflection(run_id=run.run_id, island=island, lessons=own, techniques=(technique,) * island)
            )
    for _ in range(2):
        merge_archives([tmp_path / "one.duckdb"], tmp_path / "all.duckdb")
    with ProgramArchive.open(tmp_path / "all.duckdb", read_only=True) as merged:
        assert {(one.island, one.position, one.text) for one in merged.lessons()} == {
            (one.island, one.position, one.text) for one in lessons
        }
        assert merged.learnt_techniques() == [technique]


def test_what_a_killed_sitting_left_goes_into_the_archive_too(tmp_path: Path) -> None:
    """Its first module had ended, so that no process runs for it again."""
    modules, out = modules_in(tmp_path, "known"), tmp_path / "out"
    problem, run = make_problem(), make_run(make_problem())
    (out / "known").mkdir(parents=True)
    (out / "known" / "summary.json").write_text(summary(modules[0]))
    with ProgramArchive.open(out / "known" / "archive.duckdb") as archive:
        archive.add_problem(problem)
        archive.add_run(run)
        archive.insert([one_evaluation(problem, run, 1, 50.0)])

    def improve(config: RunConfig) -> ModelRun:
        raise AssertionError("it is known")

    bench_here(modules, config_in(tmp_path), improve, folder=out)
    with ProgramArchive.open(tmp_path / "all.duckdb", read_only=True) as merged:
        assert len(merged.evaluations(run.run_id)) == 1
    assert list((out / "known").glob("*.duckdb*")) == []


def test_a_summary_that_does_not_say_how_it_ended_is_none(tmp_path: Path) -> None:
    (module,) = modules_in(tmp_path, "a")
    (tmp_path / "summary.json").write_text(summary(module).replace('"is_interrupted"', '"something"'))
    assert known_row(module, tmp_path) is None


def test_gpus_and_cores_are_shared_out_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seats_of(["0", "1", "2", "3"], 9, 64) == [Seat(str(i), 16) for i in range(4)]
    assert seats_of(["0", "1", "2"], 2, 8) == [Seat("0,2", 4), Seat("1", 4)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 6,7")
    assert visible_gpus(3) == ["4", "6", "7"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert visible_gpus(2) == ["0", "1"]


def test_modules_that_can_gain_most_come_first(tmp_path: Path) -> None:
    """By what an interrupted sitting measured; a file that is no problem comes last."""
    modules = modules_in(tmp_path, "broken", "mostly_products", "mostly_kernels", failing=("broken",))
    for module, decomposition in zip(modules[1:], ("linear_layernorm_gelu", "softmax_pool"), strict=True):
        (tmp_path / "out" / module.stem).mkdir(parents=True)
        told = summary(module, decomposition, is_interrupted=True)
        (tmp_path / "out" / module.stem / "summary.json").write_text(told)
    ordered = in_order_of_gain({module: tmp_path / "out" / module.stem for module in modules}, config_in(tmp_path))
    assert [module.stem for module in ordered] == ["mostly_kernels", "mostly_products", "broken"]


def test_the_table_is_in_the_order_that_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known is not run again, whatever comes first; one module after the other without several GPUs. Modules
    are looked at in a process that no key of a language model reaches."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-marker-0123456789")
    modules, out = modules_in(tmp_path, "z", "known", "a"), tmp_path / "out"
    rows, looked = list[BenchRow](), list[Path]()
    (out / "known").mkdir(parents=True)
    (out / "known" / "summary.json").write_text(summary(modules[1]))

    def improve(config: RunConfig) -> ModelRun:
        raise RuntimeError(f"a fault of evolve, met by {Path(config.problem).stem}")

    def look(module: Path) -> None:
        assert "OPENAI_API_KEY" not in os.environ
        looked.append(module)

    table = bench_here(modules, config_in(tmp_path), improve, folder=out, on_row=rows.append, on_look=look)
    assert os.environ["OPENAI_API_KEY"] == "sk-marker-0123456789"
    assert [module.stem for module in looked] == ["z", "a"]
    assert [row.module for row in table.rows] == ["z", "known", "a"] and table.rows[1].is_known
    assert [row.module for row in rows] == ["known", "z", "a"]
    assert table.rows[0].error.startswith("RuntimeError: a fault of evolve, met by z, see ")
    assert "Traceback" in (out / "z" / "failure.txt").read_text()
    with pytest.raises(ConfigError, match="this machine has"):
        bench_here(modules, config_in(tmp_path), improve, n_gpus=99, folder=out)
