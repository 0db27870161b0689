"""The archive of a run as its driver sees it: the actor, where inserts that wait together go together."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from db.records import Evaluation
from evolve.cluster import answer
from evolve.mailbox import Mailbox


class RemoteArchive:
    """Called as the `ArchiveActor` is that it stands for."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._mailbox: Mailbox[Sequence[Evaluation]] = Mailbox(self._insert)

    @property
    def insert(self) -> _Insert:
        return _Insert(self._mailbox)

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)
        return getattr(self._actor, method)

    async def _insert(self, groups: Sequence[Sequence[Evaluation]]) -> list[int]:
        return list(await answer(self._actor.insert_all.remote(groups)))


class _Insert:
    def __init__(self, mailbox: Mailbox[Sequence[Evaluation]]) -> None:
        self._mailbox = mailbox

    def remote(self, evaluations: Sequence[Evaluation]) -> Coroutine[Any, Any, int]:
        return self._mailbox.call(evaluations)
