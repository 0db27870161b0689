"""Reading Inductor's output: Python text in, records out. Nothing of it is run, and comments are not looked at."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from db.records import TensorSpec
from evaluators.decomposition.errors import DecompositionError
from evaluators.decomposition.kernels import pointers, read_kernel
from evaluators.decomposition.literals import literal, whole_numbers
from evaluators.decomposition.steps import (
    Allocation,
    AnyStep,
    Extern,
    Fill,
    Item,
    Kernel,
    Launch,
    Layout,
    Operand,
    Output,
    Release,
    Scalar,
    View,
)
from evaluators.gates.reachable import dotted_name

_REINTERPRET = "reinterpret_tensor"
_LIBRARIES = ("extern_kernels.", "torch.ops.", "aten.", "inductor_ops.", "_quantized.")
_NOTHING = {"args.clear", "torch.cuda.set_device", "assert_alignment", "run_intermediate_hooks"}


def read_output(source: str) -> Output:
    """The steps of one graph.

    Raises:
        DecompositionError: it is no output for a GPU, or does something that is not known here; the message says what.
    """
    tree = ast.parse(source)
    kernels = _kernels(tree)
    call = _call(tree)
    arguments = _argument_names(call)
    reader = _CallReader(kernels)
    reader.read(call.body)
    output = Output(
        source=source,
        arguments=arguments,
        argument_specs=_argument_specs(tree, arguments),
        kernels=kernels,
        steps=tuple(reader.steps),
        returns=tuple(reader.returns),
        constants=tuple(_constants(tree)),
    )
    _check_launches(output)
    return output


# ---------------------------------------------------------------------------------------------------- the whole text


def _kernels(tree: ast.Module) -> dict[str, Kernel]:
    """Every `name = async_compile.triton('name', '''source''', ...)`."""
    found = {}
    for statement in tree.body:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
            continue
        function = dotted_name(statement.value.func) or ""
        if function == "async_compile.triton":
            kernel = read_kernel(literal(statement.value.args[0]), literal(statement.value.args[1]))
            found[kernel.name] = kernel
        elif function.startswith("async_compile."):
            raise DecompositionError(
                f"the graph has a kernel of another kind: {function.removeprefix('async_compile.')}"
            )
    return found


def _call(tree: ast.Module) -> ast.FunctionDef:
    """`call(args)`, a function or a method of `Runner`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "call":
            return node
    raise DecompositionError("this is no output of Inductor's Python wrapper: it defines no call")


def _argument_names(call: ast.FunctionDef) -> tuple[str, ...]:
    first = call.body[0]
    if isinstance(first, ast.Assign) and ast.unparse(first.value) == "args":
        target = first.targets[0]
        return tuple(e.id for e in getattr(target, "elts", [target]) if isinstance(e, ast.Name))
    return ()


def _constants(tree: ast.Module) -> Iterator[str]:
    """`name = None` at module level: a tensor that Inductor puts there when it loads the module."""
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.value) == "None":
            yield from (target.id for target in statement.targets if isinstance(target, ast.Name))


def _argument_specs(tree: ast.Module, arguments: tuple[str, ...]) -> dict[str, TensorSpec]:
    """Shapes, strides and dtypes, from the part of the output that makes random arguments for a benchmark."""
    specs = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            name, made = node.targets[0], node.value
            if isinstance(name, ast.Name) and dotted_name(made.func) == "rand_strided" and name.id in arguments:
                specs[name.id] = _random_spec(made)
    return specs


def _random_spec(made: ast.Call) -> TensorSpec:
    dtype = next(ast.unparse(k.value) for k in made.keywords if k.arg == "dtype")
    return _spec(made.args[0], made.args[1], dtype)


def _spec(shape: ast.expr, strides: ast.expr, dtype: str) -> TensorSpec:
    try:
        return TensorSpec(
            shape=whole_numbers(shape), strides=whole_numbers(strides), dtype=dtype.removeprefix("torch.")
        )
    except ValueError as error:
        raise DecompositionError(f"a size is not known: {error}", "compile with dynamic=False") from None


# ------------------------------------------------------------------------------------------------------ call(args)


