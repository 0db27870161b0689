"""Every test that docs/threat-model.md names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "threat-model.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", TEXT)))


@pytest.mark.parametrize(("file", "test"), NAMED, ids=[f"{Path(file).stem}-{test}" for file, test in NAMED])
def test_a_named_test_exists(file: str, test: str) -> None:
    text = (ROOT / file).read_text()
    assert f"def {test}(" in text if test else "def test_" in text


def test_it_counts_the_corpus_as_it_is() -> None:
    found = re.search(r"(\d+) programs of (\d+) kinds", TEXT)
    files = list((ROOT / "tests/corpus/cheats").glob("*.py"))
    kinds = {re.search(r"^# kind: (\w+)$", path.read_text(), re.MULTILINE)[1] for path in files}  # type: ignore[index]
    assert found is not None and (int(found[1]), int(found[2])) == (len(files), len(kinds))
