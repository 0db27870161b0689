"""What a search starts from."""

from __future__ import annotations

from db.records import Record


class Seed(Record):
    """A first program: its source, and the archive, file or problem that it came from."""

    source: str
    origin: str = ""
