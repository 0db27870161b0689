"""`ArchiveReader`: everything that can be asked of an archive, whoever holds the file.

The methods are written once, over the single primitive `_rows`: `ProgramArchive` answers it from the file,
`LiveArchive` asks the process that owns the file.
"""

from __future__ import annotations

import difflib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from db import queries
from db.collector import collector_paused
from db.damage import tells_damage
from db.errors import NotFoundError
from db.knowledge import (
    DETAILS,
    Asked,
    JudgedAttempt,
    TechniqueEvidence,
    evidence_for,
    evidence_of,
    imported,
    judged_attempt_of,
    latest_attempts,
    summed,
)
from db.llm_calls import LlmCall, LlmTotal, call_of, calls_of, total_of, totals_of
from db.llm_questions import LlmQuestion, dialogues_of, last_waiting, question_of, questions_of
from db.opinions import ProgramOpinion, opinions_of, opinions_on
from db.queries import Elite, LineageRow, Question, Scope, Table
from db.recipes import Recipe, Step, imported_recipes, step_of, step_rows, winner_rows
from db.records import Evaluation, LatencyKind, PrecisionClass, Problem, Program, Run, RunStatus, Verdict
from db.reflections import (
    EVERYTHING,
    Explanation,
    LearntTechnique,
    Lesson,
    Wanted,
    explanation_of,
    explanations_wanted,
    lesson_of,
    lessons_wanted,
    technique_of,
    techniques_wanted,
)

ExportFormat = Literal["parquet", "jsonl"]


