"""Knowledge between runs: where it comes from, how it is shown, and the files that carry it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.runs import fill_archive, make_problem, make_run, one_evaluation

from db.archive import ProgramArchive
from db.errors import ArchiveError, ConfigError
from db.knowledge import TechniqueEvidence, summed
from db.recipes import Recipe, Setting
from db.records import LatencyKind
from evolve.cli.main import main
from evolve.config import load_config
from evolve.knowledge import (
    FORMAT,
    Knowledge,
    attempt_stories,
    collect_knowledge,
    condensed,
    read_knowledge,
    shipped_knowledge,
    technique_values,
    value_of,
    write_knowledge,
)

NOW_S = 2_000_000_000.0
RECIPE = Recipe(
    problem="rms_norm",
    latency_kind=LatencyKind.MEASURED,
    hardware_id="nvidia-h200",
    techniques=("one_pass",),
    settings=(Setting(kernel=0, kind="num_warps", value=16),),
    octaves=0.5,
)
MEASURED, MODELLED = LatencyKind.MEASURED, LatencyKind.MODELLED


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A measured and a modelled run of one problem."""
    path = tmp_path_factory.mktemp("knowledge") / "evolve.duckdb"
    fill_archive(path, n=80)
    fill_archive(path, n=60, kind=MODELLED, run_id="m0de11ed")
    return path


def known(kind: LatencyKind, at_s: float = NOW_S, **options: Any) -> tuple[TechniqueEvidence, ...]:
    found = collect_knowledge(load_config("softmax", options=options), "softmax", kind, at_s)
    assert found.at_s == at_s
    return tuple(found.evidence)


def n_tried(evidence: tuple[TechniqueEvidence, ...] | list[TechniqueEvidence]) -> int:
    return sum(one.n_tried for one in evidence)


# ----------------------------------------------------------------------------------------------- what a run starts from


def test_a_run_knows_what_its_archive_knows_of_its_kind_of_latency(archive: Path) -> None:
    with ProgramArchive.open(archive, read_only=True) as reader:
        everything = reader.knowledge()
    for kind in (MEASURED, MODELLED):
        found = known(kind, archive=str(archive))
        assert found and {one.latency_kind for one in found} == {kind}
        assert list(found) == [one for one in (*everything, *shipped_knowledge().evidence) if one.latency_kind is kind]


def test_archives_that_a_run_is_seeded_from_count_too_each_once(archive: Path, tmp_path: Path) -> None:
    own = str(tmp_path / "own.duckdb")
    ProgramArchive.open(own).close()
    once = n_tried(known(MEASURED, archive=str(archive)))
    assert n_tried(known(MEASURED, archive=own, seed_from=[str(archive)])) == once
    assert n_tried(known(MEASURED, archive=str(archive), seed_from=[str(archive)])) == once


def test_a_resumed_run_knows_what_it_knew_at_its_start(archive: Path) -> None:
    """Nothing that was judged or imported since."""
    half = known(MEASURED, at_s=1_800_000_060.0, archive=str(archive))
    assert 0 < n_tried(half) < n_tried(known(MEASURED, archive=str(archive)))
    assert all(one.last_at_s < 1_800_000_060.0 for one in half)
    before = known(MEASURED, at_s=1_700_000_000.0, archive=str(archive))
    assert list(before) == [one for one in shipped_knowledge().evidence if one.latency_kind is MEASURED]


def test_what_ships_is_all_that_is_known_with_an_empty_archive(tmp_path: Path) -> None:
    empty = str(tmp_path / "empty.duckdb")
    ProgramArchive.open(empty).close()
    shipped = shipped_knowledge().evidence
    assert list(known(MEASURED, archive=empty)) == shipped
    assert known(MODELLED, archive=empty) == ()  # a model's gains would say nothing about measured ones, nor these
    assert n_tried(shipped) > 500 and condensed(shipped) == shipped
    assert {one.latency_kind for one in shipped} == {MEASURED}


def test_a_run_may_know_nothing_and_then_a_bandit_chooses(archive: Path) -> None:
    assert known(MEASURED, archive=str(archive), knowledge="none") == ()
    choices = {
        (knowledge, choice): load_config(
            "softmax", options={"knowledge": knowledge}, sets=[f"search.operator_choice={choice}"]
        ).island_settings.operator_choice
        for knowledge in ("archive", "none")
        for choice in ("knowledge", "random")
    }
    assert choices == {
        ("archive", "knowledge"): "knowledge",
        ("archive", "random"): "random",
        ("none", "knowledge"): "bandit",
        ("none", "random"): "random",
    }


def test_a_file_takes_the_place_of_the_archives(archive: Path, tmp_path: Path) -> None:
    file = tmp_path / "some.json"
    warps = [one for one in shipped_knowledge().evidence if one.technique == "num_warps"]
    write_knowledge(Knowledge(warps, []), file)
    assert {one.technique for one in known(MEASURED, archive=str(archive), knowledge=str(file))} == {"num_warps"}


def test_an_archive_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError):
        known(MEASURED, archive=str(tmp_path / "absent.duckdb"))


# ---------------------------------------------------------------------------------------------------------------- files


