"""The table `cell_bests`: an index of evaluations that SQL has no word for, kept by whoever writes.

It holds every row that is the fastest of its cell, on its island of its run, and perhaps rows that were so once. So the
fastest of a cell in any scope is found among these few.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from db.rows import COLUMNS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_COLUMNS = (
    "seq", "run_id", "island", "problem_id", "hardware_id", "precision", "latency_kind", "grid", "cell", "rank_us",
    "speedup",
)  # fmt: skip
_TYPES = [COLUMNS[name] for name in _COLUMNS]
_AT = [list(COLUMNS).index(name) for name in _COLUMNS]
_RANK_AT = list(COLUMNS).index("rank_us")
_LISTED = ", ".join(_COLUMNS)
_INSERT = f"INSERT INTO cell_bests ({_LISTED}) SELECT {', '.join(f'unnest(?::{kind}[])' for kind in _TYPES)}"
_KNOWN = "SELECT run_id, island, grid, cell, min(rank_us) FROM cell_bests WHERE run_id = ? GROUP BY ALL"
_PLACES_OF = "SELECT DISTINCT run_id, island, grid, cell FROM cell_bests WHERE seq IN (SELECT unnest(?::BIGINT[]))"
_REMOVE_ROWS = "DELETE FROM cell_bests WHERE seq IN (SELECT unnest(?::BIGINT[]))"
_ADD_ROWS = (
    f"INSERT INTO cell_bests ({_LISTED}) SELECT {_LISTED} FROM evaluations"
    " WHERE seq IN (SELECT unnest(?::BIGINT[])) AND rank_us IS NOT NULL"
)
_REMOVE_PLACE = "DELETE FROM cell_bests WHERE run_id = ? AND island = ? AND grid = ? AND cell = ?"
_ADD_PLACE = (
    f"INSERT INTO cell_bests ({_LISTED}) SELECT {_LISTED} FROM evaluations"
    " WHERE run_id = ? AND island = ? AND grid = ? AND cell = ? AND rank_us IS NOT NULL ORDER BY rank_us, seq LIMIT 1"
)


class Place(NamedTuple):
    """A cell of an island of a run."""

    run_id: str
    island: int
    grid: int
    cell: int


class CellBests:
    """What the writer of an archive knows of the table. Every change is part of the caller's transaction."""

    def __init__(self) -> None:
        self._ranks: dict[str, dict[Place, float]] = {}  # by run, of the runs that were written to

    def forget(self) -> None:
        """A transaction failed: what was noted in it may not be so."""
        self._ranks.clear()

    def add(self, connection: DuckDBPyConnection, rows: Iterable[Sequence[Any]]) -> None:
        """Takes in rows of `db.rows.row_of` that are inserted in this transaction."""
        better = []
        for row in rows:
            if row[_RANK_AT] is None:
                continue
            values = [row[at] for at in _AT]
            _, run_id, island, *_, grid, cell, rank_us, _ = values
            place, known = Place(run_id, island, grid, cell), self._known(connection, run_id)
            if rank_us < known.get(place, math.inf):
                known[place] = rank_us
                better.append(values)
        if better:
            connection.execute(_INSERT, [list(column) for column in zip(*better, strict=True)])

    def mend(self, connection: DuckDBPyConnection, seqs: Sequence[int]) -> None:
        """Looks again at rows whose cell or rank was changed in this transaction, and at the cells that they left."""
        left = [Place(*row) for row in connection.execute(_PLACES_OF, [list(seqs)]).fetchall()]
        connection.execute(_REMOVE_ROWS, [list(seqs)])
        for place in left:
            connection.execute(_REMOVE_PLACE, list(place))
            connection.execute(_ADD_PLACE, list(place))
        connection.execute(_REMOVE_ROWS, [list(seqs)])
        connection.execute(_ADD_ROWS, [list(seqs)])
        self._ranks.clear()

    def _known(self, connection: DuckDBPyConnection, run_id: str) -> dict[Place, float]:
        if run_id not in self._ranks:
            rows = connection.execute(_KNOWN, [run_id]).fetchall()
            self._ranks[run_id] = {Place(*row[:4]): row[4] for row in rows}
        return self._ranks[run_id]
