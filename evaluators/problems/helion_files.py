"""A file with Helion kernels as a problem: what in it is the reference, what the program, and what calls the kernels.

Three forms, by what stands beside the kernels and `get_inputs`: `Model` (with `get_init_inputs`) is the reference; a
function `reference` of the same arguments is; or neither, and the generated program is its own reference, held to
Helion's eager mode once. `ModelNew`, or `kernel_function` in the last form, calls the kernels; one is written here
where the file has none and holds one kernel. Nothing of the file is run here.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Literal, NamedTuple

from db.records import EntryPoint
from evaluators.decomposition.plain import definitions_text, import_text
from evaluators.problems.aside import ask
from evaluators.problems.checks import check_counts
from evaluators.problems.files import Function, SourceFile, returned_list
from evaluators.problems.helion_code import plain_triton
from evaluators.problems.parts import extract, needed_names, squeezed
from evaluators.problems.sizes import Number

FORM = (
    "a file with a Helion kernel defines get_inputs(), and as its reference either class Model(torch.nn.Module) with "
    "get_init_inputs(), or reference(*inputs); without one, Helion's eager mode is the reference"
)
INSTALL = "pip install '.[helion]'"
_GENERATOR = "evaluators.problems.helion_generate"
_DECORATORS = ("kernel", "jit")


class HelionFile(NamedTuple):
    """`file` is the user's with what it lacks written below it: `Model`, `get_init_inputs`, the entry point."""

    file: SourceFile
    kind: Literal["kernelbench", "triton"]
    kernels: tuple[str, ...]
    is_called_alone: bool  # the entry point was written here: it passes its arguments to the kernel

    @property
    def entry_point(self) -> EntryPoint:
        return EntryPoint.MODEL if self.kind == "kernelbench" else EntryPoint.FUNCTION

    def program(self, generated: Mapping[str, str], keeping: tuple[str, ...] = ()) -> str:
        """The entry point with plain Triton in the place of the kernels, and nothing else of the file.

        Args:
            generated: what Helion generated, by kernel; those that are never called are missing.
            keeping: further names of the file that stay.

        Raises:
            ProblemError: what was generated cannot run without Helion.
        """
        parts = [plain_triton(text, name) for name, text in generated.items()]
        lines = self.file.text.splitlines(keepends=True)
        for function in reversed(helion_kernels(self.file.tree)):
            first = min([function.lineno, *(d.lineno for d in function.decorator_list)]) - 1
            text = definitions_text([parts[list(generated).index(function.name)]]) if function.name in generated else ""
            lines[first : function.end_lineno] = [text + "\n"]
        imports = import_text(parts).splitlines()
        left = extract("".join(lines), [self.entry_point, *keeping], keeps_imports=False).splitlines()
        body = [line for line in left if line not in imports and line != "from __future__ import annotations"]
        return squeezed("\n".join([*imports, "", "", *body]))

    def reference(self, generated: Mapping[str, str]) -> str:
        """The problem's source: `Model` without what only the program needs, or the program with its inputs."""
        roots = ("get_inputs", "SMALL", "TOLERANCES", "VARIES", "FIXED")
        if self.kind == "triton":
            return self.program(generated, roots)
        return extract(self.file.text, ["Model", "get_init_inputs", *roots], keeps_imports=False)


def helion_kernels(tree: ast.Module) -> list[ast.FunctionDef]:
    """The functions at module level under Helion's decorator, by whatever name it was imported."""
    owners, names = set(), set()
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            owners |= {a.asname or "helion" for a in statement.names if a.name == "helion" or _is_part(a)}
        elif isinstance(statement, ast.ImportFrom) and statement.module == "helion":
            names |= {alias.asname or alias.name for alias in statement.names if alias.name in _DECORATORS}
    decorators = names | {f"{owner}.{name}" for owner in owners for name in _DECORATORS}
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [f for f in functions if any(_decorator(d) in decorators for d in f.decorator_list)]


def _is_part(alias: ast.alias) -> bool:
    return alias.asname is None and alias.name.startswith("helion.")


def _decorator(node: ast.expr) -> str:
    return ast.unparse(node.func if isinstance(node, ast.Call) else node)


