"""Version skew between nodes is named in one line."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from evolve.skew import NodeSoftware, differs, software_probe

OWN = NodeSoftware(package="0.1.0", digest="aa", torch="2.13.0", triton="3.7.1")
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({}, ""),
        ({"package": "0.2.0", "digest": "bb"}, "has triton-evolve 0.2.0, this one 0.1.0"),
        ({"digest": "bb"}, "has other files of triton-evolve 0.1.0 (bb) than this one (aa)"),
        ({"triton": "3.6.0"}, "has triton 3.6.0, this one 3.7.1"),
        ({"torch": ""}, "has torch not at all, this one 2.13.0"),
        ({"package": "", "digest": "cc"}, "does not have this package (triton-evolve)"),
    ],
)
def test_what_differs_is_said(other: dict[str, str], says: str) -> None:
    assert differs(OWN, OWN.model_copy(update=other)) == says


def test_the_probe_sees_a_changed_file_and_a_missing_package(tmp_path: Path) -> None:
    """It runs where this package is not: as its source in another process."""
    import ray.cloudpickle as pickle

    (tmp_path / "probe").write_bytes(pickle.dumps(software_probe()))
    code = "import pickle, sys, json; print(json.dumps(pickle.load(open(sys.argv[1], 'rb'))()))"

    def probed(home: Path) -> NodeSoftware:
        command = [sys.executable, "-P", "-c", "import sys; sys.path.insert(0, sys.argv[2]); " + code]
        done = subprocess.run([*command, tmp_path / "probe", home], capture_output=True, text=True, check=True)
        return NodeSoftware.model_validate_json(done.stdout)

    here = NodeSoftware.model_validate(software_probe()())
    for room in ("configs", "db"):
        shutil.copytree(ROOT / room, tmp_path / "copy" / room)
    whole = probed(tmp_path / "copy")
    (tmp_path / "copy" / "db" / "hashing.py").write_text("# another version\n")
    changed = probed(tmp_path / "copy")
    assert here.package == whole.package == changed.package and here.torch and here.triton
    assert whole.digest != changed.digest
