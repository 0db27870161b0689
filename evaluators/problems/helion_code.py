"""The Triton code that Helion generates, as plain Triton with an explicit launch that needs no Helion.

Helion (helionlang.com) answers `kernel.bind(args).to_triton_code(config)` with a module: constants of the
configuration, `@triton.jit` kernels, and a host function of the kernel's name that launches them through
`helion.runtime`. Here the launches become Triton's own, constants become compile-time arguments of the launch, and what
the text takes from Helion or from Inductor is written out. Pure: neither Helion nor torch is imported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import NamedTuple

from db.errors import ProblemError
from evaluators.decomposition.plain import IMPORTS, Plain, plain
from evaluators.decomposition.steps import Kernel
from evaluators.gates.reachable import dotted_name, is_kernel

_HELIONS = ("helion", "hl", "nvshmem", "requires_nvshmem", "_source_module", "_launcher", "_default_launcher")
_KNOWN_ANNOTATIONS = {"torch", "int", "float", "bool", "str", "list", "tuple", "None"}
_LAUNCHER = "_launcher"
_GRID = "_grid_of_launch_"  # stands for a grid until the text is there
_NAN_REDUCTION = """\
@triton.jit
def {name}_or_nan(a, b):
    return tl.{name}imum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def {name}_propagate_nan(x, axis: tl.constexpr):
    if tl.constexpr(x.dtype.primitive_bitwidth) < tl.constexpr(32):
        if tl.constexpr(x.dtype.is_floating()):
            x = x.to(tl.float32)
        else:
            x = x.to(tl.int32)
    return tl.reduce(x, axis, {name}_or_nan)
"""
_ALLOCATE = """\
def scratch_memory(size, alignment, stream):
    return torch.empty(size, device="cuda", dtype=torch.int8)
