"""What kernels may say. They compute, so nearly all of the language is theirs; but a kernel's body is Python to whoever
compiles or interprets it, and must not reach around the language."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping

from evaluators.gates import policy
from evaluators.gates.allowed_names import refusal_of
from evaluators.gates.reachable import bound_names, dotted_name, full_name

Finding = tuple[int, str]
_ASSEMBLY = "inline_asm_elementwise"
_WAITS = frozenset({"triton.language.extra.cuda.gdc_wait", "triton.language.extra.cuda.gdc.gdc_wait"})
_REGISTER = re.compile(r"%(\w*)")  # in PTX; a bare % has no name, and none is allowed
_DECLARED = re.compile(r"\.reg\s+\.\w+\s+([^;]*);")
_CHOICES = ("$(", "$|", "$)")  # LLVM's alternatives, which put a text together


def kernel_findings(
    kernel: ast.FunctionDef, aliases: Mapping[str, str], texts: Mapping[str, str] | None = None
) -> Iterator[Finding]:
    """Lines of a kernel's body that do what no kernel needs.

    Args:
        texts: what names of the module stand for that are bound to a text, once, from `written_texts`.
    """
    own = {a.arg for a in ast.walk(kernel.args) if isinstance(a, ast.arg)}
    own |= {n.id for n in ast.walk(kernel) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    seen = {name: text for name, text in (texts or {}).items() if name not in own}
    called = {id(node.func) for node in ast.walk(kernel) if isinstance(node, ast.Call)}
    for statement in kernel.body:
        for node in ast.walk(statement):
            what = _refusal(node, own, aliases)
            if not what and _last_name(node, aliases) == _ASSEMBLY:
                what = "" if id(node) in called else f"{_ASSEMBLY} is passed around"
            if not what and isinstance(node, ast.Call) and _last_name(node.func, aliases) == _ASSEMBLY:
                what = _assembly_refusal(node, seen)
            if what:
                yield getattr(node, "lineno", kernel.lineno), f"{what}, in kernel {kernel.name}"


def written_texts(tree: ast.Module, aliases: Mapping[str, str]) -> dict[str, str]:
    """Names of a module that are bound once, to a text that is written out: NAME = "..." or tl.constexpr("...")."""
    bound = Counter(name for node in ast.walk(tree) for name in bound_names(node))
    texts: dict[str, str] = {}
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case _:
                continue
        if isinstance(value, ast.Call) and len(value.args) == 1 and not value.keywords:
            value = value.args[0] if _last_name(value.func, aliases) == "constexpr" else value
        if isinstance(value, ast.Constant) and isinstance(value.value, str) and bound[name] == 1:
            texts[name] = value.value
    return texts


def begins_with_wait(kernel: ast.FunctionDef, aliases: Mapping[str, str]) -> bool:
    """Whether a kernel waits for the launch before it, before it does anything else."""
    body = [s for s in kernel.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    if not body or not isinstance(body[0], ast.Expr) or not isinstance(body[0].value, ast.Call):
        return False
    name = dotted_name(body[0].value.func) or ""
    is_own = name.partition(".")[0] in {n for node in ast.walk(kernel) for n in bound_names(node)}
    return not is_own and full_name(name, aliases) in _WAITS


def _last_name(node: ast.AST, aliases: Mapping[str, str]) -> str:
    """The last part of a name's full name: what it is, under whatever name it was imported."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return aliases.get(node.id, node.id).rsplit(".", 1)[-1] if isinstance(node, ast.Name) else ""


def _refusal(node: ast.AST, own: set[str], aliases: Mapping[str, str]) -> str:
    match node:
        case ast.Import() | ast.ImportFrom():
            return "an import"
        case ast.Name(id=name) if name not in own and _last_name(node, aliases) in policy.BUILDING:
            return f"{aliases.get(name, name)} is not for kernels"
        case ast.Name(id=name) if name in policy.BUILTINS and name not in own:
            return f"{name} is not for kernels"
        case ast.Attribute():
            return _attribute_refusal(node, own, aliases)
    return ""


def _attribute_refusal(node: ast.Attribute, own: set[str], aliases: Mapping[str, str]) -> str:
    root = (dotted_name(node) or "").partition(".")[0]
    if not isinstance(node.ctx, ast.Load) and root not in own:
        return f"writes to {ast.unparse(node)}"
    is_known = node.attr.startswith("_experimental") or node.attr in policy.KERNEL_PRIVATE
    if node.attr in policy.HIDDEN_MODULES or (node.attr.startswith("_") and not is_known):
        return f".{node.attr} is not for kernels"
    if node.attr in policy.BUILDING:
        return f".{node.attr} is not for kernels"
    if node.attr in policy.CLOCKS:
        return f".{node.attr}() reads the clock; work must not depend on when it is done"
    full = "" if root in own else full_name(dotted_name(node) or "", aliases)
    return refusal_of(full) if full.startswith("torch.") else ""


def _assembly_refusal(call: ast.Call, texts: Mapping[str, str]) -> str:
    given = next((k.value for k in call.keywords if k.arg == "asm"), call.args[0] if call.args else None)
    text = texts.get(given.id) if isinstance(given, ast.Name) else getattr(given, "value", None)
    if not isinstance(given, ast.Name | ast.Constant) or not isinstance(text, str):
        return "assembly has to be written out"
    if "griddepcontrol" in text or any(mark in text for mark in _CHOICES):
        return "the assembly says more than what it computes"
    declared = {name for names in _DECLARED.findall(text) for name in _REGISTER.findall(names)}
    asked = set(_REGISTER.findall(text)) - {n for n in declared if not n.startswith(policy.SPECIAL_REGISTERS)}
    other = sorted(asked - policy.REGISTERS)
    if not other:
        return ""
    why = "work must not depend on when or where it is done"
    return (
        f"the assembly reads %{other[0]}; {why}: of special registers %{', %'.join(sorted(policy.REGISTERS))} are open"
    )
