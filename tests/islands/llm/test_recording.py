"""A run is replayed from its recording, byte for byte, without a network."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.llm_clients import client_of, complete, request, spec
from support.llm_server import LlmServer, answer, failing

from db.errors import ConfigError
from islands.llm.exchange import Completion, Failure, FailureKind, Outcome
from islands.llm.recording import Recorder, Recording

NOWHERE = "http://127.0.0.1:9/v1"
REQUESTS = [
    request("same", island=0),
    request("same", island=0),
    request("same", island=1),
    request("other", island=1, model="openai/scripted"),
    request("fails", island=2),
]


def recorded(path: Path) -> list[Outcome]:
    """What requests, one after the other, come to; in the file too."""
    replies = [answer("one"), answer("two \u2028 zwei\n"), answer("three", usage=None), answer("four"), failing(400)]
    recorder = Recorder(path)
    with LlmServer(replies) as server:
        client = client_of(spec(server.api_base), recorder=recorder)
        outcomes = [complete(client, one)[0] for one in REQUESTS]
    recorder.close()
    return outcomes


def replayed(path: Path) -> list[Outcome]:
    client = client_of(spec(NOWHERE), replay=Recording.read(path))
    return [complete(client, one)[0] for one in REQUESTS]


def test_a_replay_gives_the_same_outcomes_failures_included(tmp_path: Path) -> None:
    outcomes = recorded(tmp_path / "run.jsonl")
    assert [getattr(outcome, "text", "") for outcome in outcomes] == ["one", "two \u2028 zwei\n", "three", "four", ""]
    again = replayed(tmp_path / "run.jsonl")
    assert [o.model_dump_json() for o in again] == [o.model_dump_json() for o in outcomes]


def test_a_replay_does_not_depend_on_the_order_between_islands(tmp_path: Path) -> None:
    outcomes = recorded(tmp_path / "run.jsonl")
    client = client_of(spec(NOWHERE), replay=Recording.read(tmp_path / "run.jsonl"))
    order = [4, 2, 3, 0, 1]
    again = complete(client, *(REQUESTS[k] for k in order))
    assert again == [outcomes[k] for k in order]


def test_what_was_not_recorded_is_a_final_failure(tmp_path: Path) -> None:
    recorded(tmp_path / "run.jsonl")
    client = client_of(spec(NOWHERE), replay=Recording.read(tmp_path / "run.jsonl"))
    outcomes = complete(client, REQUESTS[2], REQUESTS[2], request("new"))
    assert isinstance(outcomes[0], Completion)
    for outcome in outcomes[1:]:
        assert isinstance(outcome, Failure) and outcome.kind is FailureKind.NOT_RECORDED and outcome.is_final


def test_a_recording_goes_on_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    outcomes = recorded(path)
    with path.open("a") as file:
        file.write('{"island":0,"asked":"any","pro')  # cut off by a kill
    assert len(Recording.read(path)) == 5
    recorder = Recorder(path)
    with LlmServer([answer("later")]) as server:
        (later,) = complete(client_of(spec(server.api_base), recorder=recorder), REQUESTS[0])
    recorder.close()
    assert len(path.read_text(encoding="utf-8").split("\n")) == 7 and len(Recording.read(path)) == 6
    client = client_of(spec(NOWHERE), replay=Recording.read(path))
    assert complete(client, *[REQUESTS[0]] * 3) == [outcomes[0], outcomes[1], later]


@pytest.mark.parametrize("text", ["not json\n", '{"island": 0}\n', '{"custom_id": "x"}\n', "[]\n"])
def test_a_file_that_is_no_recording_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.jsonl").write_text(text)
    for read in (Recording.read, Recorder):
        with pytest.raises(ConfigError, match="line 1 of") as caught:
            read(tmp_path / "x.jsonl")
        assert caught.value.hint
    assert (tmp_path / "x.jsonl").read_text() == text


def test_a_missing_recording_and_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        Recording.read(tmp_path / "none.jsonl")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write"):
        Recorder(tmp_path / "file" / "run.jsonl")