"""
_HELPERS = {f"{name}_propagate_nan": _NAN_REDUCTION.format(name=name) for name in ("max", "min")}


class _Parts(NamedTuple):
    """The statements of a generated module by what they are."""

    imports: list[str]
    constants: dict[str, ast.expr]  # _BLOCK_SIZE_0 = tl.constexpr(64)
    ones: set[str]  # constants that are 1: the kernel was written for that and takes nothing else
    kernels: dict[str, ast.FunctionDef]
    host: ast.FunctionDef
    needs_allocator: bool


def plain_triton(generated: str, name: str) -> Plain:
    """The definitions that stand for the Helion function `name`, which they define too, and what they import.

    Raises:
        ProblemError: the text is not of the known form, or needs Helion when it runs: what for is said.
    """
    parts = _parts(generated, name)
    launched = _launched(parts.host) & parts.kernels.keys()
    used = {kernel: _constants_of(parts.kernels[kernel], parts.constants) for kernel in launched}
    for kernel in launched:
        _add_parameters(parts.kernels[kernel], used[kernel])
    helpers = _helpers_of(parts.kernels.values())
    kernels = [_Kernel(parts.ones).visit(kernel) for kernel in parts.kernels.values()]
    host = _Host(parts, used).text()
    definitions = {key: ast.unparse(value) for key, value in _kept_constants(parts, launched).items()}
    source = "\n\n\n".join([*(_HELPERS[helper] for helper in helpers), *map(ast.unparse, kernels)])
    found = plain(Kernel(name=name, source=source, parameters=(), constexprs=(), heuristics=""), in_place=True)
    definitions |= found.definitions
    if parts.needs_allocator:
        definitions["scratch_memory"] = _ALLOCATE
    definitions[name] = host
    _check_free_of_helion(definitions, name)
    imports = [line for line in parts.imports if _is_used(line, definitions)]
    return Plain(definitions, tuple(sorted({*found.imports, *imports} - set(IMPORTS))))


# -------------------------------------------------------------------------------------------------- the generated text


def _parts(generated: str, name: str) -> _Parts:
    tree = ast.parse(generated)
    imports: list[str] = []
    constants: dict[str, ast.expr] = {}
    functions: dict[str, ast.FunctionDef] = {}
    needs_allocator = False
    for statement in tree.body:
        match statement:
            case ast.Import() | ast.ImportFrom():
                imports += _own_imports(statement)
            case ast.Assign(targets=[ast.Name(id=constant)], value=ast.Call(args=[value])) if _is_constexpr(statement):
                constants[constant] = value
            case ast.FunctionDef(name=function):
                functions[function] = statement
            case ast.Expr(value=ast.Call(func=called)) if _called(called) == "set_triton_allocator":
                needs_allocator = True
            case _:
                raise _refusal(name, f"it has {ast.unparse(statement).splitlines()[0]!r} at module level")
    host = functions.pop(name, None)
    others = [function.name for function in functions.values() if not is_kernel(function)]
    if host is None or others:
        raise _refusal(name, f"it defines the host function {others[0]}" if others else "it has no host function")
    ones = {name for name, value in constants.items() if ast.unparse(value) == "1"}
    constants = {name: value for name, value in constants.items() if name not in ones}
    return _Parts(imports, constants, ones, functions, host, needs_allocator)


def _own_imports(statement: ast.Import | ast.ImportFrom) -> list[str]:
    """What is neither Helion's nor Inductor's, a line for each name."""
    module = statement.module or "" if isinstance(statement, ast.ImportFrom) else ""
    if module == "__future__" or module.split(".")[0] == "helion" or module.startswith("torch._inductor"):
        return []
    kept = [alias for alias in statement.names if (alias.asname or alias.name) not in _HELIONS]
    if isinstance(statement, ast.Import):
        return [ast.unparse(ast.Import(names=[alias])) for alias in kept if alias.name.split(".")[0] != "helion"]
    return [ast.unparse(ast.ImportFrom(module=module, names=[alias], level=0)) for alias in kept]


def _is_constexpr(statement: ast.Assign) -> bool:
    return isinstance(statement.value, ast.Call) and _called(statement.value.func) == "constexpr"


def _called(function: ast.expr) -> str:
    """The last part of a dotted name: `set_triton_allocator` of `helion.runtime.set_triton_allocator`."""
    return (dotted_name(function) or "").rpartition(".")[2]


def _launched(host: ast.FunctionDef) -> set[str]:
    calls = [node for node in ast.walk(host) if isinstance(node, ast.Call) and _is_launch(node)]
    return {ast.unparse(call.args[0]) for call in calls if call.args}


def _is_launch(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id == _LAUNCHER


def _constants_of(kernel: ast.FunctionDef, constants: dict[str, ast.expr]) -> list[str]:
    names = {node.id for node in ast.walk(kernel) if isinstance(node, ast.Name)}
    return [constant for constant in constants if constant in names]


def _kept_constants(parts: _Parts, launched: set[str]) -> dict[str, ast.Assign]:
    """Constants that functions of the kernels use: they stay at module level."""
    called = [function for name, function in parts.kernels.items() if name not in launched]
    names = {constant for function in called for constant in _constants_of(function, parts.constants)}
    return {name: ast.parse(f"{name} = tl.constexpr({ast.unparse(parts.constants[name])})").body[0] for name in names}  # type: ignore[misc]


# ------------------------------------------------------------------------------------------------------------- kernels


def _add_parameters(kernel: ast.FunctionDef, constants: Iterable[str]) -> None:
    annotation = ast.parse("tl.constexpr", mode="eval").body
    kernel.args.args += [ast.arg(arg=constant, annotation=annotation) for constant in constants]


def _helpers_of(kernels: Iterable[ast.FunctionDef]) -> list[str]:
    attributes = [n for kernel in kernels for n in ast.walk(kernel) if isinstance(n, ast.Attribute)]
    named = {node.attr for node in attributes if _is_helper(node)}
    return [helper for helper in _HELPERS if helper in named]


def _is_helper(node: ast.Attribute) -> bool:
    return dotted_name(node) == f"helion_triton_helpers.{node.attr}"


class _Kernel(ast.NodeTransformer):
    """Helion's helpers by the names that they are written out under, tiles of one element by their size."""

    def __init__(self, ones: set[str]) -> None:
        self._ones = ones

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(value=1) if node.id in self._ones else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if _is_helper(node) and node.attr in _HELPERS:
            return ast.Name(id=node.attr, ctx=ast.Load())
        return self.generic_visit(node)  # type: ignore[return-value]


# ------------------------------------------------------------------------------------------------------- host function


