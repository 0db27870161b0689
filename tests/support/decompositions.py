"""Models of benchmarks/models that were taken apart on an H200 with torch 2.11, as `decompose` answered.

Comments of the generated code are left out, and the weights that parts read are not kept.
"""

from __future__ import annotations

from pathlib import Path

from evaluators.decomposition.records import Decomposition

FOLDER = Path(__file__).parent.parent / "data" / "decompositions"


def decomposition_of(name: str) -> Decomposition:
    return Decomposition.model_validate_json((FOLDER / f"{name}.json").read_text())
