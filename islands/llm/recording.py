"""Recordings: what every request of a run came to, in a file of JSON lines, and a run that is answered from it.

A line names its request: the island, whom it asked (a model's id or a role), the prompt's hash, and how many requests
of this island had asked the same of the same before. Failures are recorded too: a replay meets them where the run did.
Another line names the turn of the run at which the answer was taken in.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import NamedTuple, Self

from pydantic import Field, ValidationError

from db.errors import ConfigError
from db.frozen import Record
from islands.llm.exchange import Completion, Failure, FailureKind, Outcome, Request


class Key(NamedTuple):
    """Which request is meant: its island, whom it asked, and the hash of its prompt."""

    island: int
    asked: str
    prompt_hash: str

    @classmethod
    def of(cls, request: Request) -> Key:
        return cls(request.island, request.asked, request.prompt_hash)


class Line(Record):
    """One request with what it came to, a completion or a failure; or with the turn at which that was taken in."""

    island: int = Field(ge=0)
    asked: str
    prompt_hash: str
    nth: int = Field(ge=0)
    completion: Completion | None = None
    failure: Failure | None = None
    turn: int | None = Field(default=None, ge=0)

    @property
    def key(self) -> Key:
        return Key(self.island, self.asked, self.prompt_hash)

    @property
    def outcome(self) -> Outcome | None:
        return self.completion or self.failure


NEVER = -1
"""The turn of an answer that came when its run was over, or did not come at all."""


class Recording:
    """What a run's requests came to, and when that was taken in."""

    def __init__(self, outcomes: dict[tuple[Key, int], Outcome], turns: dict[tuple[Key, int], int]) -> None:
        self._outcomes = outcomes
        self._turns = turns

    @classmethod
    def read(cls, path: Path) -> Self:
        """A recording from a file. A last line that was cut off when its run was killed is left out.

        Raises:
            ConfigError: there is no such file, or a line of it is no recorded request.
        """
        lines = _lines_of(path)
        outcomes = {(line.key, line.nth): line.outcome for line in lines if line.outcome is not None}
        return cls(outcomes, {(line.key, line.nth): line.turn for line in lines if line.turn is not None})

    def __len__(self) -> int:
        return len(self._outcomes)

    def turn_of(self, request: Request, nth: int) -> int | None:
        """At which turn the run took this answer in, or NEVER; None where the recording knows of no turns."""
        return self._turns.get((Key.of(request), nth), NEVER) if self._turns else None

    def find(self, request: Request, nth: int) -> Outcome:
        """What the `nth` request of its kind came to, from 0; a failure where that was not recorded."""
        key = Key.of(request)
        found = self._outcomes.get((key, nth))
        if found is not None:
            return found
        reason = f"the recording has no answer {nth} of {key.asked} to prompt {key.prompt_hash} for island {key.island}"
        return Failure(kind=FailureKind.NOT_RECORDED, reason=reason, is_final=True)


class Recorder:
    """Writes a recording, a line for each request, flushed at once. Goes on with a file that is there."""

    def __init__(self, path: Path) -> None:
        """
        Raises:
            ConfigError: the file cannot be written, or holds something else.
        """
        self.n_kept: Counter[Key] = Counter()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            for line in _lines_of(path):
                if line.outcome is not None:
                    self.n_kept[line.key] = max(self.n_kept[line.key], line.nth + 1)
            # a line that a kill cut off must not swallow the next one
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}", "name another file") from None

    def keep(self, request: Request, nth: int, outcome: Outcome) -> None:
        """Writes what the `nth` request of its kind came to."""
        key = Key.of(request)
        is_answer = isinstance(outcome, Completion)
        self._write(Line(**key._asdict(), nth=nth, **{"completion" if is_answer else "failure": outcome}))

    def note_turn(self, request: Request, nth: int, turn: int) -> None:
        """Writes at which turn of the run the answer to the `nth` request of its kind was taken in."""
        self._write(Line(**Key.of(request)._asdict(), nth=nth, turn=turn))

    def _write(self, line: Line) -> None:
        empty = {name for name in ("completion", "failure", "turn") if getattr(line, name) is None}
        self._file.write(line.model_dump_json(exclude=empty) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _lines_of(path: Path) -> list[Line]:
    try:
        whole, _, _ = path.read_bytes().rpartition(b"\n")
    except OSError as error:
        raise ConfigError(
            f"cannot read the recording {path}: {error.strerror}", "name a file of a recorded run"
        ) from None
    lines = []
    for number, text in enumerate(whole.splitlines(), start=1):
        try:
            lines.append(Line.model_validate_json(text))
        except ValidationError:
            hint = "name a file that a run recorded, unchanged"
            raise ConfigError(f"line {number} of {path} is no recorded request", hint) from None
    return lines
