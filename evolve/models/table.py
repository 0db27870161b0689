"""The table of a benchmark: every module's row, and the figures of each precision class, with and without degenerate
problems."""

from __future__ import annotations

from collections.abc import Sequence

from db.records import PrecisionClass, Record
from evolve.models.figures import Figures, figures_of
from evolve.models.rows import BenchRow


class ClassFigures(Record):
    """The figures of one precision class: over all its modules, over those that are not degenerate, and over those of
    them that ask for no needless work."""

    precision: PrecisionClass
    all: Figures
    sound: Figures
    lean: Figures
    degenerate: dict[str, str]  # modules, and why
    needless: dict[str, str]  # modules, and the work that what is delivered leaves out
    n_unlooked: int  # modules that ran and of which it is not known; they count as sound


class Setting(Record):
    """What some modules were run on, with which software and budget. Empty and None where that is not known."""

    hardware: str
    versions: dict[str, str]
    evaluations: int | None = None  # verdicts of a module, at most
    time_s: float | None = None  # of a module, at most
    islands: int | None = None
    models: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    first_at: float | None = None  # seconds since the epoch: when the first of them began, and the last
    last_at: float | None = None


class BenchTable(Record):
    """Every module, in order."""

    rows: tuple[BenchRow, ...]

    @property
    def is_interrupted(self) -> bool:
        """Whether one of them was, and is run again the next time."""
        return any(row.is_interrupted for row in self.rows)

    @property
    def settings(self) -> tuple[Setting, ...]:
        """One for all modules that were run alike; those that could not be run are in none."""
        alike: dict[str, list[BenchRow]] = {}
        for row in self.rows:
            if not row.error:
                alike.setdefault(_setting_of(row).model_dump_json(), []).append(row)
        return tuple(_setting(rows) for rows in alike.values())

    @property
    def n_errors(self) -> int:
        return sum(bool(row.error) for row in self.rows)

    @property
    def classes(self) -> tuple[ClassFigures, ...]:
        """Precision classes never share a figure."""
        by_class = {p: [row for row in self.rows if row.precision is p] for p in PrecisionClass}
        return tuple(_class_figures(precision, rows) for precision, rows in by_class.items() if rows)


def _class_figures(precision: PrecisionClass, rows: Sequence[BenchRow]) -> ClassFigures:
    return ClassFigures(
        precision=precision,
        all=figures_of(rows),
        sound=figures_of([row for row in rows if not row.degenerate]),
        lean=figures_of([row for row in rows if not row.degenerate and not row.left_out]),
        needless={row.module: "; ".join(row.left_out) for row in rows if row.left_out},
        degenerate={row.module: row.degenerate for row in rows if row.degenerate},
        n_unlooked=sum(row.degenerate is None and not row.error for row in rows),
    )


def _setting_of(row: BenchRow) -> Setting:
    """Without its module and its time."""
    how = row.conditions
    budget = how.model_dump(exclude={"started_at"}) if how else {}
    return Setting(hardware=row.hardware, versions=dict(sorted(row.versions.items())), **budget)


def _setting(rows: Sequence[BenchRow]) -> Setting:
    times = [row.conditions.started_at for row in rows if row.conditions]
    told = {"first_at": min(times, default=None), "last_at": max(times, default=None)}
    return _setting_of(rows[0]).model_copy(update={"modules": tuple(row.module for row in rows), **told})


def as_values(table: BenchTable) -> dict[str, object]:
    """The table for scripts: what `bench.json` holds."""
    return {
        "settings": [setting.model_dump(mode="json") for setting in table.settings],
        "modules": [row.model_dump(mode="json") for row in table.rows],
        "precision": {c.precision.value: c.model_dump(mode="json", exclude={"precision"}) for c in table.classes},
        "errors": table.n_errors,
    }
