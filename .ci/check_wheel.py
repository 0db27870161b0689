"""Build a wheel, install it in a clean environment, and use it from another folder.

The environment sees the dependencies of the given interpreter, but not the checkout, so what the wheel lacks is missed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = (["--help"], ["problems", "list"], ["techniques"])


def main() -> None:
    python = Path(sys.argv[1]).absolute()
    site = _output([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip()
    with tempfile.TemporaryDirectory() as folder:
        wheels = Path(folder) / "wheels"
        _output([str(python), "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(wheels), str(ROOT)])
        venv.create(Path(folder) / "clean", with_pip=True)
        clean = Path(folder) / "clean" / "bin"
        _output([str(clean / "pip"), "install", "-q", "--no-deps", str(next(wheels.glob("*.whl")))])
        _share_dependencies(clean / "python", site)
        for command in COMMANDS:
            print(f"evolve {' '.join(command)}", flush=True)
            print(_output([str(clean / "evolve"), *command], cwd=folder))
        _check_origin(clean / "python", folder)


def _share_dependencies(python: Path, site: str) -> None:
    """Let the clean environment import the dependencies, but not the editable install of the checkout."""
    target = _output([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip()
    (Path(target) / "dependencies.pth").write_text(f"import sys; sys.path.append({site!r})\n")


def _check_origin(python: Path, folder: str) -> None:
    code = (
        "import evolve, islands, evaluators, db, configs; print(*(m.__file__ for m in (evolve, islands, db, configs)))"
    )
    for origin in _output([str(python), "-P", "-c", code], cwd=folder).split():
        if Path(origin).is_relative_to(ROOT):
            raise SystemExit(f"imported from the checkout, not from the wheel: {origin}")


def _output(command: list[str], cwd: str | None = None) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
