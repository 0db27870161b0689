"""`ArchiveActor`: the one process that has the archive file open, for all islands and evaluators of a cluster.

    archive = ArchiveActor.options(max_concurrency=1000).remote(str(path.resolve()))
    await archive.open.remote()
    n_new = await archive.insert.remote(evaluations)      # durable when it returns

Inserts that come within 20 ms are committed together, because a commit costs the same for one row and for fifty. One
that meets no other is committed at once.
While the actor lives it answers readers of other processes on the archive's socket (see `db.live`).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import ray

from db.archive import ProgramArchive
from db.errors import EvolveError
from db.knowledge import TechniqueEvidence
from db.live import ArchiveServer
from db.llm_calls import LlmCall, LlmTotal
from db.llm_questions import LlmQuestion
from db.opinions import ProgramOpinion
from db.queries import Elite, LineageRow, Table
from db.records import Evaluation, LatencyKind, PrecisionClass, Problem, Program, Run, Verdict
from db.reflections import EVERYTHING, Explanation, LearntTechnique, Lesson, Reflection, Wanted

T = TypeVar("T")

IDLE_S = 2.0
COMMIT_EVERY_S = 0.02  # at most: a commit costs milliseconds of a core, whatever is in it
N_RESTARTS = 8


class Waiting(NamedTuple):
    """An insert that nobody has committed yet."""

    evaluations: Sequence[Evaluation]
    n_new: asyncio.Future[int]


@ray.remote(num_cpus=0, max_restarts=N_RESTARTS, max_task_retries=N_RESTARTS, max_concurrency=1000)
class ArchiveActor:
    """Owns one archive. Methods are those of `ProgramArchive`, as coroutines, and raise the same errors.

    A call that was lost with the actor's process is sent again by Ray; inserts may be repeated, so none is stored
    twice.
    """

    def __init__(self, path: str, *, wait_s: float = 0.0, idle_s: float = IDLE_S) -> None:
        """`path` is absolute. The file is opened by `open` or by the first other call."""
        if not Path(path).is_absolute():
            raise ValueError(f"an actor may live in another folder: the archive's path must be absolute, not {path}")
        gc.freeze()  # what the imports made stays for ever: the collector need not walk it at every full collection
        self._path = path
        self._wait_s = wait_s
        self._idle_s = idle_s
        self._archive: ProgramArchive | None = None
        self._server: ArchiveServer | None = None
        self._committer: asyncio.Task[None] | None = None
        self._queue: asyncio.Queue[Waiting] = asyncio.Queue()
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        """Opens the archive, if it is not open. Raises as `ProgramArchive.open`."""
        await self._opened()

    async def close(self) -> None:
        """Commits what waits, checkpoints, and lets go of the file and the socket. A later call opens it again."""
        async with self._opening:
            if self._archive is None:
                return
            await self._queue.join()
            if self._committer is not None:
                self._committer.cancel()
            # readers are served meanwhile: what is left to do without a socket takes no time
            await _checkpoint(self._archive)
            if self._server is not None:
                await asyncio.to_thread(self._server.close)
            await asyncio.to_thread(self._archive.close)
            self._archive = self._server = self._committer = None

    # ---------------------------------------------------------------------------------------------------- writing

    async def insert(self, evaluations: Sequence[Evaluation]) -> int:
        await self._opened()
        waiting = Waiting(evaluations, asyncio.get_running_loop().create_future())
        self._queue.put_nowait(waiting)
        return await waiting.n_new

    async def insert_all(self, groups: Sequence[Sequence[Evaluation]]) -> list[int]:
        """Several inserts that came in one message; how many of each were new."""
        return list(await asyncio.gather(*(self.insert(evaluations) for evaluations in groups)))

    async def add_problem(self, problem: Problem) -> None:
        await self._do(lambda archive: archive.add_problem(problem))

    async def add_run(self, run: Run) -> None:
        await self._do(lambda archive: archive.add_run(run))

    async def update_run(self, run: Run) -> None:
        await self._do(lambda archive: archive.update_run(run))

    async def reprofile(self, verdicts: Sequence[Verdict]) -> None:
        await self._do(lambda archive: archive.reprofile(verdicts))

    async def import_knowledge(self, evidence: Sequence[TechniqueEvidence], origin: str) -> None:
        await self._do(lambda archive: archive.import_knowledge(evidence, origin))

    async def add_llm_calls(self, calls: Sequence[LlmCall]) -> None:
        await self._do(lambda archive: archive.add_llm_calls(calls))

    async def add_reflection(self, reflection: Reflection) -> None:
        await self._do(lambda archive: archive.add_reflection(reflection))

    async def add_opinions(self, opinions: Sequence[ProgramOpinion]) -> None:
        await self._do(lambda archive: archive.add_opinions(opinions))

    async def exchange(
        self, run_id: str, heard: Sequence[str], asked: Sequence[LlmQuestion], dialogues: Mapping[int, Any]
    ) -> None:
        await self._do(lambda archive: archive.exchange(run_id, heard, asked, dialogues))

    async def checkpoint(self) -> None:
        await self._do(lambda archive: archive.checkpoint())

    # ---------------------------------------------------------------------------------------------------- reading

    async def runs(self) -> list[Run]:
        return await self._do(lambda archive: archive.runs())

    async def run(self, run_id: str) -> Run:
        return await self._do(lambda archive: archive.run(run_id))

    async def last_unfinished_run(self) -> Run | None:
        return await self._do(lambda archive: archive.last_unfinished_run())

    async def problems(self) -> list[Problem]:
        return await self._do(lambda archive: archive.problems())

    async def problem(self, name_or_id: str) -> Problem:
        return await self._do(lambda archive: archive.problem(name_or_id))

    async def evaluations(self, run_id: str, island: int | None = None) -> list[Evaluation]:
        return await self._do(lambda archive: archive.evaluations(run_id, island))

    async def parents_abroad(self, run_id: str, island: int) -> list[Evaluation]:
        return await self._do(lambda archive: archive.parents_abroad(run_id, island))

    async def evaluations_of(self, program_id: str) -> list[Evaluation]:
        return await self._do(lambda archive: archive.evaluations_of(program_id))

    async def program(self, program_id_prefix: str) -> Program:
        return await self._do(lambda archive: archive.program(program_id_prefix))

    async def lineage(self, program_id: str) -> list[LineageRow]:
        return await self._do(lambda archive: archive.lineage(program_id))

    async def known_fingerprint(
        self,
        problem_id: str,
        hardware_id: str,
        precision: PrecisionClass,
        fingerprint: str,
        latency_kind: LatencyKind | None = None,
    ) -> Verdict | None:
        asked = (problem_id, hardware_id, precision, fingerprint, latency_kind)
        return await self._do(lambda archive: archive.known_fingerprint(*asked))

    async def known_program(
        self,
        problem_id: str,
        hardware_id: str,
        precision: PrecisionClass,
        program_id: str,
        latency_kind: LatencyKind | None = None,
    ) -> Verdict | None:
        asked = (problem_id, hardware_id, precision, program_id, latency_kind)
        return await self._do(lambda archive: archive.known_program(*asked))

    async def has_other_runs(self, problem_id: str, hardware_id: str, run_id: str) -> bool:
        return await self._do(lambda archive: archive.has_other_runs(problem_id, hardware_id, run_id))

    async def elites(self, **scope: Any) -> list[Elite]:
        return await self._do(lambda archive: archive.elites(**scope))

    async def best(self, problem: str, **scope: Any) -> Elite | None:
        return await self._do(lambda archive: archive.best(problem, **scope))

    async def knowledge(self, **asked: Any) -> list[TechniqueEvidence]:
        return await self._do(lambda archive: archive.knowledge(**asked))

    async def llm_calls(self, run_id: str | None = None) -> list[LlmCall]:
        return await self._do(lambda archive: archive.llm_calls(run_id))

    async def llm_totals(self, run_id: str | None = None) -> list[LlmTotal]:
        return await self._do(lambda archive: archive.llm_totals(run_id))

    async def lessons(self, wanted: Wanted = EVERYTHING) -> list[Lesson]:
        return await self._do(lambda archive: archive.lessons(wanted))

    async def explanations(self, wanted: Wanted = EVERYTHING) -> list[Explanation]:
        return await self._do(lambda archive: archive.explanations(wanted))

    async def learnt_techniques(self, wanted: Wanted = EVERYTHING) -> list[LearntTechnique]:
        return await self._do(lambda archive: archive.learnt_techniques(wanted))

    async def opinions(self, program_id: str | None = None, run_id: str | None = None) -> list[ProgramOpinion]:
        return await self._do(lambda archive: archive.opinions(program_id, run_id))

    async def llm_questions(self, run_id: str) -> list[LlmQuestion]:
        return await self._do(lambda archive: archive.llm_questions(run_id))

    async def llm_dialogues(self, run_id: str) -> dict[int, Any]:
        return await self._do(lambda archive: archive.llm_dialogues(run_id))

    async def query(self, sql: str, parameters: Sequence[Any] = ()) -> Table:
        return await self._do(lambda archive: archive.query(sql, parameters))

    # ---------------------------------------------------------------------------------------------------- private

    async def _opened(self) -> ProgramArchive:
        async with self._opening:
            if self._archive is None:
                self._archive = await asyncio.to_thread(ProgramArchive.open, self._path, wait_s=self._wait_s)
                # a file system without sockets costs only the readers of other processes
                with contextlib.suppress(OSError):
                    self._server = ArchiveServer(self._archive)
                self._committer = asyncio.create_task(self._commit_forever(self._archive))
        return self._archive

    async def _do(self, work: Callable[[ProgramArchive], T]) -> T:
        archive = await self._opened()
        return await asyncio.to_thread(work, archive)

    async def _commit_forever(self, archive: ProgramArchive) -> None:
        """Commits what waits, all at once; checkpoints when nothing came for a while."""
        has_news = False
        began = 0.0
        while True:
            try:
                group = [await asyncio.wait_for(self._queue.get(), self._idle_s if has_news else None)]
            except TimeoutError:
                has_news = False
                await _checkpoint(archive)
                continue
            await asyncio.sleep(began + COMMIT_EVERY_S - time.monotonic())
            began = time.monotonic()
            while not self._queue.empty():
                group.append(self._queue.get_nowait())
            await _commit(archive, group)
            has_news = True
            for _ in group:
                self._queue.task_done()


async def _checkpoint(archive: ProgramArchive) -> None:
    """Empties the log. One that cannot be emptied is replayed when the file is opened next: nothing is lost."""
    with contextlib.suppress(EvolveError):
        await asyncio.to_thread(archive.checkpoint)


async def _commit(archive: ProgramArchive, group: Sequence[Waiting]) -> None:
    """One transaction for a group. One that cannot be stored does not take the others with it."""
    try:
        evaluations = [e for waiting in group for e in waiting.evaluations]
        new = await asyncio.to_thread(archive.insert_new, evaluations)
    except Exception as error:  # the boundary: whatever went wrong belongs to who asked, and the next must be served
        if len(group) > 1:
            for waiting in group:
                await _commit(archive, [waiting])
        elif not group[0].n_new.done():
            group[0].n_new.set_exception(error)
        return
    for waiting in group:
        mine = {e.candidate.candidate_id for e in waiting.evaluations} & new
        new -= mine
        if not waiting.n_new.done():  # whoever asked may have gone
            waiting.n_new.set_result(len(mine))
