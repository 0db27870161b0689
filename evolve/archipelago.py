"""The islands of a run, several to a process. A process that dies is replaced, and its islands go on from the archive.

Everybody else sees islands as actors: `await archipelago.islands[3].ask.remote(8)`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from db.errors import ClusterError
from db.records import CONFIRM, Candidate, Evaluation
from evolve import cluster
from evolve.cluster import ActorDied, answer, why_it_died
from evolve.mailbox import Mailbox
from islands.actor import Call, IslandsActor
from islands.dialogues import DialoguesState
from islands.reflection import Taught
from islands.settings import IslandSettings

MAX_DEATHS = 8  # of one process, while its islands hear of no verdict
DIALOGUES_PER_LIFE = 10_000  # numbers: an answer to a question of a dead process meets no other conversation

OnChange = Callable[[str], None]


class Archipelago:
    """Islands, the processes that hold them, and what it takes to bring islands back.

    Args:
        made_of: the arguments of `islands.actor.HostedIsland`, for each island in order.
        n_processes: how many processes share them, in turn.
        archive: what islands of this run judged is read from it.
        on_change: is told, in a line for people, that a process was replaced.
    """

    def __init__(
        self, made_of: Sequence[Mapping[str, Any]], n_processes: int, archive: Any, on_change: OnChange
    ) -> None:
        self._archive = archive
        self._on_change = on_change
        n_processes = min(n_processes, len(made_of))
        self._processes = [_Process(made_of[first::n_processes]) for first in range(n_processes)]
        self.islands = [RemoteIsland(self, index, one) for index, one in enumerate(made_of)]

    def __len__(self) -> int:
        return len(self._processes)

    def kill(self) -> None:
        """End all processes: they have nothing to put in order."""
        cluster.kill([process.actor for process in self._processes])

    async def call(self, asked: Call) -> Any:
        """Call a method of an island, again if its process dies meanwhile.

        Raises:
            ClusterError: its process dies whenever it is called.
        """
        process = self._processes[asked.island_id % len(self._processes)]
        while True:
            actor, mailbox = process.actor, process.mailbox
            try:
                result = await mailbox.call(asked)
            except ActorDied as error:
                await self._replace(process, actor, error)
                continue
            if asked.method == "tell":
                process.n_deaths = 0
            return result

    async def _replace(self, process: _Process, dead: Any, error: ActorDied) -> None:
        """A new process in the place of a dead one; whoever finds it dead meanwhile waits."""
        async with process.lock:
            if process.actor is not dead:
                return
            reason = why_it_died(error)
            while process.actor is dead:
                process.n_deaths += 1
                if process.n_deaths > MAX_DEATHS:
                    hint = "look for the cause with: evolve doctor"
                    raise ClusterError(f"the processes of the islands keep dying: {reason}", hint)
                cluster.kill([dead])
                try:
                    process.settle_in(await self._restored(process))
                except ActorDied as again:
                    reason = why_it_died(again)
            self._on_change(f"{process.name} died and went on from the archive: {reason}")

    async def _restored(self, process: _Process) -> Any:
        """A process whose islands know all that was judged, and what is still on its way."""
        actor = process.start()
        for index in process.indices:
            await answer(actor.call.remote(*await self.islands[index].memories(self._archive)))
        return actor


class _Process:
    """One process and the islands in it."""

    def __init__(self, made_of: Sequence[Mapping[str, Any]]) -> None:
        self._made_of = made_of
        self.indices = [one["island_id"] for one in made_of]
        self.lock = asyncio.Lock()
        self.n_deaths = 0
        self.settle_in(self.start())

    def settle_in(self, actor: Any) -> None:
        """From now on calls go to this actor."""
        self.actor = actor

        async def send(calls: Sequence[Call]) -> list[Any]:
            return list(await answer(actor.call.remote(*calls)))

        self.mailbox: Mailbox[Call] = Mailbox(send)

    @property
    def name(self) -> str:
        """For people."""
        shown = ", ".join(map(str, self.indices[:4])) + (", ..." if len(self.indices) > 4 else "")
        return f"the process of island{'s' if len(self.indices) > 1 else ''} {shown}"

    def start(self) -> Any:
        """On the machine of the driver: no other node that goes takes islands with it. They think little and wait much,
        so no core is kept for them."""
        options = {"num_cpus": 0, **cluster.on_this_node()}
        return IslandsActor.options(**options).remote(self._made_of)  # type: ignore[attr-defined]


class RemoteIsland:
    """One island, called as an actor of its own would be, and what is not in the archive of it."""

    def __init__(self, archipelago: Archipelago, index: int, made_of: Mapping[str, Any]) -> None:
        self.index = index
        self._archipelago = archipelago
        self._made_of = made_of
        self._in_flight: dict[str, Candidate] = {}
        self._talk: tuple[Any, ...] = ()  # the arguments, once language models propose as well
        self._n_lives = 1
        self._n_told = 0  # since it was last asked for migrants

    def __getattr__(self, method: str) -> _Method:
        if method.startswith("_"):
            raise AttributeError(method)
        return _Method(self, method)

    async def call(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """Call a method, and remember what it would be a pity to lose."""
        if method == "emigrate" and not arguments and not self._may_emigrate():
            return []
        result = await self._archipelago.call(Call(self.index, method, arguments))
        match method:
            case "ask" | "seed":
                self._in_flight.update({one.candidate_id: one for one in result})
            case "answered" if result is not None:
                self._in_flight[result.candidate_id] = result
            case "tell":
                self._n_told += len(result)
                for verdict in arguments[0]:
                    self._in_flight.pop(verdict.candidate_id, None)
            case "talk":
                self._talk = arguments
            case "findings":
                self._teach(lambda taught: taught.having_found(result))
            case "hear":
                self._teach(lambda taught: taught.having_heard(arguments[0]))
        return result

    def _teach(self, learn: Callable[[Taught], Taught]) -> None:
        """The island was taught something since language models propose: a new process is told so as well."""
        if self._talk:
            brief, settings, *taught = self._talk
            self._talk = (brief, settings, learn(taught[0] if taught else Taught()))

    async def memories(self, archive: Any) -> list[Call]:
        """The calls that bring a new process to where the dead one was. Open conversations with models are lost."""
        run_id = self._made_of["run_id"]
        judged: list[Evaluation] = await answer(archive.evaluations.remote(run_id, self.index))
        migrants: list[Evaluation] = await answer(archive.parents_abroad.remote(run_id, self.index))
        own = [e for e in judged if e.candidate.lineage.operator != CONFIRM]
        kept = {e.candidate.candidate_id for e in own}
        waiting = [one for name, one in self._in_flight.items() if name not in kept]
        calls = [Call(self.index, "restore", (own, migrants)), Call(self.index, "readmit", (waiting,))]
        if self._talk:
            state = DialoguesState(next_number=DIALOGUES_PER_LIFE * self._n_lives)
            talking = [Call(self.index, "talk", self._talk), Call(self.index, "restore_dialogues", (state,))]
            calls = [*talking, *calls]
        self._n_lives += 1
        return calls

    def _may_emigrate(self) -> bool:
        """Whether so many verdicts came in since the last time that migrants may be due: else it need not be asked."""
        settings: IslandSettings = self._made_of["settings"]
        if self._n_told < settings.migration_interval:
            return False
        self._n_told = 0
        return True


class _Method:
    def __init__(self, island: RemoteIsland, method: str) -> None:
        self._island = island
        self._method = method

    def remote(self, *arguments: Any) -> Coroutine[Any, Any, Any]:
        return self._island.call(self._method, arguments)