def test_files_come_back_whole(archive: Path, tmp_path: Path) -> None:
    with ProgramArchive.open(archive, read_only=True) as reader:
        known = Knowledge(reader.knowledge(), [RECIPE])
    write_knowledge(known, tmp_path / "all.json")
    assert read_knowledge(tmp_path / "all.json") == known
    write_knowledge(Knowledge([], []), tmp_path / "none.json")
    assert read_knowledge(tmp_path / "none.json") == Knowledge([], [])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": "other 1", "evidence": []}',
        f'{{"format": "{FORMAT}"}}',
        f'{{"format": "{FORMAT}", "evidence": [{{"technique": "x"}}]}}',
        f'{{"format": "{FORMAT}", "evidence": 3}}',
        f'{{"format": "{FORMAT}", "evidence": [{{"technique": "x", "latency_kind": "measured", "hardware_id": "h", '
        '"n_tried": 1, "n_passed": 1, "n_kept": 1, "n_improved": 1, "octaves": 1e999}]}',
    ],
)
def test_what_is_no_such_file_is_one_line_and_a_hint(text: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"bad\.json") as raised:
        read_knowledge(file)
    assert "evolve knowledge export" in raised.value.hint and "\n" not in raised.value.message


def test_missing_and_unwritable_files_are_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        read_knowledge(tmp_path / "absent.json")
    with pytest.raises(ConfigError, match="cannot write"):
        write_knowledge(Knowledge([], []), tmp_path / "absent" / "k.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="no text"):
        read_knowledge(tmp_path / "bytes.json")


# -------------------------------------------------------------------------------------------------------- what is shown


def some(n_tried: int = 10, n_improved: int = 5, **more: Any) -> TechniqueEvidence:
    fields: dict[str, Any] = {"n_passed": n_tried, "n_kept": n_tried, "gained_octaves": 0.5 * n_improved, **more}
    return TechniqueEvidence(
        technique="exp2", latency_kind=MEASURED, hardware_id="gpu", n_tried=n_tried, n_improved=n_improved, **fields
    )


def test_averages_and_intervals() -> None:
    value = value_of(some(octaves=2.0, squared_octaves=1.3, n_predicted=4, squared_error=0.04))
    assert (value.chance, value.gain_octaves, value.change_octaves) == (0.5, 0.25, 0.2)
    assert (value.chance_low, value.chance_high) == pytest.approx((0.2366, 0.7634), abs=1e-4)  # Wilson, 5 of 10
    half = 1.959964 * math.sqrt((1.3 - 0.4) / 9 / 10)
    assert (value.change_low, value.change_high) == pytest.approx((0.2 - half, 0.2 + half))
    assert value.error_octaves == pytest.approx(0.1)


def test_little_evidence_has_wide_intervals_or_none() -> None:
    one = value_of(some(1, 1, octaves=0.5, squared_octaves=0.25))
    assert one.chance_low < 0.25 and one.chance_high == 1
    assert one.change_octaves == 0.5 and one.change_low is None and one.error_octaves is None
    failed = value_of(some(3, 0, n_passed=0, n_kept=0))
    assert failed.change_octaves is None and failed.chance_low == 0 and failed.chance_high > 0.5


def test_values_are_those_of_the_archive_best_first(archive: Path) -> None:
    with ProgramArchive.open(archive, read_only=True) as reader:
        values = technique_values(reader)
        evidence = reader.knowledge()
        assert n_tried(evidence) == sum(value.n_tried for value in values)
        for kind in (MEASURED, MODELLED):
            gains = [value.gain_octaves for value in values if value.latency_kind is kind]
            assert gains == sorted(gains, reverse=True) and len(gains) > 3
        assert len(technique_values(reader, limit=2)) == 4
        assert {value.technique for value in technique_values(reader, technique="exp2")} == {"exp2"}
        moves = technique_values(reader, technique="num_warps", by_move=True)
        assert all(value.move.startswith("warps ") for value in moves) and len(moves) > 2
        assert technique_values(reader, without=["softmax"]) == []


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return int(end.value.code or 0), printed.out, printed.err

    return run


def test_the_command_never_mixes_measured_and_modelled(call: Call, archive: Path) -> None:
    code, out, _ = call("knowledge", "--archive", archive, "--limit", 3)
    assert code == 0
    titles = [line for line in out.splitlines() if line.endswith((", measured", ", modelled"))]
    assert len(titles) == 2 and "state not known on" in titles[0]
    assert len(out.splitlines()) == 2 * (1 + 1 + 3)
    code, out, _ = call("knowledge", "--archive", archive, "--json", "--moves")
    rows = json.loads(out)
    assert code == 0 and {row["latency_kind"] for row in rows} == {"measured", "modelled"}
    assert any(row["move"] for row in rows)


def test_states_are_chosen_by_a_part_of_their_key(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    problem, run = make_problem(), make_run(make_problem())
    seed = one_evaluation(problem, run, 0, 100.0)
    made = []
    for n, state in enumerate(("spills/-/registers/row/sm_90", "launches/-/-/other/sm_90"), start=1):
        child = one_evaluation(problem, run, n, 90.0, parents=[seed])
        lineage = child.candidate.lineage.model_copy(update={"state": state})
        made.append(child.model_copy(update={"candidate": child.candidate.model_copy(update={"lineage": lineage})}))
    with ProgramArchive.open(path) as filled:
        filled.add_problem(problem)
        filled.add_run(run)
        filled.insert([seed, *made])
    code, out, _ = call("knowledge", "--archive", path, "--state", "spills")
    assert code == 0 and "spills/-/registers/row/sm_90" in out and "launches" not in out
    code, out, err = call("knowledge", "--archive", path, "--state", "tensor")
    assert (code, out) == (0, "") and "nothing was learnt yet" in err


def test_the_diagnosis_of_a_plan_is_kept_and_shown(call: Call, tmp_path: Path) -> None:
    path, problem = tmp_path / "planned.duckdb", make_problem()
    run = make_run(problem)
    seed = one_evaluation(problem, run, 0, 100.0)
    made = one_evaluation(problem, run, 1, 80.0, parents=(seed,), operator="execute")
    lineage = made.candidate.lineage.model_copy(update={"model": "openai/x", "diagnosis": "the loop: loads wait"})
    made = made.model_copy(update={"candidate": made.candidate.model_copy(update={"lineage": lineage})})
    with ProgramArchive.open(path) as filled:
        filled.add_problem(problem)
        filled.add_run(run)
        filled.insert([seed, made])
    for asked in (("lineage", made.candidate.program_id), ("knowledge", "attempts")):
        assert "the loop: loads wait" in call(*asked, "--archive", path)[1]
        *_, last = json.loads(call(*asked, "--json", "--archive", path)[1])
        assert last["diagnosis"] == "the loop: loads wait"


def test_attempts_say_what_came_of_them_and_why(call: Call, archive: Path, tmp_path: Path) -> None:
    with ProgramArchive.open(archive, read_only=True) as reader:
        stories = attempt_stories(reader, limit=500)
        assert len(stories) == sum(one.n_tried for one in reader.knowledge())
        for story in stories:
            assert (story.octaves is None) == story.cause.startswith("failed: gate ")
        assert len({story.cause for story in stories}) > 2
        latest = reader.query("SELECT candidate_id FROM attempts ORDER BY seq DESC LIMIT 3").rows
        assert [story.candidate_id for story in stories[:3]] == [row[0] for row in latest]
        assert {story.technique for story in attempt_stories(reader, technique="exp2")} == {"exp2"}
        assert attempt_stories(reader, state="spills") == []
    code, out, _ = call("knowledge", "attempts", "--limit", 80, "--archive", archive)
    header, *lines = out.splitlines()
    assert code == 0 and len(lines) == 80
    assert "measured" in header and "modelled" in header and "cause of the difference" in header
    code, out, _ = call("knowledge", "attempts", "--json", "--limit", 2, "--archive", archive)
    assert code == 0 and {row["latency_kind"] for row in json.loads(out)} == {"modelled"}
    empty = tmp_path / "empty.duckdb"
    ProgramArchive.open(empty).close()
    assert "nothing was tried yet" in call("knowledge", "attempts", "--archive", empty)[2]


def test_knowledge_moves_from_one_archive_to_another(call: Call, archive: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "k.json", tmp_path / "other.duckdb"
    assert call("knowledge", "export", file, "--archive", archive)[0] == 0
    for _ in range(2):  # a second time changes nothing
        code, _, err = call("knowledge", "import", file, "--archive", other)
        assert code == 0 and "attempts in" in err
    with ProgramArchive.open(archive, read_only=True) as source, ProgramArchive.open(other, read_only=True) as target:
        assert summed(target.knowledge()) == source.knowledge() != []
    code, _, err = call("knowledge", "export", file, "--without", "softmax", "--archive", archive)
    assert code == 0 and read_knowledge(file) == Knowledge([], []) and "0 attempts" in err


def test_recipes_are_shown(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "recipes.duckdb"
    ProgramArchive.open(path).close()
    code, out, err = call("knowledge", "recipes", "--archive", path)
    assert (code, out) == (0, "") and "no program is 5% faster" in err
    with ProgramArchive.open(path) as target:
        target.import_knowledge([], "lab.json", [RECIPE])
    code, out, _ = call("knowledge", "recipes", "--archive", path)
    row = out.splitlines()[1]
    assert code == 0 and all(words in row for words in ("rms_norm", "1.41x", "one_pass", "num_warps 16"))
    code, out, _ = call("knowledge", "recipes", "--json", "--archive", path)
    assert [Recipe.model_validate(record) for record in json.loads(out)] == [RECIPE]


def test_a_file_that_is_none_ends_the_command(call: Call, archive: Path, tmp_path: Path) -> None:
    code, _, err = call("knowledge", "import", tmp_path / "absent.json", "--archive", archive)
    assert code == 2 and "cannot read knowledge" in err and "Traceback" not in err
    code, _, err = call("run", "softmax", "--archive", tmp_path / "a.duckdb", "--knowledge", "nothing.json")
    assert code == 2 and "nothing.json" in err and "archive or none" in err
