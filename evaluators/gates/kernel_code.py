"""What kernels may say. They compute, so nearly all of the language is theirs; but a kernel's body is Python to whoever
compiles or interprets it, and must not reach around the language."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from evaluators.gates import policy
from evaluators.gates.allowed_names import refusal_of
from evaluators.gates.reachable import dotted_name, full_name

Finding = tuple[int, str]


def kernel_findings(kernel: ast.FunctionDef, aliases: Mapping[str, str]) -> Iterator[Finding]:
    """Lines of a kernel's body that do what no kernel needs."""
    own = {a.arg for a in ast.walk(kernel.args) if isinstance(a, ast.arg)}
    own |= {n.id for n in ast.walk(kernel) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for statement in kernel.body:
        for node in ast.walk(statement):
            what = _refusal(node, own, aliases)
            if what:
                yield getattr(node, "lineno", kernel.lineno), f"{what}, in kernel {kernel.name}"


def _refusal(node: ast.AST, own: set[str], aliases: Mapping[str, str]) -> str:
    match node:
        case ast.Import() | ast.ImportFrom():
            return "an import"
        case ast.Name(id=name) if name in policy.BUILTINS and name not in own:
            return f"{name} is not for kernels"
        case ast.Attribute():
            return _attribute_refusal(node, own, aliases)
        case ast.Call(func=ast.Attribute(attr="inline_asm_elementwise") | ast.Name(id="inline_asm_elementwise")):
            return _assembly_refusal(node)
    return ""


def _attribute_refusal(node: ast.Attribute, own: set[str], aliases: Mapping[str, str]) -> str:
    root = (dotted_name(node) or "").partition(".")[0]
    if not isinstance(node.ctx, ast.Load) and root not in own:
        return f"writes to {ast.unparse(node)}"
    is_known = node.attr.startswith("_experimental") or node.attr in policy.KERNEL_PRIVATE
    if node.attr in policy.HIDDEN_MODULES or (node.attr.startswith("_") and not is_known):
        return f".{node.attr} is not for kernels"
    if node.attr in policy.CLOCKS:
        return f".{node.attr}() reads the clock; work must not depend on when it is done"
    full = "" if root in own else full_name(dotted_name(node) or "", aliases)
    return refusal_of(full) if full.startswith("torch.") else ""


def _assembly_refusal(call: ast.Call) -> str:
    text = next((k.value for k in call.keywords if k.arg == "asm"), call.args[0] if call.args else None)
    if not isinstance(text, ast.Constant | ast.Name):
        return "assembly has to be written out"
    if isinstance(text, ast.Constant) and any(r in str(text.value) for r in policy.CLOCK_REGISTERS):
        return "the assembly reads the clock; work must not depend on when it is done"
    return ""