class _CallReader:
    """Reads the statements of `call` one after the other."""

    def __init__(self, kernels: dict[str, Kernel]) -> None:
        self.steps: list[AnyStep] = []
        self.returns: list[Operand | Scalar] = []
        self._kernels = kernels

    def read(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.With):
            self._check_device(statement)
            self.read(statement.body)
        elif isinstance(statement, ast.Return):
            self._return(statement)
        elif isinstance(statement, ast.Delete):
            names = tuple(t.id for t in statement.targets if isinstance(t, ast.Name))
            self.steps.append(Release(text=ast.unparse(statement), names=names))
        elif isinstance(statement, ast.Assign):
            self._assign(statement)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            self._call(statement, statement.value, "")
        else:
            raise _unknown(statement)

    def _check_device(self, statement: ast.With) -> None:
        guard = ast.unparse(statement.items[0].context_expr)
        if guard != "torch.cuda._DeviceGuard(0)":
            raise DecompositionError(f"the graph does not run on one GPU alone: {guard}")

    def _return(self, statement: ast.Return) -> None:
        value = statement.value
        self.returns = [_operand(e) for e in value.elts] if isinstance(value, ast.Tuple) else []

    def _assign(self, statement: ast.Assign) -> None:
        target, value = statement.targets[0], statement.value
        if ast.unparse(value) == "args":
            return
        if not isinstance(target, ast.Name):
            raise _unknown(statement)
        if isinstance(value, ast.Call):
            self._call(statement, value, target.id)
        elif isinstance(value, ast.Name):
            operand = Operand(name=value.id)
            self.steps.append(View(text=ast.unparse(statement), name=target.id, operand=operand))
        elif isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name):
            of, index = value.value.id, literal(value.slice)
            self.steps.append(Item(text=ast.unparse(statement), name=target.id, of=of, index=index))
        else:
            raise _unknown(statement)

    def _call(self, statement: ast.stmt, call: ast.Call, name: str) -> None:
        function, text = dotted_name(call.func) or "", ast.unparse(statement)
        owner, _, method = function.rpartition(".")
        if function in _NOTHING or function == "get_raw_stream":
            return
        if function == "empty_strided_cuda":
            spec = _spec(call.args[0], call.args[1], ast.unparse(call.args[2]))
            self.steps.append(Allocation(text=text, name=name, spec=spec))
        elif function == _REINTERPRET:
            operand = _operand(call)
            assert isinstance(operand, Operand)
            self.steps.append(View(text=text, name=name, operand=operand))
        elif function == "assert_size_stride":
            self.steps.append(_layout(text, call))
        elif method == "run" and owner in self._kernels:
            arguments = tuple(_operand(argument) for argument in call.args)
            self.steps.append(Launch(text=text, kernel=owner, arguments=arguments))
        elif method == "zero_" and not call.args:
            self.steps.append(Fill(text=text, name=owner))
        elif function.startswith(_LIBRARIES):
            self.steps.append(_extern(text, function, call, name))
        else:
            raise _unknown(statement)


def _layout(text: str, call: ast.Call) -> Layout:
    name = ast.unparse(call.args[0])
    spec = _spec(call.args[1], call.args[2], "")
    return Layout(text=text, name=name, shape=spec.shape, strides=spec.strides)


def _operand(node: ast.expr) -> Operand | Scalar:
    """A variable, a view of one, or a plain value."""
    if isinstance(node, ast.Name):
        return Operand(name=node.id) if node.id != "None" else None
    if isinstance(node, ast.Call) and dotted_name(node.func) == _REINTERPRET and isinstance(node.args[0], ast.Name):
        spec = _spec(node.args[1], node.args[2], "")
        offset = literal(node.args[3]) if len(node.args) > 3 else 0
        return Operand(name=node.args[0].id, shape=spec.shape, strides=spec.strides, offset=offset, is_view=True)
    value = literal(node)
    if value is None or isinstance(value, int | float | bool):
        return value
    raise DecompositionError(f"an argument is not understood: {ast.unparse(node)}", "compile with dynamic=False")


def _extern(text: str, function: str, call: ast.Call, result: str) -> Extern:
    """Writes what `out=` names and, where the operation's name ends in "_", its first argument."""
    outs = [k.value for k in call.keywords if k.arg == "out"]
    writes = [name for out in outs for name in _names(out)]
    operation = function.removesuffix(".default").rpartition(".")[2]
    if operation.endswith("_") and call.args:
        writes += _names(call.args[0])[:1]
    reads = [
        name for value in [*call.args, *(k.value for k in call.keywords if k.arg != "out")] for name in _names(value)
    ]
    return Extern(text=text, target=function, reads=tuple(reads), writes=tuple(writes), result=result)


def _names(node: ast.expr) -> list[str]:
    """The variables of tensors in an expression, in order."""
    names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
    return [name for name in names if name not in (_REINTERPRET, "torch", "aten", "device", "inf", "nan")]


def _check_launches(output: Output) -> None:
    """Every parameter is bound: those that take tensors to a tensor, the others to a number."""
    for launch in output.launches:
        kernel = output.kernels[launch.kernel]
        if len(launch.arguments) != len(kernel.parameters):
            raise DecompositionError(f"{kernel.name} takes {len(kernel.parameters)} arguments: {launch.text[:200]}")
        takes_tensor = set(pointers(kernel))
        for name, value in output.bound(launch).items():
            if name not in takes_tensor and isinstance(value, Operand):
                raise DecompositionError(f"a size is not known: {value.name}", "compile with dynamic=False")


def _unknown(statement: ast.stmt) -> DecompositionError:
    return DecompositionError(f"a statement of the output is not understood: {ast.unparse(statement)[:200]}")
