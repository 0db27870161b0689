"""What a problem's file must define. Each check names the missing piece, the line, and what a right file looks like."""

from __future__ import annotations

import ast
from difflib import get_close_matches

from evaluators.problems.files import Function, SourceFile, method, n_arguments, returned_list

KERNELBENCH_FORM = (
    "a KernelBench file defines class Model(torch.nn.Module) with forward, get_inputs() that returns the list of "
    "forward's arguments, and get_init_inputs() that returns the list of Model's arguments ([] when it takes none)"
)
TRITON_FORM = (
    "a Triton file defines kernel_function(*inputs), which launches the kernel and returns the outputs, and "
    "get_inputs() that returns the list of its arguments"
)


def kind_of(file: SourceFile) -> str:
    """ "kernelbench" or "triton", by what the file defines.

    Raises:
        ProblemError: it defines neither `Model` nor `kernel_function`.
    """
    if file.defines("Model"):
        return "kernelbench"
    if file.defines("kernel_function"):
        return "triton"
    new = file.class_("ModelNew")
    if new is not None:
        hint = f"`evolve check {file.label} --problem NAME` judges a candidate; {KERNELBENCH_FORM}"
        raise file.error("ModelNew without Model: this is a candidate, not a problem", new.lineno, hint)
    line, guess = _near_definition(file)
    raise file.error(f"no Model and no kernel_function{guess}", line, f"{KERNELBENCH_FORM}; {TRITON_FORM}")


def check_kernelbench(file: SourceFile) -> None:
    """Raises ProblemError unless the file defines all that a KernelBench problem needs."""
    model = file.class_("Model")
    if model is None and file.function("Model") is not None:
        raise file.error("Model is a function, not a class", file.function("Model").lineno, KERNELBENCH_FORM)  # type: ignore[union-attr]
    line = model.lineno if model else None
    inputs = _input_function(file, "get_inputs", line, KERNELBENCH_FORM)
    init_inputs = _input_function(file, "get_init_inputs", line, KERNELBENCH_FORM)
    if model is None:
        return  # imported: its parts are not to be seen here
    forward, init = method(model, "forward"), method(model, "__init__")
    if forward is None and _is_plain_module(model):
        raise file.error("Model has no forward", model.lineno, KERNELBENCH_FORM)
    check_counts(file, inputs, forward, "Model.forward", is_method=True)
    check_counts(file, init_inputs, init, "Model.__init__", is_method=True)


def check_triton(file: SourceFile) -> None:
    """Raises ProblemError unless the file defines all that a standalone Triton problem needs."""
    function = file.function("kernel_function")
    if function is not None and any("jit" in ast.unparse(d) for d in function.decorator_list):
        message = "kernel_function is itself a @triton.jit kernel: it must be the host function that launches one"
        raise file.error(message, function.lineno, TRITON_FORM)
    inputs = _input_function(file, "get_inputs", function.lineno if function else None, TRITON_FORM)
    check_counts(file, inputs, function, "kernel_function", is_method=False)


def _input_function(file: SourceFile, name: str, owner_line: int | None, form: str) -> Function | None:
    """The function that makes inputs; None when it is imported."""
    function = file.function(name)
    if function is None and not file.defines(name):
        raise file.error(f"no {name}{_misspelt(file, name)}", owner_line, form)
    if function is not None and n_arguments(function, is_method=False)[0] > 0:
        message = f"{name} must take no arguments, it takes {ast.unparse(function.args)}"
        raise file.error(message, function.lineno, "put its sizes at module level: batch_size = 64")
    return function


def check_counts(
    file: SourceFile, maker: Function | None, taker: Function | None, taker_name: str, *, is_method: bool
) -> None:
    """The number of values that one function returns and of arguments that another takes, where both can be read."""
    values = returned_list(maker) if maker else None
    if maker is None or taker is None or values is None:
        return
    fewest, most = n_arguments(taker, is_method)
    n = len(values.elts)
    if n < fewest or (most is not None and n > most):
        takes = f"at least {fewest}" if most is None else f"{fewest}" if fewest == most else f"{fewest} to {most}"
        message = f"{maker.name} returns {n} values, but {taker_name} (line {taker.lineno}) takes {takes}"
        raise file.error(message, values.lineno, f"let {maker.name} return one value for each argument")


def _is_plain_module(model: ast.ClassDef) -> bool:
    return [ast.unparse(base).split(".")[-1] for base in model.bases] in ([], ["Module"])


def _near_definition(file: SourceFile) -> tuple[int | None, str]:
    """A module class or a function that may be meant, with its line."""
    modules = [c for c in file.classes() if any(ast.unparse(b).endswith("Module") for b in c.bases)]
    if modules:
        return modules[-1].lineno, f" (is class {modules[-1].name} meant to be Model?)"
    functions = [n for n in file.tree.body if isinstance(n, Function) and not n.decorator_list]
    near = get_close_matches("kernel_function", [f.name for f in functions], n=1, cutoff=0.5)
    return next(((f.lineno, f" (is {f.name} meant to be it?)") for f in functions if f.name in near), (None, ""))


def _misspelt(file: SourceFile, name: str) -> str:
    names = [n.name for n in file.tree.body if isinstance(n, Function)]
    near = get_close_matches(name, [n for n in names if n not in ("get_inputs", "get_init_inputs")], n=1, cutoff=0.7)
    return f" (is {near[0]} meant to be it?)" if near else ""
