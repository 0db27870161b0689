"""What Triton's interpreter lacks for ordinary kernels, added from outside. For triton 3.6 and newer.

Each shim is one function, named for what works afterwards; `apply` installs them all, once, in a process that runs
under TRITON_INTERPRET=1 and before a candidate is imported (it may bind functions of libdevice by name).
"""

from __future__ import annotations

import ast
import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import triton
import triton.language as tl
from triton.runtime import interpreter

from db.records import Hardware
from evaluators.capture.target_driver import TargetDriver
from evaluators.hardware import load_hardware
from evaluators.interpreter import bfloat16, libdevice
from evaluators.interpreter.device import ANY_GPU

_LIBDEVICE_MODULES = ("triton.language.extra.libdevice", "triton.language.extra.cuda.libdevice")
_applied: list[bool] = []


def apply() -> None:
    """Install every shim. Calling it again does nothing."""
    if _applied:
        return
    _applied.append(True)
    loop_bounds_at_run_time()
    loop_variables()
    scalar_arguments()
    libdevice_functions()
    running_sums()
    bfloat16.install()
    autotuned_kernels()
    addresses_are_no_numbers()
    no_borrowed_names()


def loop_bounds_at_run_time() -> None:
    """`range(0, n, BLOCK)` with an argument `n`: a scalar is an array of one element, which numpy 2.4 and newer refuse
    to turn into an int (triton issue 9171)."""
    patch_tensor = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda value: int(value.handle.data.item()))

    interpreter._patch_lang_tensor = patched


def loop_variables() -> None:
    """`row.to(tl.int64)` where `row` counts a loop: compiled it is a tensor, interpreted a Python int. A loop that asks
    its variable for an attribute begins with an assignment, which the interpreter makes a tensor of."""

    def visit_loop(self: Any, node: Any) -> Any:
        name = node.target.id if isinstance(node.target, ast.Name) else ""
        if _asks(node.body, name):
            again = ast.Assign([ast.Name(name, ast.Store())], ast.Name(name, ast.Load()))
            node.body.insert(0, ast.copy_location(again, node))
        self.generic_visit(node)
        return node

    interpreter.ASTTransformer.visit_For = visit_loop


def _asks(body: list[Any], name: str) -> bool:
    """Whether an attribute of a name is used."""
    attributes = (n for statement in body for n in ast.walk(statement) if isinstance(n, ast.Attribute))
    return any(isinstance(attribute.value, ast.Name) and attribute.value.id == name for attribute in attributes)


def scalar_arguments() -> None:
    """Floats and bools as arguments: a launch makes them float32 and int1, the interpreter leaves a float a Python
    float, which has no `.to`, and before triton 3.9 refuses a bool."""
    convert = interpreter._implicit_cvt

    def converted(argument: Any) -> Any:
        if isinstance(argument, bool):
            return _scalar(np.bool_, argument, tl.int1)
        if isinstance(argument, float):
            return _scalar(np.float32, argument, tl.float32)
        return convert(argument)

    interpreter._implicit_cvt = converted


def _scalar(dtype: Any, value: Any, triton_dtype: Any) -> Any:
    return tl.tensor(interpreter.TensorHandle(np.array([value], dtype=dtype), triton_dtype), triton_dtype)


def libdevice_functions() -> None:
    """`libdevice.tanh` and its like, from either module that has them: computed by numpy. One that is not in
    `libdevice.FUNCTIONS` raises NotImplementedError, where the interpreter would answer None."""
    generic, compiled = (importlib.import_module(name) for name in _LIBDEVICE_MODULES)
    interpreter.InterpreterBuilder.create_extern_elementwise = libdevice.compute
    for name, member in list(vars(compiled).items()):
        if tl.core.is_builtin(member):
            function = _with_semantic(member)
            setattr(compiled, name, function)
            setattr(generic, name, function)


def _with_semantic(member: Callable[..., Any]) -> Callable[..., Any]:
    """A function of Triton's language that takes the interpreter for the compiler unless told otherwise."""

    @functools.wraps(member)
    def call(*arguments: Any, _semantic: Any = None, **options: Any) -> Any:
        return member(*arguments, _semantic=_semantic or interpreter.interpreter_semantic, **options)

    return call


def running_sums() -> None:
    """`tl.cumsum` of floats: a GPU adds them as a tree, so its error hardly grows with the tile; the interpreter adds
    one after the other in the tile's own type, 20 times less exact over 1024 terms. Here in float64, rounded once."""
    cumsum = interpreter.ScanOps.cumsum

    def summed(self: Any, operand: Any) -> Any:
        data = operand.handle.data
        if not np.issubdtype(data.dtype, np.floating):
            return cumsum(self, operand)
        sums = np.cumsum(data, axis=self.axis, dtype=np.float64).astype(data.dtype)
        return [self.to_tensor(sums, dtype=operand.dtype)]

    interpreter.ScanOps.cumsum = summed


def autotuned_kernels() -> None:
    """`@triton.autotune` with several configurations asks the driver for a stopwatch; without a GPU there is no driver.
    Every configuration is run once and called equally fast, so the first one wins."""
    drive(load_hardware(ANY_GPU))


def drive(hardware: Hardware) -> None:
    """From here on Triton's driver answers for this GPU."""
    triton.runtime.driver.set_active(TargetDriver(hardware))


def addresses_are_no_numbers() -> None:
    """A pointer cast to an integer: its value tells an interpreted kernel from a traced or a real one, and no kernel
    needs it for what it computes."""

    def refuse(*_arguments: Any) -> Any:
        raise NotImplementedError("a kernel reads an address as a number")

    interpreter.InterpreterBuilder.create_ptr_to_int = refuse


def no_borrowed_names() -> None:
    """A kernel sees its own module's names only. The interpreter puts all of its own (`np`, `math`, `inspect`, ...)
    beside them, so that a missing import goes unnoticed; here it adds what its rewriting of the kernel refers to."""
    rewriter = interpreter.FunctionRewriter
    transform = rewriter._transform_ast

    def transformed(self: Any, source: str) -> Any:
        own = _names(ast.parse(source))
        tree = transform(self, source)
        self.added_names = _names(tree) - own
        return tree

    def compiled(self: Any, tree: Any) -> Any:
        names = self.fn.__globals__
        names.setdefault("_interpreter_language", tl)  # the interpreter looks for this module among the values
        for name in self.added_names & vars(interpreter).keys():
            names.setdefault(name, getattr(interpreter, name))
        local_names = {**self.kwargs}
        exec(compile(tree, filename=self.filename, mode="exec"), names, local_names)
        return local_names[self.fn.__name__]

    rewriter._transform_ast = transformed
    rewriter._compile_and_exec = compiled


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
