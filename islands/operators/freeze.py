"""Autotuned programs become plain ones: every configuration is a program of its own, and the archive remembers them."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import libcst as cst

from db.errors import SeedError
from islands.operators.structural.analysis import Program, Scope, analyse, argument, dotted_name
from islands.operators.structural.names import bindings
from islands.operators.structural.places import call_option
from islands.operators.structural.text import Edit, line_end, splice

MAX_CONFIGURATIONS = 1024
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_HINT = "write the configurations as a list of triton.Config(...), or leave @triton.autotune out and pass the values"

_EXPRESSIONS = (
    *(ast.Expression, ast.List, ast.Tuple, ast.Dict, ast.Constant, ast.Name, ast.Load, ast.Store, ast.Starred),
    *(ast.ListComp, ast.GeneratorExp, ast.comprehension, ast.Call, ast.keyword, ast.IfExp, ast.Compare, ast.BoolOp),
    *(ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
)


class Configuration(NamedTuple):
    """One `triton.Config`: values of compile-time parameters, and options of the launch."""

    values: Mapping[str, Any]
    options: Mapping[str, Any]


def freeze_autotune(source: str) -> list[str]:
    """The programs that an autotuned program stands for, in the order of its configurations.

    Values and options of a configuration move into the launches; grid functions go on reading them from there. When
    several kernels are autotuned, program i takes configuration i of each, from the start again where one has fewer.
    A source without `@triton.autotune` is its own only program.

    Raises:
        SeedError: the configurations cannot be read without running the program.
    """
    program = analyse(source)
    if program is None or "autotune" not in source:
        return [source]
    tuned = {name: d for name, k in program.kernels.items() if (d := _autotune_of(program, k)) is not None}
    configurations = {name: _configurations(program, d) for name, d in tuned.items()}
    n_programs = max((len(c) for c in configurations.values()), default=0)
    frozen = [
        _frozen(program, tuned, {name: c[i % len(c)] for name, c in configurations.items()}) for i in range(n_programs)
    ]
    return list(dict.fromkeys(frozen)) or [source]


def _autotune_of(program: Program, kernel: Scope) -> cst.Decorator | None:
    for decorator in cast(cst.FunctionDef, kernel.node).decorators:
        call = decorator.decorator
        if isinstance(call, cst.Call) and program.qualified(call.func).endswith("autotune"):
            return decorator
    return None


def _frozen(program: Program, tuned: Mapping[str, cst.Decorator], chosen: Mapping[str, Configuration]) -> str:
    edits: list[Edit] = []
    for name, decorator in tuned.items():
        start, end = program.span(decorator)
        start = program.source.rfind("\n", 0, start) + 1
        edits.append(Edit(start, line_end(program.source, end) + 1, ""))
        for launch in (x for x in program.all_launches if x.kernel_name == name):
            for key, value in {**chosen[name].values, **chosen[name].options}.items():
                if key not in launch.arguments:
                    edits += call_option(program, launch.call, key).place.set(repr(value))
    source = splice(program.source, edits)
    if source is None:
        raise SeedError("@triton.autotune cannot be taken out of this program", _HINT)
    return source


def _configurations(program: Program, decorator: cst.Decorator) -> list[Configuration]:
    """The configurations of a decorator, by evaluating the expression that lists them and nothing else."""
    node = argument(cast(cst.Call, decorator.decorator), 0, "configs")
    line = program.line_of(program.span(decorator).start)
    try:
        found = _evaluate(program, node)
        configurations = [c for c in found if isinstance(c, Configuration)]
    except (TypeError, ValueError, NameError, SyntaxError, KeyError, ZeroDivisionError, RecursionError) as error:
        raise SeedError(
            f"the configurations of @triton.autotune in line {line} cannot be read: {error}", _HINT
        ) from error
    if not configurations or len(configurations) != len(found) or len(found) > MAX_CONFIGURATIONS:
        raise SeedError(f"@triton.autotune in line {line} lists {len(found)} configurations", _HINT)
    return configurations


def _config(kwargs: Mapping[str, Any], num_warps: int = 4, num_stages: int = 3, **more: Any) -> Configuration:
    """Stands in for `triton.Config`."""
    options = {"num_warps": num_warps, "num_stages": num_stages, **more}
    unknown = [name for name, value in options.items() if name not in _OPTIONS and value is not None]
    if unknown:
        raise ValueError(f"{', '.join(unknown)} cannot move into a launch")
    return Configuration(dict(kwargs), {name: value for name, value in options.items() if value is not None})


_FUNCTIONS = {
    "range": range,
    "list": list,
    "tuple": tuple,
    "dict": dict,
    "min": min,
    "max": max,
    "len": len,
    "zip": zip,
}


def _evaluate(program: Program, node: cst.CSTNode | None) -> list[Any]:
    if node is None:
        raise ValueError("there are none")
    expression = ast.parse(program.text(node).strip(), mode="eval")
    expression = ast.fix_missing_locations(_ConfigNames().visit(expression))
    names = {n.id for n in ast.walk(expression) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    bound = {n.id for n in ast.walk(expression) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for part in ast.walk(expression):
        if not isinstance(part, _EXPRESSIONS):
            raise ValueError(f"{type(part).__name__} in line {program.line_of(program.span(node).start)}")
    known: dict[str, Any] = {"Config": _config, **_FUNCTIONS}
    known |= {name: _value_of(program, name) for name in sorted(names - bound - known.keys())}
    # only literals, comprehensions and the functions above are left: nothing of the program runs
    return list(eval(compile(expression, "<configurations>", "eval"), {"__builtins__": {}, **known}))


class _ConfigNames(ast.NodeTransformer):
    """`triton.Config` becomes `Config`."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return ast.Name("Config", ast.Load()) if node.attr == "Config" else node


def _value_of(program: Program, name: str) -> Any:
    """A name of the module: a list or number that is written out, or a function that returns one."""
    local = bindings(program, program.root).get(name, [])
    if len(local) == 1 and local[0].value is not None:
        return _evaluate_any(program, local[0].value)
    function = next((s for s in program.scopes if s.name == name and not s.is_kernel), None)
    returned = [r.value for r in function.all(cst.Return) if r.value is not None] if function is not None else []
    if not returned:
        raise NameError(f"{name} is not a constant of the module")
    # where a function distinguishes vendors, NVIDIA's configurations come first
    value = _evaluate(program, returned[0])
    return lambda: value


def _evaluate_any(program: Program, node: cst.BaseExpression) -> Any:
    """A literal, or a list of configurations."""
    try:
        return ast.literal_eval(program.text(node))
    except (ValueError, SyntaxError):
        return _evaluate(program, node)


def carries_autotune(source: str) -> bool:
    """Whether a program still asks Triton to choose among configurations."""
    program = analyse(source)
    calls = [] if program is None else [c for s in program.scopes for c in s.all(cst.Call)]
    return any(dotted_name(c.func).rpartition(".")[2] == "autotune" for c in calls)