def read_helion(file: SourceFile) -> HelionFile:
    """The form of a file that holds Helion kernels, made whole.

    Raises:
        ProblemError: something is missing; the message says what and where.
    """
    kernels = helion_kernels(file.tree)
    has_model = file.defines("Model")
    kind: Literal["kernelbench", "triton"] = "kernelbench" if has_model or file.defines("reference") else "triton"
    entry = EntryPoint.MODEL if kind == "kernelbench" else EntryPoint.FUNCTION
    _check(file, kernels, entry, ["Model"] if has_model else ["reference"])
    added = [] if file.defines("torch") else ["import torch"]
    if kind == "kernelbench" and not has_model:
        added += ["", "", *_module("Model", "reference", file.function("reference"))]
        added += [] if file.defines("get_init_inputs") else ["", "", "def get_init_inputs():", "    return []"]
    is_called_alone = not file.defines(entry)
    if is_called_alone:
        added += ["", "", *_entry(entry, kernels[0], takes_arguments=_takes_arguments(file))]
    text = file.text.rstrip("\n") + "\n" + "\n".join(added) + "\n"
    return HelionFile(SourceFile(text, file.label), kind, tuple(k.name for k in kernels), is_called_alone)


def generated_programs(
    held: HelionFile, full: Mapping[str, Number], small: Mapping[str, Number]
) -> tuple[list[dict[str, str]], bool]:
    """What Helion generates: for each configuration the text of each kernel, and whether it serves the small sizes too.

    Raises:
        ProblemError: Helion is not installed, or refuses.
    """
    if find_spec("helion") is None:
        line = helion_kernels(held.file.tree)[0].lineno
        raise held.file.error(f"{held.kernels[0]} is a Helion kernel, and Helion is not installed", line, INSTALL)
    question = {"source": held.file.text, "label": held.file.label, "form": held[1:], "full": full, "small": small}
    found = ask(_GENERATOR, question)
    return found["programs"], found["fits_small"]


def _check(file: SourceFile, kernels: list[ast.FunctionDef], entry: EntryPoint, references: list[str]) -> None:
    line = kernels[0].lineno
    inputs = file.function("get_inputs")
    if inputs is None and not file.defines("get_inputs"):
        raise file.error("no get_inputs", line, FORM)
    used = needed_names(file.tree, references) & {kernel.name for kernel in kernels}
    if used:
        raise file.error(f"{references[0]} calls the Helion kernel {min(used)}", line, "write the reference in PyTorch")
    if file.defines(entry):
        return
    if len(kernels) > 1:
        names = ", ".join(kernel.name for kernel in kernels)
        raise file.error(f"no {entry}, and several Helion kernels: {names}", line, f"add a {entry} that calls them")
    check_counts(file, inputs, kernels[0], kernels[0].name, is_method=False)


def _takes_arguments(file: SourceFile) -> bool:
    maker = file.function("get_init_inputs")
    values = returned_list(maker) if maker else None
    return maker is not None and (values is None or bool(values.elts))


def _module(name: str, function_name: str, function: Function | None, *, takes_arguments: bool = False) -> list[str]:
    """A module whose forward is a function."""
    parameters, arguments = _signature(function)
    made = ["    def __init__(self, *arguments):", "        super().__init__()", ""] if takes_arguments else []
    forward = [f"    def forward(self, {parameters}):", f"        return {function_name}({arguments})"]
    return [f"class {name}(torch.nn.Module):", *made, *forward]


def _entry(entry: EntryPoint, kernel: ast.FunctionDef, *, takes_arguments: bool) -> list[str]:
    if entry is EntryPoint.MODEL:
        return _module(entry, kernel.name, kernel, takes_arguments=takes_arguments)
    parameters, arguments = _signature(kernel)
    return [f"def {entry}({parameters}):", f"    return {kernel.name}({arguments})"]


def _signature(function: Function | None) -> tuple[str, str]:
    """Parameters without their annotations, and how they are passed on."""
    if function is None:
        return "*inputs", "*inputs"
    given = [*function.args.posonlyargs, *function.args.args]
    defaults = [None] * (len(given) - len(function.args.defaults)) + [ast.unparse(d) for d in function.args.defaults]
    star = [f"*{function.args.vararg.arg}"] if function.args.vararg else []
    parameters = [a.arg if d is None else f"{a.arg}={d}" for a, d in zip(given, defaults, strict=True)]
    return ", ".join([*parameters, *star]), ", ".join([*(a.arg for a in given), *star])
