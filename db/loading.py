"""Rows into the table `evaluations`: few of them as values that are bound, many as arrays that DuckDB reads in place.

To bind a value takes a fraction of what a list of values takes, and an array takes a fraction of both. Most rows of a
search agree on a third of the columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from db.rows import COLUMNS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MIN_ROWS = 64  # from here on arrays are worth what it takes to make them
_VIEW = "rows_to_load"
_SEPARATOR = ","  # of program ids, which are hexadecimal
_NUMBERS: dict[str, Any] = {
    "BIGINT": np.int64,
    "INTEGER": np.int32,
    "UBIGINT": np.uint64,
    "DOUBLE": np.float64,
    "BOOLEAN": np.bool_,
}


@contextmanager
def loading(connection: DuckDBPyConnection, rows: Sequence[tuple[Any, ...]]) -> Iterator[tuple[str, list[Any]]]:
    """The statement that inserts rows of `db.rows.row_of`, with its parameters; inside, the arrays that it reads are at
    hand. Enter it before the transaction begins: one that failed could not let go of them."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    is_shared = tuple(column.count(column[0]) == len(column) for column in columns)
    if len(rows) < MIN_ROWS:
        values = [column[0] if shared else column for column, shared in zip(columns, is_shared, strict=True)]
        yield _statement(is_shared), values
        return
    arrays, selected = _arrays_of(columns, is_shared)
    shared_values = [column[0] for column, shared in zip(columns, is_shared, strict=True) if shared]
    connection.register(_VIEW, arrays)
    try:
        yield _insert(f"{selected} FROM {_VIEW}"), shared_values
    finally:
        connection.unregister(_VIEW)


def _insert(selected: str) -> str:
    return f"INSERT INTO evaluations ({', '.join(COLUMNS)}) SELECT {selected}"


@lru_cache(maxsize=256)
def _statement(is_shared: tuple[bool, ...]) -> str:
    pairs = zip(COLUMNS.values(), is_shared, strict=True)
    return _insert(", ".join(f"?::{kind}" if shared else f"unnest(?::{kind}[])" for kind, shared in pairs))


def _arrays_of(columns: Sequence[list[Any]], is_shared: Sequence[bool]) -> tuple[dict[str, Any], str]:
    """Arrays without a None in them, which DuckDB would have to guess the type of; and what is selected from them."""
    arrays: dict[str, Any] = {}
    selected = []
    for (name, kind), column, shared in zip(COLUMNS.items(), columns, is_shared, strict=True):
        if shared:
            selected.append(f"?::{kind}")
            continue
        is_null = [value is None for value in column]
        arrays[name] = _array_of(column, kind)
        if any(is_null):
            arrays[f"{name}_is_null"] = np.array(is_null)
            selected.append(f"CASE WHEN {name}_is_null THEN NULL ELSE {_cast(name, kind)} END")
        else:
            selected.append(_cast(name, kind))
    return arrays, ", ".join(selected)


def _cast(name: str, kind: str) -> str:
    if kind.endswith("[]"):
        return f"CASE WHEN {name} = '' THEN [] ELSE string_split({name}, '{_SEPARATOR}') END"
    return f"{name}::{kind}"


def _array_of(column: list[Any], kind: str) -> Any:
    if kind in _NUMBERS:
        return np.array([0 if value is None else value for value in column], dtype=_NUMBERS[kind])
    if kind.endswith("[]"):
        column = [_SEPARATOR.join(value) for value in column]
    array = np.empty(len(column), dtype=object)
    array[:] = ["" if value is None else str(value) for value in column]
    return array
