"""Models of benchmarks/models that were taken apart on an H200 with torch 2.11, as `decompose` answered.

Comments of the generated code are left out, and the weights that parts read are not kept.
"""

from __future__ import annotations

from pathlib import Path

from evaluators.decomposition.records import Decomposition

MODULE = """\
import torch
import torch.nn as nn

n = 32

class Model(nn.Module):
    def forward(self, x):
        return {{"{name}": x.exp()}}

def get_inputs():
    return [torch.randn(8, n)]

def get_init_inputs():
    return []
"""
FOLDER = Path(__file__).parent.parent / "data" / "decompositions"


def decomposition_of(name: str) -> Decomposition:
    return Decomposition.model_validate_json((FOLDER / f"{name}.json").read_text())


def module_text(name: str) -> str:
    """A module that asks something else for every name."""
    return MODULE.format(name=name)
