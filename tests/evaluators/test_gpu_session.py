"""The judge's side of a session: what it makes of answers, good and bad. A thread answers on a real channel."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from evaluators.gpu_session import GpuSession, SessionLost, explain_exit
from evaluators.sandbox.channel import Channel
from evaluators.sandbox.client import Exit
from evaluators.timing import Rotation
from tests.support.runs import make_problem

Answer = Callable[[dict[str, Any]], dict[str, Any] | None]


@pytest.fixture
def open_session() -> Iterator[Callable[[Answer], GpuSession]]:
    with contextlib.ExitStack() as stack:

        def opened(answer: Answer) -> GpuSession:
            ours, theirs = socket.socketpair()
            peer = threading.Thread(target=serve, args=(theirs, answer))
            for undo in (ours.close, theirs.close, peer.join, lambda: hang_up(ours)):
                stack.callback(undo)
            peer.start()
            session = GpuSession(Channel(ours), slot=None, deadline_s=0.5, load_deadline_s=0.7)
            session.slot = Unmapped()
            return session

        yield opened


class Unmapped:
    """A slot that has no memory on any GPU."""

    places: ClassVar[dict[str, Any]] = {}


def hang_up(end: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other end may have done so
        end.shutdown(socket.SHUT_RDWR)


def serve(end: socket.socket, answer: Answer) -> None:
    """Answers until the channel closes, or closes it where there is no answer."""
    channel = Channel(end)
    with contextlib.suppress(EOFError, OSError):
        while (reply := answer(channel.receive())) is not None:
            channel.send(reply)
    hang_up(end)


def test_times_are_read(open_session: Callable[[Answer], GpuSession]) -> None:
    session = open_session(lambda message: {"us": [1.5] * message["n"]})
    assert session.replay_us(3) == [1.5, 1.5, 1.5]


@pytest.mark.parametrize(
    "answer",
    [{}, {"us": []}, {"us": None}, {"us": ["fast"]}, {"us": [float("nan")]}, {"us": [0]}, {"us": [-1]}, {"us": [[1]]}],
)
def test_an_answer_that_is_no_time_loses_the_session(
    answer: dict[str, Any], open_session: Callable[[Answer], GpuSession]
) -> None:
    with pytest.raises(SessionLost, match="an answer that is none"):
        open_session(lambda _: answer).replay_us(1)


def test_silence_is_an_endless_loop(open_session: Callable[[Answer], GpuSession]) -> None:
    with pytest.raises(SessionLost, match=r"no answer to `check` within 0.5 s"):
        open_session(lambda _: threading.Event().wait(1.0) or None).check(make_problem().small)


def test_loading_may_take_as_long_as_preparation(open_session: Callable[[Answer], GpuSession]) -> None:
    with pytest.raises(SessionLost, match=r"no answer to `load` within 0.7 s"):
        open_session(lambda _: threading.Event().wait(1.0) or None).load({})


def test_a_peer_that_ends_loses_the_session(open_session: Callable[[Answer], GpuSession]) -> None:
    with pytest.raises(SessionLost, match="closed"):
        open_session(lambda _: None).deliver(1)


def test_only_a_graph_has_many_launches(open_session: Callable[[Answer], GpuSession]) -> None:
    session = open_session(lambda _: {"method": "events", "why": "it synchronises", "n_launches": 99})
    assert session.time(make_problem().full, Rotation(2, 8, True), watched=3) == "it synchronises"
    assert session.method == "events" and session.n_launches == 1


def test_what_host_code_called_is_kept_of_the_last_check(open_session: Callable[[Answer], GpuSession]) -> None:
    answers = iter([{"delivered": 1, "torch_ops": ["aten.mm.default"]}, {"refused": "no", "torch_ops": 3}])
    session = open_session(lambda _: next(answers))
    assert session.check(make_problem().small) == "" and session.torch_ops == ("aten.mm.default",)
    assert session.check(make_problem().small) == "no" and session.torch_ops == ()


def test_outputs_of_a_launch_and_of_a_call_are_asked_for(open_session: Callable[[Answer], GpuSession]) -> None:
    session = open_session(lambda message: {"us": [10.0], "refused": f"{message['do']} {message.get('launch')}"})
    assert session.deliver(2) == "deliver 2"
    assert session.call_kept_us(4, 3) == (10.0, "call None")
    with pytest.raises(SessionLost, match="an answer that is none"):
        open_session(lambda _: {"refused": ""}).call_kept_us(4, 3)


def test_a_child_that_does_not_say_what_it_changed_has_changed_something(
    open_session: Callable[[Answer], GpuSession],
) -> None:
    assert open_session(lambda _: {"changed": []}).changes() == []
    assert open_session(lambda _: {"changed": ["grad mode was False, it is True"]}).changes()
    assert open_session(lambda _: {}).changes() == ["it does not say"]


def test_every_answer_is_clocked_by_the_judge(open_session: Callable[[Answer], GpuSession]) -> None:
    def slowly(message: dict[str, Any]) -> dict[str, Any]:
        threading.Event().wait(0.1)
        return {"us": [1.0] * message["n"]}

    session = open_session(slowly)
    session.replay_us(1)
    assert 0.1 <= session.last_s < 0.5


def test_the_judges_clock_runs_beside_the_claim(open_session: Callable[[Answer], GpuSession]) -> None:
    claimed, watched = open_session(lambda _: {"seconds": 5.0}).sustain(4)
    assert claimed == 5.0 and watched < 0.5


@pytest.mark.parametrize(
    ("exit", "words"),
    [
        (Exit("error", "ValueError: no\n  at candidate.py:3", ""), "ValueError: no"),
        (Exit("error", "RuntimeError: NVML_SUCCESS == DriverAPI::get()->nvmlInit_v2_() INTERNAL", ""), "out of memory"),
        (Exit("signal", "SIGSEGV", ""), "ended by SIGSEGV"),
        (Exit("exit", "exited with code 0", ""), "ended itself"),
        (Exit("killed", "more than 8 GiB resident", ""), "stopped: more than 8 GiB"),
    ],
)
def test_every_end_of_a_child_reads_as_a_reason(exit: Exit, words: str) -> None:
    assert words in explain_exit(exit)


def test_slow_answers_end_when_their_time_in_all_is_up(open_session: Callable[[Answer], GpuSession]) -> None:
    def slowly(message: dict[str, Any]) -> dict[str, Any]:
        threading.Event().wait(0.2)
        return {"us": [1.0] * message["n"]}

    session = open_session(slowly)
    session.allow(0.5)
    with pytest.raises(SessionLost):  # each answer is in time, all together are not
        for _ in range(10):
            session.replay_us(1)


def test_nothing_is_asked_when_the_time_is_up(open_session: Callable[[Answer], GpuSession]) -> None:
    session = open_session(lambda message: {"us": [1.0] * message["n"]})
    session.allow(0.0)
    with pytest.raises(SessionLost, match="not judged within 0 s"):
        session.replay_us(1)
