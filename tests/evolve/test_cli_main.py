"""The command line as a shell sees it: light to start, exit codes, one line and a hint for what users can mend."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest
import typer

from db.errors import ArchiveBusyError, ConfigError, NotFoundError
from evolve.cli.endings import guarded
from evolve.cli.main import COMMANDS, main
from evolve.cli.options import parse_shapes
from evolve.failures import find_mendable

HEAVY = ("torch", "triton", "ray", "litellm", "duckdb", "libcst", "numpy")
LIST_MODULES = """
import json, sys
from evolve.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert end.code == 0, end.code
print("MODULES", json.dumps(sorted(sys.modules)))
"""


def modules_after(arguments: Sequence[str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", LIST_MODULES, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    modules: list[str] = json.loads(done.stdout.rpartition("MODULES ")[2])
    return modules


def test_help_imports_nothing_heavy_and_no_command() -> None:
    loaded = modules_after(["--help"])
    assert not [name for name in HEAVY if name in loaded]
    assert not [name for name in loaded if name.startswith("evolve.cli.") and name.split(".")[2] in COMMANDS]


@pytest.mark.parametrize("command", ["doctor", "elites"])
def test_only_the_chosen_command_is_imported(command: str) -> None:
    loaded = modules_after([command, "--help"])
    commands = {name.split(".")[2] for name in loaded if name.startswith("evolve.cli.")} & set(COMMANDS)
    assert commands == {command}
    assert not [name for name in ("torch", "triton", "litellm") if name in loaded]


def test_the_list_of_commands_says_what_each_says_of_itself() -> None:
    for name, (module, summary) in COMMANDS.items():
        loaded = import_module(f"evolve.cli.{module}")
        text = loaded.app.info.help if hasattr(loaded, "app") else getattr(loaded, name).__doc__
        assert text.splitlines()[0] == summary


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    printed = capsys.readouterr().out
    assert all(f" {name} " in printed for name in COMMANDS)


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["doctor", "--nonsense"], ["best"], ["run", "x", "--device", "tpu"]]
)
def test_a_wrong_command_line_ends_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2


def test_an_error_that_users_can_mend_is_one_line_and_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> None:
        raise ConfigError("unknown key\n'islandz'", "did you mean 'islands'?")

    with pytest.raises(typer.Exit) as end:
        guarded(command)()
    assert end.value.exit_code == 2
    printed = capsys.readouterr()
    assert printed.err == "error: unknown key 'islandz'\nhint:  did you mean 'islands'?\n"
    assert printed.out == ""


def test_an_interrupt_ends_with_130() -> None:
    def command() -> None:
        raise KeyboardInterrupt

    with pytest.raises(typer.Exit) as end:
        guarded(command)()
    assert end.value.exit_code == 130


def test_an_interrupt_while_a_command_is_loaded_ends_with_130_and_no_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "evolve.cli.main", "run", "softmax", "--evaluations", "1"]

    def hear_interrupts() -> None:  # a shell starts what runs in the background, such as these tests, deaf to them
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, cwd=tmp_path, preexec_fn=hear_interrupts
    ) as child:
        assert child.stderr is not None
        assert next((line for line in child.stderr if line.rstrip().endswith(" evolve.cli.choices")), "")
        child.send_signal(signal.SIGINT)
        told = [line for line in child.stderr if not line.startswith("import time:")]
    assert (child.returncode, told) == (130, ["interrupted\n"])


def test_a_fault_of_evolve_shows_its_traceback_and_is_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> None:
        raise RuntimeError("impossible")

    with pytest.raises(typer.Exit) as end:
        guarded(command)()
    assert end.value.exit_code not in (0, 1, 2, 130)
    assert "Traceback" in capsys.readouterr().err


def test_a_mendable_error_is_found_behind_other_errors() -> None:
    try:
        try:
            raise NotFoundError("no run", "start one")
        except NotFoundError as error:
            raise RuntimeError("while looking") from error
    except RuntimeError as error:
        found = find_mendable(error)
    assert isinstance(found, NotFoundError) and found.hint == "start one"
    assert find_mendable(ValueError("a bug")) is None


def test_a_mendable_error_of_a_group_of_tasks_is_found() -> None:
    group = ExceptionGroup("tasks", [ValueError("a bug"), ExceptionGroup("inner", [ConfigError("no key", "a hint")])])
    found = find_mendable(group)
    assert isinstance(found, ConfigError) and found.hint == "a hint"


def test_causes_that_go_in_circles_end() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert find_mendable(one) is None


def test_a_mendable_error_of_a_ray_task_is_found(ray_session: None) -> None:
    import ray

    @ray.remote
    def refuse() -> None:
        raise ArchiveBusyError("held by 12", "wait for it", owner_pid=12)

    with pytest.raises(ray.exceptions.RayTaskError) as caught:
        ray.get(refuse.remote())
    found = find_mendable(caught.value)
    assert isinstance(found, ArchiveBusyError)
    assert (found.message, found.hint) == ("held by 12", "wait for it")


def test_shapes_are_numbers_by_name() -> None:
    assert parse_shapes(["batch=64", "eps=1e-5", "n=65_536"]) == {"batch": 64, "eps": 1e-5, "n": 65536}
    assert isinstance(parse_shapes(["batch=64"])["batch"], int)


@pytest.mark.parametrize("text", ["batch", "batch=", "batch=many", "=4", "1x=4", "batch=4,5"])
def test_a_shape_that_is_none_says_how_to_write_one(text: str) -> None:
    with pytest.raises(ConfigError, match="--shape"):
        parse_shapes([text])
