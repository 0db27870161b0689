"""The base of every record."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Base of all records: frozen, and no field that nobody declared."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")
