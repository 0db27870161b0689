"""Reading one Triton kernel of Inductor's output."""

from __future__ import annotations

import ast

from evaluators.decomposition.errors import DecompositionError
from evaluators.decomposition.literals import keywords
from evaluators.decomposition.steps import Kernel
from evaluators.gates.reachable import dotted_name, is_kernel


def read_kernel(name: str, source: str) -> Kernel:
    """The kernel of that name in the source that Inductor gives to its compiler.

    Raises:
        DecompositionError: there is none, or it is under a decorator that is not known here.
    """
    function = definition(source, name)
    decorator = heuristics_of(function)
    said = keywords(decorator)
    meta, inductor = said.get("triton_meta") or {}, said.get("inductor_meta") or {}
    run_time = [a.arg for a in function.args.args if not _is_constexpr(a)]
    return Kernel(
        name=name,
        source=source,
        parameters=(*run_time, *inductor.get("extra_launcher_args", ())),
        constexprs=tuple(a.arg for a in function.args.args if _is_constexpr(a)),
        types={k: v for k, v in meta.get("signature", {}).items() if isinstance(v, str)},
        heuristics=(dotted_name(decorator.func) or "").rpartition(".")[2],
        size_hints={str(k): v for k, v in (said.get("size_hints") or {}).items()},
        mutated=tuple(inductor.get("mutated_arg_names", ())),
        grid_type=str(inductor.get("grid_type", "")),
        fixed_grid=tuple(map(str, inductor.get("fixed_grid", ()))),
        num_warps=said.get("num_warps"),
        num_stages=said.get("num_stages"),
        has_atomics=bool(inductor.get("atomic_add_found")) or "tl.atomic_" in source,
    )


def definition(source: str, name: str) -> ast.FunctionDef:
    """The kernel's function.

    Raises:
        DecompositionError: there is none.
    """
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.FunctionDef) and statement.name == name and is_kernel(statement):
            return statement
    raise DecompositionError(f"the source of {name} does not define it")


def heuristics_of(function: ast.FunctionDef) -> ast.Call:
    """The decorator of Inductor that says how the kernel is tuned."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and (dotted_name(decorator.func) or "").startswith("triton_heuristics."):
            return decorator
    raise DecompositionError(f"{function.name} is no kernel that Inductor wrote")


def _is_constexpr(argument: ast.arg) -> bool:
    return argument.annotation is not None and ast.unparse(argument.annotation).endswith("constexpr")


def pointers(kernel: Kernel) -> list[str]:
    """The parameters that take tensors, in order."""
    return [name for name in kernel.parameters if kernel.types.get(name, "").startswith("*")]


def dtype_of(kernel: Kernel, parameter: str) -> str:
    """The dtype of a pointer as torch calls it; int1 in memory is bool."""
    return _DTYPES[kernel.types[parameter].removeprefix("*")]


_DTYPES: dict[str, str] = {
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp64": "float64",
    "i1": "bool",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "fp8e4nv": "float8_e4m3fn",
    "fp8e5": "float8_e5m2",
}
