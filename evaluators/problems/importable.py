"""A module of an importable package as a problem: `mylib.blocks:Block`, with inputs of a file or of a function.

The problem is a KernelBench file that is written here: the file with the inputs, or an import of the function, and
below it the import of the module. What the package holds is asked of a process of its own (`importing`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from db.errors import ConfigError
from evaluators.problems.aside import ask
from evaluators.problems.files import SourceFile

INPUTS_FORM = (
    "give a file that defines get_inputs(), which returns the list of forward's arguments, and get_init_inputs() where "
    "the class takes any: --inputs FILE, or a function of a package: --inputs mylib.blocks:example_inputs"
)
MODEL_TEXT = "MODEL_TEXT"  # the name that the digest of the module's file has
_PROBE = "evaluators.problems.importing"
_SPEC = re.compile(r"(?P<module>[^\W\d][\w.]*):(?P<name>[^\W\d]\w*)(?:@(?P<inputs>.+))?")


class Importable(NamedTuple):
    """`MODULE:NAME`, and where inputs come from: a path, `MODULE:FUNCTION`, or empty for the module itself."""

    module: str
    name: str
    inputs: str = ""

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"


def read_importable(spec: str) -> Importable | None:
    """What `MODULE:NAME` or `MODULE:NAME@INPUTS` says; None for anything else."""
    match = _SPEC.fullmatch(spec)
    return Importable(match["module"], match["name"], match["inputs"] or "") if match else None


def with_inputs(spec: str, inputs: str) -> str:
    """The spelling of a problem whose inputs are given apart.

    Raises:
        ConfigError: the problem takes no inputs from elsewhere, or has some already.
    """
    found = read_importable(spec)
    if found is None or found.inputs:
        why = "it names its inputs already" if found else "it is not of the form MODULE:NAME"
        hint = "--inputs is for modules of a package: evolve run mylib.blocks:Block --inputs FILE"
        raise ConfigError(f"{spec} takes no --inputs: {why}", hint)
    return f"{spec}@{inputs}"


def importable_file(wanted: Importable) -> SourceFile:
    """The KernelBench file of a module in a package.

    Raises:
        ProblemError: the package cannot be imported, has no such name, the name is no module, or inputs are missing.
    """
    is_function = read_importable(wanted.inputs) is not None and not Path(wanted.inputs).exists()
    own = None if is_function or not wanted.inputs else SourceFile.read(Path(wanted.inputs).expanduser())
    if own is not None and not own.defines("get_inputs"):
        raise own.error("no get_inputs", None, INPUTS_FORM)
    question = {"module": wanted.module, "name": wanted.name, "inputs": wanted.inputs if is_function else ""}
    found = ask(_PROBE, question | {"has_inputs": own is not None, "has_init": _defines_init(own)})
    head = own.text.rstrip("\n") + "\n\n\n" if own is not None else ""
    lines = [*_input_lines(found["inputs"]), *_model_lines(wanted, found)]
    if not _defines_init(own) and not (found["inputs"] or {}).get("has_init"):
        lines += ["", "", "def get_init_inputs():", "    return []"]
    return SourceFile(head + "\n".join(lines) + "\n", own.label if own is not None else str(wanted))


def _defines_init(own: SourceFile | None) -> bool:
    return own is not None and own.defines("get_init_inputs")


def _input_lines(inputs: dict[str, Any] | None) -> list[str]:
    """Imports of the functions that make inputs, where no file has them."""
    if inputs is None:
        return []
    name = inputs["name"]
    lines = [f"from {inputs['module']} import {name}" + (" as get_inputs" if name != "get_inputs" else "")]
    return lines + ([f"from {inputs['module']} import get_init_inputs"] if inputs["has_init"] else [])


def _model_lines(wanted: Importable, found: dict[str, Any]) -> list[str]:
    """`Model`, and the digest of the file that defines it: an edited module is another problem."""
    digest = f"{MODEL_TEXT} = {found['digest']!r}"
    if found["is_class"]:
        renamed = "" if wanted.name == "Model" else " as Model"
        return [f"from {wanted.module} import {wanted.name}{renamed}", "", digest]
    return [
        "import functools",
        "from evaluators.problems.instances import copied",
        f"from {wanted.module} import {wanted.name} as the_module",
        "",
        digest,
        "Model = functools.partial(copied, the_module)",
    ]
