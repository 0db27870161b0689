"""`evolve techniques` shows the catalogue, one entry whole, and both as JSON."""

from __future__ import annotations

import json

import pytest

from db.techniques import CatalogueEntry, load_catalogue
from evolve.cli.main import main
from evolve.techniques import technique


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[str, str]:
    with pytest.raises(SystemExit) as end:
        main(["techniques", *arguments])
    assert end.value.code == code
    said = capsys.readouterr()
    return said.out, said.err


def test_the_table_has_a_line_for_every_technique(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = printed(capsys)
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(load_catalogue())
    retune = next(line for line in lines if line.startswith("retune "))
    assert retune.endswith("141/2") and "  operator  " in retune
    both = next(line for line in lines if line.startswith("online_softmax "))
    assert "operator or language model" in both


def test_one_technique_is_shown_whole(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = printed(capsys, "simplify_algebra")
    entry = load_catalogue()["simplify_algebra"]
    for text in (entry.changes, entry.applied_by.instruction, *entry.risks, *entry.reported, entry.source):
        assert text in out
    assert "operator" not in out  # it is none's


def test_json_is_the_entry_and_reads_back(capsys: pytest.CaptureFixture[str]) -> None:
    one = json.loads(printed(capsys, "split_k", "--json")[0])
    assert CatalogueEntry.model_validate(one) == load_catalogue()["split_k"]
    rows = json.loads(printed(capsys, "--json")[0])
    assert [CatalogueEntry.model_validate(row) for row in rows] == list(load_catalogue().values())


def test_an_unknown_name_is_told_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = printed(capsys, "num_warp", code=2)
    assert out == ""
    assert "no technique 'num_warp'" in err and "did you mean 'num_warps'?" in err


def test_names_are_found_as_people_write_them() -> None:
    assert technique(" Online-Softmax ").name == "online_softmax"
