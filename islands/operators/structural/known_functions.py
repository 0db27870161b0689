"""Functions that are known by what they do: programs have copies of them under other names."""

from __future__ import annotations

import ast
from typing import cast

import libcst as cst

from islands.operators.structural.analysis import Program, Scope
from islands.operators.structural.kernels import helper_calls


def canonical_body(text: str) -> str:
    """The statements of a function in canonical form, its docstring left out."""
    statements = ast.parse(text).body
    if isinstance(statements[0], ast.Expr) and isinstance(statements[0].value, ast.Constant):
        statements = statements[1:]
    return "\n".join(ast.unparse(statement) for statement in statements)


def body_of(program: Program, function: Scope) -> str:
    """The body of a jit function in canonical form."""

    def compute() -> str:
        start, end = program.span(function.node)
        definition = cast(ast.FunctionDef, ast.parse(program.source[start:end]).body[0])
        return canonical_body("\n".join(ast.unparse(statement) for statement in definition.body))

    return program.derived(("body", id(function)), compute)


def called_function(program: Program, call: cst.Call) -> Scope:
    """The jit function that a call calls, one of `helper_calls`."""
    return program.kernels[cast(cst.Name, call.func).value]


def calls_with_body(program: Program, kernel: Scope, body: str) -> list[cst.Call]:
    """The calls of functions of the program with this body, in order of the text."""
    return [c for c in helper_calls(program, kernel) if body_of(program, called_function(program, c)) == body]
