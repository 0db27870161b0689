"""What a package holds under a name. Trusted code of the user's is imported here, in a process of its own.

Started by `aside.ask` as `python -P -m evaluators.problems.importing`.
"""

from __future__ import annotations

import importlib
import inspect
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from db.errors import ProblemError
from db.hashing import content_hash
from evaluators.problems.aside import serve
from evaluators.problems.importable import INPUTS_FORM, read_importable
from evaluators.problems.module import ON_PATH


def looked_at(question: dict[str, Any]) -> dict[str, Any]:
    """Whether the name is a class, a digest of its file, and where its inputs are to be imported from.

    Raises:
        ProblemError: the package cannot be imported, has no such name, the name is no module, or inputs are missing.
    """
    package = _imported(question["module"])
    found = _member(package, question["name"])
    label = f"{question['module']}:{question['name']}"
    _check_is_module(found, label)
    inputs = None if question["has_inputs"] else _inputs(package, label, question["inputs"])
    has_init = question["has_init"] or bool(inputs and inputs["has_init"])
    if inspect.isclass(found) and not has_init:
        _check_takes_nothing(found, label)
    return {"is_class": inspect.isclass(found), "digest": _digest(found, package), "inputs": inputs}


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as cause:
        missing = f"no package {cause.name!r}" if cause.name else str(cause)
        raise ProblemError(f"{name} cannot be imported: {missing}", ON_PATH) from cause
    except Exception as cause:  # whatever the user's package raises is told to the user
        hint = f"it fails by itself too: python -c 'import {name}' shows the whole traceback"
        raise ProblemError(f"{name} cannot be imported: {type(cause).__name__}: {cause}", hint) from cause


def _member(package: ModuleType, name: str) -> Any:
    if hasattr(package, name):
        return getattr(package, name)
    near = get_close_matches(name, dir(package), n=1, cutoff=0.5)
    modules = [key for key, value in vars(package).items() if _is_module(value)]
    listed = f"its modules: {', '.join(sorted(modules)[:12])}" if modules else "it has no modules"
    raise ProblemError(f"{package.__name__} has no {name}", f"did you mean {near[0]!r}?" if near else listed)


def _is_module(value: Any) -> bool:
    return isinstance(value, nn.Module) or (inspect.isclass(value) and issubclass(value, nn.Module))


def _check_is_module(found: Any, label: str) -> None:
    if not _is_module(found):
        what = f"the class {found.__name__}" if inspect.isclass(found) else f"of type {type(found).__name__}"
        hint = "give a class of torch.nn.Module or an instance of one; a function fits in one: see docs/problems.md"
        raise ProblemError(f"{label} is {what}, not a torch.nn.Module", hint)


def _inputs(package: ModuleType, label: str, wanted: str) -> dict[str, Any]:
    """Where inputs are imported from: the function that was named, or `get_inputs` beside the module."""
    named = read_importable(wanted)
    owner = package if named is None else _imported(named.module)
    name = "get_inputs" if named is None else named.name
    if named is None and not hasattr(owner, name):
        raise ProblemError(f"{label} has no inputs: {owner.__name__} has no get_inputs", INPUTS_FORM)
    if not callable(_member(owner, name)):
        raise ProblemError(f"{owner.__name__}:{name} is no function", INPUTS_FORM)
    return {"module": owner.__name__, "name": name, "has_init": hasattr(owner, "get_init_inputs")}


def _check_takes_nothing(found: type, label: str) -> None:
    """Without `get_init_inputs` a class is made without arguments."""
    try:
        inspect.signature(found).bind()
    except TypeError as cause:
        hint = "add get_init_inputs(), which returns the list of its arguments, beside get_inputs()"
        raise ProblemError(f"{label} takes arguments, and there is no get_init_inputs: {cause}", hint) from cause
    except ValueError:  # no signature is to be had: making it will tell
        return


def _digest(found: Any, package: ModuleType) -> str:
    """Of the text of the file that defines it."""
    class_ = found if inspect.isclass(found) else type(found)
    texts = {inspect.getsourcefile(class_), package.__file__}
    return content_hash(*(Path(text).read_text() for text in sorted(filter(None, texts))))


if __name__ == "__main__":
    serve(looked_at)
