"""`evolve run --model`: real processes, real HTTP to a local server, judged without a GPU."""

from __future__ import annotations

import json
import math
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.evolving import Ended, evolve, rows
from support.llm_server import Asked, LlmServer, Reply, answer

from evaluators.problems import load_problem

pytestmark = pytest.mark.slow

KEY = "sk-marker-5f1e0c7a92b34d6e8f"
SEED = load_problem("softmax").seeds[0]
RUN = ("run", "softmax", "--islands", "1", "--device", "cpu", "--set", "stop_at_roofline=1", "--rng-seed", "3")


def edited(warps: int) -> str:
    whole = SEED.replace("num_warps=4", f"num_warps={warps}")
    return f"TECHNIQUE: num_warps\nCHANGE: {warps} warps\nEXPECT: 5%\n\n```python\n{whole}\n```\n"


PLANS = json.dumps(
    [
        {"technique": "num_warps", "construct": "launch", "change": f"{n} warps", "why": "waits", "effect_pct": 5}
        for n in (2, 8)
    ]
)


LESSON, FAKED = "Eight warps cover for the loads of a row.", "no element is computed"
REFLECTION = json.dumps(
    {
        "memory": [{"action": "append", "text": LESSON}],
        "explanations": [{"attempt": 1, "fix_worked": True, "cause": "warps", "avoid": "", "try_next": "16 warps"}],
    }
)
OPINION = json.dumps({"concerns": [{"kind": "faked", "line": 1, "what": FAKED}], "advice": "compute it"})


def script(asked: Asked) -> Reply:
    """What looks back and plans get, else good edits, one after the other; never the same."""
    n_turns, prompt = len(asked.body["messages"]), asked.body["messages"][-1]["content"]
    for task, told in (("different plans", PLANS), ("# Attempts", REFLECTION), ("# The candidate", OPINION)):
        if task in prompt:
            return answer(told)
    script.n += 1  # type: ignore[attr-defined]
    return answer(edited([1, 2, 8, 16, 32][script.n % 5])) if n_turns == 2 else answer("nothing more")  # type: ignore[attr-defined]


def model_at(server: LlmServer) -> str:
    return f"openai/scripted,api_base={server.api_base},unpriced"


def run(folder: Path, *options: str, key: str = KEY) -> Ended:
    return evolve(*RUN, "--archive", "a.duckdb", "--out", "out", *options, cwd=folder, OPENAI_API_KEY=key)


def written(folder: Path) -> list[dict[str, Any]]:
    columns = "program_id, operator, lineage->>'detail' AS detail, outcome"
    sql = f"SELECT {columns} FROM evaluations WHERE lineage->>'model' != '' ORDER BY seq"
    return rows(sql, archive=folder / "a.duckdb")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Ended, list[str]]]:
    """A run with a model, recorded; and where its key was seen in environments of other processes meanwhile."""
    folder = tmp_path_factory.mktemp("recorded")
    script.n = 0  # type: ignore[attr-defined]
    seen: list[str] = []
    over = threading.Event()
    watching = threading.Thread(target=watch_environments, args=(seen, over))
    watching.start()
    with LlmServer(script) as server:
        options = (
            "--evaluations",
            "14",
            "--model",
            model_at(server),
            "--set",
            f"llm.record={folder / 'answers.jsonl'}",
            "--set",
            "llm.reflect_every=2",
            "--set",
            "llm.judge=true",
            "--set",
            "in_order=2",  # most of its few verdicts are left for what models write
        )
        ended = run(folder, *options)
        asked = [dict(one.headers)["authorization"] for one in server.asked]
    over.set()
    watching.join()
    assert asked and set(asked) == {f"Bearer {KEY}"}
    yield folder, ended, seen


def watch_environments(seen: list[str], over: threading.Event) -> None:
    """Notes the command of every process but the `evolve run` itself whose environment holds the key."""
    while not over.wait(0.2):
        for process in Path("/proc").glob("[0-9]*"):
            try:
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if KEY.encode() in (process / "environ").read_bytes() and "run softmax" not in command:
                    seen.append(command)
            except OSError:
                continue


def test_what_a_model_writes_is_judged_and_kept(recorded: tuple[Path, Ended, list[str]]) -> None:
    folder, ended, _ = recorded
    assert ended.code == 0, ended.err
    made = written(folder)
    assert len(made) >= 2 and all(row["outcome"] == "correct" for row in made)
    assert {row["detail"] for row in made} <= {f"{n} warps" for n in (1, 2, 8, 16, 32)}
    calls = rows("SELECT model, outcome, n_tokens_in, prompt_hash FROM llm_calls", archive=folder / "a.duckdb")
    assert len(calls) >= len(made) and calls[0]["model"] == "openai/scripted" and calls[0]["n_tokens_in"] == 100


