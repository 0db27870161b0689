"""Recordings: what every request of a run came to, in a file of JSON lines, and a run that is answered from it.

A line names its request: the island, whom it asked (a model's id or a role), the prompt's hash, and how many requests
of this island had asked the same of the same before. Failures are recorded too: a replay meets them where the run did.
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
    """One request with what it came to: a completion or a failure."""

    island: int = Field(ge=0)
    asked: str
    prompt_hash: str
    nth: int = Field(ge=0)
    completion: Completion | None = None
    failure: Failure | None = None

    @property
    def key(self) -> Key:
        return Key(self.island, self.asked, self.prompt_hash)

    @property
    def outcome(self) -> Outcome | None:
        return self.completion or self.failure


class Recording:
    """What a run's requests came to."""

    def __init__(self, outcomes: dict[tuple[Key, int], Outcome]) -> None:
        self._outcomes = outcomes

    @classmethod
    def read(cls, path: Path) -> Self:
        """A recording from a file. A last line that was cut off when its run was killed is left out.

        Raises:
            ConfigError: there is no such file, or a line of it is no recorded request.
        """
        return cls({(line.key, line.nth): line.outcome for line in _lines_of(path) if line.outcome is not None})

    def __len__(self) -> int:
        return len(self._outcomes)

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
        line = Line(**key._asdict(), nth=nth, **{"completion" if is_answer else "failure": outcome})
        self._file.write(line.model_dump_json(exclude={"failure" if is_answer else "completion"}) + "\n")
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
