"""Every command and option stands in docs/commands.md, in the section of its command, and nothing that is gone does."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from evolve.cli.examples import EXAMPLES
from evolve.cli.main import COMMANDS, build_app, main

DOCS = Path(__file__).resolve().parents[2] / "docs" / "commands.md"
SHARED = {"--help", "-h", "--install-completion", "--show-completion", "--version"}


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", DOCS.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def options_of(command: Any) -> Iterator[str]:
    """Every spelling of every option of a command and of its sub-commands."""
    for parameter in command.params:
        yield from (opt for opt in [*parameter.opts, *parameter.secondary_opts] if opt.startswith("-"))
    for inner in getattr(command, "commands", {}).values():
        yield from options_of(inner)


def mentioned(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", text))


@pytest.fixture(scope="module")
def commands() -> dict[str, Any]:
    group: Any = typer.main.get_command(build_app(set(COMMANDS)))
    return dict(group.commands)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_documented_in_its_section(name: str, commands: dict[str, Any]) -> None:
    missing = set(options_of(commands[name])) - mentioned(sections()[name]) - SHARED
    assert not missing


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_is_documented_that_is_gone(name: str, commands: dict[str, Any]) -> None:
    known = {opt for command in commands.values() for opt in options_of(command)} | SHARED
    assert not mentioned(sections()[name]) - known


def test_every_sub_command_is_documented(commands: dict[str, Any]) -> None:
    text = DOCS.read_text()
    for name, command in commands.items():
        for inner in getattr(command, "commands", {}):
            assert f"evolve {name} {inner}" in text


def test_every_command_has_help_for_each_option(commands: dict[str, Any]) -> None:
    for command in commands.values():
        for inner in getattr(command, "commands", {"": command}).values():
            for parameter in inner.params:
                assert getattr(parameter, "help", None), f"{inner.name}: {parameter.name}"


def test_library_twins_exist() -> None:
    from importlib import import_module

    for twin in re.findall(r"^\| \[`\w+`\].*\| `([\w.]+)` \|$", DOCS.read_text(), re.MULTILINE):
        module, _, name = twin.rpartition(".")
        if module == "evaluators":
            import_module(twin)
        elif "ArchiveReader" in module:
            reader = import_module("db.reading").ArchiveReader
            assert callable(getattr(reader, name))
        else:
            assert callable(getattr(import_module(module), name))


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_every_example_can_be_read(line: str, commands: dict[str, Any]) -> None:
    program, name, *rest = shlex.split(line)
    command = commands[name]
    assert program == "evolve"
    inner = getattr(command, "commands", {}).get(rest[0]) if rest else None
    if inner is not None:
        command, rest = inner, rest[1:]
    assert command.make_context(name, rest).params


def test_every_command_has_an_example_of_itself() -> None:
    assert EXAMPLES.keys() == {"", *COMMANDS}
    assert all(line.startswith(f"evolve {name}") for name, lines in EXAMPLES.items() for line in lines)


@pytest.mark.parametrize("arguments", [[], ["knowledge"], ["llm"], ["problems"]])
def test_no_command_of_a_list_is_cut_short(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([*arguments, "--help"])
    listed = capsys.readouterr().out.partition("Commands:")[2].partition("Examples:")[0]
    assert listed and "..." not in listed


def test_defaults_that_depend_on_the_archive_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["resume", "--help"])
    assert "[default: the last unfinished one]" in capsys.readouterr().out