def test_what_a_planner_proposes_is_carried_out_with_its_prediction(recorded: tuple[Path, Ended, list[str]]) -> None:
    folder, _, _ = recorded
    asked = {row["operator"] for row in rows("SELECT operator FROM llm_calls", archive=folder / "a.duckdb")}
    assert {"plan", "execute"} <= asked
    sql = "SELECT lineage->>'predicted_octaves' AS expected FROM evaluations WHERE operator = 'execute'"
    (expected,) = {float(row["expected"]) for row in rows(sql, archive=folder / "a.duckdb")}
    assert expected == pytest.approx(-math.log2(0.95))


def test_models_look_back_and_a_judge_that_holds_all_for_faked_changes_nothing(
    recorded: tuple[Path, Ended, list[str]],
) -> None:
    folder, _, _ = recorded
    archive = folder / "a.duckdb"
    assert {row["text"] for row in rows("SELECT text FROM lessons", archive=archive)} == {LESSON}
    sql = "SELECT e.program_id FROM explanations JOIN evaluations AS e USING (candidate_id)"
    made = {row["program_id"] for row in written(folder)}
    explained = {row["program_id"] for row in rows(sql, archive=archive)}
    assert explained and explained <= made
    best = json.loads((folder / "out" / "summary.json").read_text())["best_program"]
    held = rows(f"SELECT kind, what FROM opinions WHERE program_id = '{best}'", archive=archive)
    assert held == [{"kind": "faked", "what": FAKED}]
    assert FAKED in (folder / "out" / "report.html").read_text()
    fastest = rows("SELECT program_id FROM evaluations ORDER BY latency_us, seq LIMIT 1", archive=archive)
    assert fastest[0]["program_id"] == best


def test_a_key_is_nowhere_but_in_the_request(recorded: tuple[Path, Ended, list[str]]) -> None:
    folder, ended, seen = recorded
    assert seen == []
    assert KEY not in ended.out + ended.err
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) >= 4
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []


def test_a_recorded_run_gives_the_same_programs_without_a_model(
    recorded: tuple[Path, Ended, list[str]], tmp_path: Path
) -> None:
    folder, _, _ = recorded
    recorded_options = ("--set", "in_order=2", "--set", "llm.reflect_every=2", "--set", "llm.judge=true")
    replayed = ("--model", "openai/scripted,unpriced", "--set", f"llm.replay={folder / 'answers.jsonl'}")
    ended = run(tmp_path, "--evaluations", "14", *recorded_options, *replayed, key="")
    assert ended.code == 0, ended.err
    assert written(tmp_path) == written(folder)
    digests = [json.loads((one / "out" / "summary.json").read_text())["digest"] for one in (folder, tmp_path)]
    assert digests[0] == digests[1]


def test_a_replay_that_is_at_its_end_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    ended = run(tmp_path, "--evaluations", "12", "--set", f"llm.replay={tmp_path / 'empty.jsonl'}", key="")
    assert ended.code == 0 and "going on without language models: " in ended.out, ended.out + ended.err


def test_a_model_that_answers_rubbish_costs_no_evaluation(tmp_path: Path) -> None:
    with LlmServer([answer("I am sorry, I cannot help with kernels.")]) as server:
        options = ("--archive", "a.duckdb", "--out", "out", "--evaluations", "5")
        named = f"{model_at(server)},key_name=LAB_LOGIN"
        ended = evolve(*RUN, *options, "--model", named, cwd=tmp_path, LAB_LOGIN=KEY)
        assert len(server.asked) >= 2
        assert {one.headers["authorization"] for one in server.asked} == {f"Bearer {KEY}"}
    assert ended.code == 0, ended.err
    assert re.search(r"models +\d+ calls, [1-9]\d* answered: evolve llm --run ", ended.out), ended.out
    assert written(tmp_path) == []
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["judged"] == 5


def test_a_model_that_cannot_be_read_is_one_line_and_a_hint(tmp_path: Path) -> None:
    began = time.monotonic()
    ended = run(tmp_path, "--evaluations", "1", "--model", "gpt-4o")
    assert ended.code == 2 and len(ended.complaint) == 2 and "provider/name" in " ".join(ended.complaint)
    assert time.monotonic() - began < 60 and os.environ.get("OPENAI_API_KEY", "") != KEY
    assert "starting workers" not in ended.out or rows("SELECT run_id FROM runs", archive=tmp_path / "a.duckdb") == []
