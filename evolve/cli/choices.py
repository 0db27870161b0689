"""Values that options may take, where the records have no enumeration for them."""

from __future__ import annotations

from enum import StrEnum


class Device(StrEnum):
    """Where candidates are judged."""

    AUTO = "auto"
    CUDA = "cuda"
    CPU = "cpu"


class Strategy(StrEnum):
    """How a search chooses parents."""

    MAP_ELITES = "map-elites"
    BEST_OF_N = "best-of-n"
    GREEDY = "greedy"
    BEAM = "beam"


class Parts(StrEnum):
    """Whether a module is taken apart."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class ExportFormat(StrEnum):
    """File formats of an export."""

    PARQUET = "parquet"
    JSONL = "jsonl"
