"""What a verdict rests on: with other software, or other gates, it is not taken over."""

from __future__ import annotations

import torch
import triton

from evaluators.versions import JUDGE, software_versions


def test_the_gates_have_a_version_beside_the_software() -> None:
    versions = software_versions()
    assert (versions["torch"], versions["triton"], versions["judge"]) == (torch.__version__, triton.__version__, JUDGE)