class _Host(ast.NodeTransformer):
    """The host function with launches of Triton's own."""

    def __init__(self, parts: _Parts, used: dict[str, list[str]]) -> None:
        self._parts, self._used = parts, used
        self._grids: list[str] = []
        self._assigned = {
            n.id for n in ast.walk(parts.host) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }

    def text(self) -> str:
        """The function, with the grids of launches in parentheses."""
        text = ast.unparse(ast.fix_missing_locations(self._rewritten()))
        for number, grid in enumerate(self._grids):
            text = text.replace(f"[{_GRID}{number}]", f"[{grid}]")
        return text

    def _rewritten(self) -> ast.FunctionDef:
        host = self._parts.host
        host.args.kwonlyargs, host.args.kw_defaults = [], []
        for argument in [*host.args.posonlyargs, *host.args.args]:
            argument.annotation = _known(argument.annotation)
        host.returns = _known(host.returns)
        given = [name for names in self._used.values() for name in names if name not in self._assigned]
        values = [f"{name} = {ast.unparse(self._parts.constants[name])}" for name in dict.fromkeys(given)]
        allocator = ["triton.set_allocator(scratch_memory)"] if self._parts.needs_allocator else []
        head = ast.parse("\n".join([*allocator, *values])).body
        host.body = [*head, *(self.visit(statement) for statement in host.body)]
        return host

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name = dotted_name(node.func) or ""
        if _is_launch(node):
            return self._launch(node)
        if name == "helion.runtime.get_num_sm":
            return self._processors(node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id == "_source_module":
            return ast.Name(id=node.attr, ctx=ast.Load())
        return self.generic_visit(node)  # type: ignore[return-value]

    def _launch(self, node: ast.Call) -> ast.expr:
        kernel, grid, *arguments = node.args
        definition = self._parts.kernels.get(ast.unparse(kernel))
        own = [keyword.arg for keyword in node.keywords if keyword.arg is None or keyword.arg.startswith("_")]
        if definition is None or own:
            what = f"the launcher's {own[0]}" if own else f"the kernel {ast.unparse(kernel)}"
            raise _refusal(self._parts.host.name, f"its launch needs {what}")
        constants = self._used[definition.name]
        parameters = definition.args.args[: len(definition.args.args) - len(constants)]
        pairs = list(zip(parameters, arguments, strict=False))
        is_plain = [not _is_constant(parameter) for parameter, _ in pairs]
        n_plain = is_plain.index(False) if False in is_plain else len(pairs)
        named = [ast.keyword(arg=parameter.arg, value=value) for parameter, value in pairs[n_plain:]]
        named += [ast.keyword(arg=name, value=ast.Name(id=name, ctx=ast.Load())) for name in constants]
        launcher = ast.Subscript(value=kernel, slice=ast.Name(id=f"{_GRID}{len(self._grids)}"), ctx=ast.Load())
        self._grids.append(ast.unparse(grid))
        return ast.Call(func=launcher, args=arguments[:n_plain], keywords=[*named, *node.keywords])

    def _processors(self, node: ast.Call) -> ast.expr:
        """The number of multiprocessors, less those that are kept free."""
        reserved = [ast.unparse(keyword.value) for keyword in node.keywords if keyword.arg == "reserved_sms"]
        text = f"torch.cuda.get_device_properties({ast.unparse(node.args[0])}).multi_processor_count"
        if reserved and reserved[0] != "0":
            text = f"max({text} - {reserved[0]}, 1)"
        return ast.parse(text, mode="eval").body


def _is_constant(parameter: ast.arg) -> bool:
    return parameter.annotation is not None and "constexpr" in ast.unparse(parameter.annotation)


def _known(annotation: ast.expr | None) -> ast.expr | None:
    """An annotation that needs nothing but torch and Python; None for others."""
    if annotation is None:
        return None
    names = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
    return annotation if names <= _KNOWN_ANNOTATIONS else None


# --------------------------------------------------------------------------------------------------------------- checks


def _check_free_of_helion(definitions: dict[str, str], name: str) -> None:
    for text in definitions.values():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Name) and (node.id in _HELIONS or node.id.startswith("helion_")):
                line = text.splitlines()[node.lineno - 1].strip()
                raise _refusal(name, f"it says {line[:160]!r}")


def _is_used(line: str, definitions: dict[str, str]) -> bool:
    statement = ast.parse(line).body[0]
    assert isinstance(statement, ast.Import | ast.ImportFrom)
    bound = statement.names[0].asname or statement.names[0].name.split(".")[0]
    names = {n.id for text in definitions.values() for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}
    return bound in names


def _refusal(name: str, why: str) -> ProblemError:
    return ProblemError(
        f"what Helion generates for {name} cannot run without Helion: {why}",
        "give it another configuration (pid_type flat, indexing pointer), or write the program as ModelNew in Triton",
    )