@tells_damage
class ArchiveReader(ABC):
    """An archive that can be read. Methods may be called from several threads."""

    path: Path

    @abstractmethod
    def _rows(self, question: Question) -> list[tuple[Any, ...]]:
        """The rows that answer a question of this module."""

    @abstractmethod
    def query(self, sql: str, parameters: Sequence[Any] = ()) -> Table:
        """Answers one SELECT (or EXPLAIN) statement; `?` in it stand for the parameters.

        Raises:
            QueryError: it is no SQL, names what does not exist, would write, or took too long.
        """

    @abstractmethod
    def export(self, target: Path, file_format: ExportFormat, run_id: str | None = None) -> list[Path]:
        """Writes the archive, or one run of it, as Parquet or as JSON lines, and returns the files.

        A target with a suffix is one file of evaluations, sources included. Any other is a folder, made if missing,
        with a file for each of runs, problems, programs, evaluations, elites, llm_calls, lessons,
        explanations, learnt_techniques and opinions.
        """

    @abstractmethod
    def close(self) -> None:
        """Lets go of the archive."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------- runs and problems

    def runs(self) -> list[Run]:
        """All runs, oldest first."""
        rows = self._rows(Question("SELECT record FROM runs ORDER BY started_at, rowid", []))
        return [Run.model_validate_json(record) for (record,) in rows]

    def run(self, run_id: str) -> Run:
        """The run with this id.

        Raises:
            NotFoundError: there is none.
        """
        rows = self._rows(Question("SELECT record FROM runs WHERE run_id = ?", [run_id]))
        if not rows:
            raise self._not_found("run", run_id, "SELECT run_id FROM runs ORDER BY started_at DESC LIMIT 1000")
        return Run.model_validate_json(rows[0][0])

    def runs_on(self, problem: str) -> set[str]:
        """The ids of all runs on problems of this name, or on the one with this id."""
        sql = "SELECT run_id FROM runs JOIN problems USING (problem_id) WHERE name = ? OR problem_id = ?"
        return {run_id for (run_id,) in self._rows(Question(sql, [problem] * 2))}

    def last_unfinished_run(self) -> Run | None:
        """The run that was added last among those that were cut short: what `evolve resume` goes on with.

        By the order of insertion: a clock may jump back.
        """
        cut_short = [RunStatus.RUNNING, RunStatus.INTERRUPTED]
        sql = "SELECT record FROM runs WHERE status IN (?, ?) ORDER BY rowid DESC LIMIT 1"
        rows = self._rows(Question(sql, cut_short))
        return Run.model_validate_json(rows[0][0]) if rows else None

    def problems(self) -> list[Problem]:
        """All problems, oldest first."""
        rows = self._rows(Question("SELECT record FROM problems ORDER BY created_at, rowid", []))
        return [Problem.model_validate_json(record) for (record,) in rows]

    def problem(self, name_or_id: str) -> Problem:
        """The problem with this id, or else the one that got this name last.

        Raises:
            NotFoundError: there is none; a near name is suggested.
        """
        sql = (
            "SELECT record FROM problems WHERE name = ? OR problem_id = ? ORDER BY problem_id = ? DESC, created_at DESC"
        )
        rows = self._rows(Question(sql, [name_or_id] * 3))
        if not rows:
            raise self._not_found("problem", name_or_id, "SELECT DISTINCT name FROM problems")
        return Problem.model_validate_json(rows[0][0])

    # ------------------------------------------------------------------------------------- evaluations and programs

    def evaluations(self, run_id: str, island: int | None = None) -> list[Evaluation]:
        """What a run has judged, in order of insertion. This is what a run resumes from."""
        if island is None:
            return self._evaluations("run_id = ?", [run_id])
        return self._evaluations("run_id = ? AND island = ?", [run_id, island])

    def parents_abroad(self, run_id: str, island: int) -> list[Evaluation]:
        """The correct programs of other islands that an island of a run made its own from, each as first judged."""
        return self._evaluations(queries.PARENTS_ABROAD, [run_id, island] * 3)

    def evaluations_of(self, program_id: str) -> list[Evaluation]:
        """Every verdict on a program, in order of insertion."""
        return self._evaluations("program_id = ?", [program_id])

    def program(self, program_id_prefix: str) -> Program:
        """The program whose id starts so.

        Raises:
            NotFoundError: there is none, or there are several; the message lists them.
        """
        sql = "SELECT DISTINCT program_id FROM evaluations WHERE starts_with(program_id, ?) ORDER BY 1 LIMIT 6"
        matches = [row[0] for row in self._rows(Question(sql, [program_id_prefix]))]
        if not matches or not program_id_prefix:
            raise NotFoundError(f"no program {program_id_prefix!r} in {self.path}", "evolve elites lists programs")
        if len(matches) > 1:
            listed = ", ".join(matches[:5]) + (", ..." if len(matches) > 5 else "")
            raise NotFoundError(f"{program_id_prefix!r} is ambiguous: {listed}", "give more digits of the id")
        columns = "program_id, problem_id, entry_point, source"
        sql = f"SELECT {columns} FROM evaluations WHERE program_id = ? ORDER BY seq LIMIT 1"
        row = self._rows(Question(sql, matches))[0]
        return Program(program_id=row[0], problem_id=row[1], entry_point=row[2], source=row[3])

    def known_fingerprint(
        self,
        problem_id: str,
        hardware_id: str,
        precision: PrecisionClass,
        fingerprint: str,
        latency_kind: LatencyKind | None = None,
    ) -> Verdict | None:
        """The earlier verdict, itself no duplicate, on the same work written differently.

        `precision` and `latency_kind` are what the asking run asks of its candidates.
        """
        if not fingerprint or not self._rows(queries.rows_on("fingerprint", fingerprint)):
            return None
        found = queries.verdicts_on("fingerprint", fingerprint, problem_id, hardware_id)
        return self._known(found, precision, latency_kind)

    def known_program(
        self,
        problem_id: str,
        hardware_id: str,
        precision: PrecisionClass,
        program_id: str,
        latency_kind: LatencyKind | None = None,
    ) -> Verdict | None:
        """The earlier verdict on the same program. Arguments as for `known_fingerprint`."""
        found = queries.verdicts_on("program_id", program_id, problem_id, hardware_id)
        return self._known(found, precision, latency_kind)

    def has_other_runs(self, problem_id: str, hardware_id: str, run_id: str) -> bool:
        """Whether any other run than this one has judged a problem on this hardware."""
        sql = "SELECT seq FROM evaluations WHERE problem_id = ? AND hardware_id = ? AND run_id != ? LIMIT 1"
        return bool(self._rows(Question(sql, [problem_id, hardware_id, run_id])))

    # --------------------------------------------------------------------------------------------------- questions

    def elites(
        self,
        *,
        problem: str | None = None,
        run_id: str | None = None,
        hardware_id: str | None = None,
        precision: PrecisionClass | None = None,
        latency_kind: LatencyKind | None = None,
        limit: int | None = None,
    ) -> list[Elite]:
        """The fastest correct program of every cell of every grid, fastest first. `problem` is a name or an id.

        A grid is one problem, GPU, precision class and kind of latency: nothing is compared across them.
        """
        scope = Scope(None, run_id, None, hardware_id, precision, latency_kind)
        return self._elites(problem, lambda ids: queries.elite_rows(scope._replace(problem_ids=ids), limit))

    def best(
        self,
        problem: str,
        *,
        run_id: str | None = None,
        hardware_id: str | None = None,
        precision: PrecisionClass | None = None,
        latency_kind: LatencyKind | None = None,
    ) -> Elite | None:
        """The correct program with the lowest device latency, or None. `problem` is a name or an id.

        Where the arguments leave several grids, one is chosen first: measured before modelled, reference before
        relaxed, then the one judged last.
        """
        scope = Scope(None, run_id, None, hardware_id, precision, latency_kind)
        found = self._elites(problem, lambda ids: queries.best_row(scope._replace(problem_ids=ids)))
        return found[0] if found else None

    def sample_parents(
        self, problem: str, n: int, draw: int, *, run_id: str | None = None, island: int | None = None
    ) -> list[Elite]:
        """At most `n` different elites, likelier the faster they are. Equal `draw`, equal answer."""
        return self._elites(problem, lambda ids: queries.parent_rows(Scope(ids, run_id, island), n, draw))

    def lineage(self, program_id: str) -> list[LineageRow]:
        """A program and all its ancestors, oldest first. A prefix of the id will do.

        Raises:
            NotFoundError: as `program`.
        """
        program = self.program(program_id)
        seqs = [row[0] for row in self._rows(Question(queries.LINEAGE, [program.program_id]))]
        return queries.lineage_of(self._rows(queries.lineage_at(seqs)))

    def knowledge(
        self,
        *,
        problems: Sequence[str] | None = None,
        without: Sequence[str] = (),
        until_s: float | None = None,
        with_imported: bool = True,
    ) -> list[TechniqueEvidence]:
        """What every technique came to in every state, one record a state, technique, move and technique before it.

        Measured and modelled attempts, and those of different GPUs, are never summed.

        Args:
            problems: names or ids; only attempts on these. What was imported knows no problem.
            without: names or ids of problems whose attempts are left out.
            until_s: only what was judged or imported before this moment, in seconds since the epoch.
            with_imported: also what `import_knowledge` brought in.
        """
        asked = Asked(None if problems is None else tuple(problems), tuple(without), until_s)
        rows = self._rows(evidence_for(asked, self._rows(DETAILS)))
        brought = self._rows(imported(until_s)) if with_imported else []
        with collector_paused():
            own = [evidence_of(row) for row in rows]
            others = [TechniqueEvidence.model_validate_json(record) for (record,) in brought]
            return summed([*own, *others]) if others else own

    def winners(
        self,
        *,
        without: Sequence[str] = (),
        until_s: float | None = None,
        latency_kind: LatencyKind | None = None,
    ) -> list[Elite]:
        """The fastest programs of every grid. Arguments as for `knowledge`; None is any kind."""
        return self._elites(None, lambda _: winner_rows(without, until_s, latency_kind))

    def steps(self, program_ids: Iterable[str]) -> list[Step]:
        """Every verdict on some programs, in order of insertion, without its long texts."""
        return [step_of(row) for row in self._rows(step_rows(program_ids))]

    def imported_recipes(self, until_s: float | None = None) -> list[Recipe]:
        """What `import_knowledge` brought in, before a moment where one is given, in seconds since the epoch."""
        return [Recipe.model_validate_json(record) for (record,) in self._rows(imported_recipes(until_s))]

    def attempts(self, *, state: str = "", technique: str = "", limit: int = 20) -> list[JudgedAttempt]:
        """The last attempts, the latest first, with both verdicts.

        Args:
            state: only on parents whose state's key holds this text.
            technique: only with this one.
        """
        return [judged_attempt_of(row) for row in self._rows(latest_attempts(state, technique, limit))]

    def llm_calls(self, run_id: str | None = None) -> list[LlmCall]:
        """Every call of a language model, the oldest first: of one run or of all."""
        return [call_of(row) for row in self._rows(calls_of(run_id))]

    def llm_totals(self, run_id: str | None = None) -> list[LlmTotal]:
        """What calls came to for each model and operator, the dearest first: of one run or of all."""
        return [total_of(row) for row in self._rows(totals_of(run_id))]

    def lessons(self, wanted: Wanted = EVERYTHING) -> list[Lesson]:
        """What islands keep in mind, as their last reflections left it."""
        return [lesson_of(row) for row in self._rows(lessons_wanted(wanted))]

    def explanations(self, wanted: Wanted = EVERYTHING) -> list[Explanation]:
        """Why attempts gained what they did, as models see it."""
        return [explanation_of(row) for row in self._rows(explanations_wanted(wanted))]

    def learnt_techniques(self, wanted: Wanted = EVERYTHING) -> list[LearntTechnique]:
        """Techniques that runs came upon. Several runs may have learnt one of the same name."""
        return [technique_of(row) for row in self._rows(techniques_wanted(wanted))]

    def opinions(self, program_id: str | None = None, run_id: str | None = None) -> list[ProgramOpinion]:
        """What judge models think, the newest first: of one program or of all, in one run or in all."""
        return opinions_of(self._rows(opinions_on(program_id, run_id)))

    def llm_questions(self, run_id: str) -> list[LlmQuestion]:
        """Every question of a run that was written down instead of asked, in the order of asking."""
        return [question_of(row) for row in self._rows(questions_of(run_id))]

    def llm_dialogues(self, run_id: str) -> dict[int, Any]:
        """Where the dialogues of a run stood at the end of its last sitting: by island, as they were stored."""
        return {island: json.loads(record) for island, record in self._rows(dialogues_of(run_id))}

    def last_waiting_run(self) -> Run | None:
        """The run that started last among those whose questions wait for answers, or whose answers wait to be heard."""
        rows = self._rows(last_waiting())
        return self.run(rows[0][0]) if rows else None

    # ----------------------------------------------------------------------------------------------------- private

    def _elites(self, problem: str | None, rows_wanted: Callable[[tuple[str, ...] | None], Question]) -> list[Elite]:
        """The elites in the rows that a question finds; it is told which problems have that name or id."""
        names = dict(self._rows(Question("SELECT problem_id, name FROM problems", [])))
        ids = None if problem is None else tuple(i for i, name in names.items() if problem in (i, name))
        seqs = [row[0] for row in self._rows(rows_wanted(ids))]
        by_seq = {row[0]: row for row in self._rows(queries.elites_at(seqs))} if seqs else {}
        with collector_paused():
            return [queries.elite_of(by_seq[seq], names) for seq in seqs]

    def _evaluations(self, condition: str, parameters: list[Any]) -> list[Evaluation]:
        rows = self._rows(queries.evaluations_where(condition, parameters))
        with collector_paused():
            return [queries.evaluation_of(row) for row in rows]

    def _known(self, found: Question, precision: PrecisionClass, latency_kind: LatencyKind | None) -> Verdict | None:
        """The first verdict of a run that asked the same. A failed one has no precision or kind of its own."""
        rows = self._rows(found)
        runs = self._rows(Question("SELECT run_id, precision, latency_kind FROM runs", [])) if rows else []
        asked = {run_id: (run_precision, run_kind) for run_id, run_precision, run_kind in runs}
        for run_id, own_precision, own_kind, verdict in rows:
            its_precision, its_kind = asked.get(run_id, (own_precision, own_kind))
            if its_precision == precision and latency_kind in (None, its_kind):
                return Verdict.model_validate_json(verdict)
        return None

    def _not_found(self, noun: str, name: str, sql: str) -> NotFoundError:
        names = [row[0] for row in self._rows(Question(sql, []))]
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"it holds: {', '.join(names[:8]) or 'none'}"
        return NotFoundError(f"no {noun} {name!r} in {self.path}", hint)
