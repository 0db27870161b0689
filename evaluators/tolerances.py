"""Elementwise bounds per output dtype: the problem's own, else the table in configs/tolerances.yaml."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

import yaml

from db.errors import ConfigError
from db.records import Problem, Tolerance


@lru_cache(maxsize=1)
def tolerance_table() -> dict[str, Tolerance]:
    """The shipped table: dtype as torch prints it ("float16") to its bound.

    Raises:
        ConfigError: a row lacks `rtol` or `atol`, or one is not positive.
    """
    text = files("configs").joinpath("tolerances.yaml").read_text()
    rows = yaml.safe_load(text)
    try:
        return {name: Tolerance(rtol=row["rtol"], atol=row["atol"]) for name, row in rows.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"configs/tolerances.yaml: {error}", "each dtype needs a positive rtol and atol") from error


def tolerance_for(problem: Problem, dtype: str) -> Tolerance:
    """The bound for outputs of `dtype`; a dtype that the table lacks is compared as strictly as float32."""
    if dtype in problem.tolerances:
        return problem.tolerances[dtype]
    table = tolerance_table()
    return table.get(dtype) or table["float32"]
