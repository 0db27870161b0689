"""What may be a module of torch.nn. A module's `half()` changes it for good, a tensor's makes another tensor, so host
code that is read has to tell one from the other.

Names and attributes of a file share one table, whatever function they stand in: what holds a module once may hold one
anywhere. Safe rather than exact.
"""

from __future__ import annotations

import ast
import builtins
import itertools
from collections.abc import Iterator, Mapping

from evaluators.gates.own_names import OwnNames, first_parameter
from evaluators.gates.reachable import dotted_name, full_name, is_kernel

_ASKED_FOR = frozenset({"children", "modules", "named_children", "named_modules", "get_submodule"})
_NO_MODULES = frozenset({"Parameter", "Buffer"})
_PASSING = frozenset(
    {"enumerate", "zip", "list", "tuple", "reversed", "iter", "next", "sorted", "set", "dict", "filter"}
)
_OF_CONTAINERS = frozenset({"values", "items", "get", "pop", "copy"})
_MOST_ROUNDS = 20


class ModulesHeld:
    """Names of variables, parameters, functions and attributes that may stand for a module."""

    def __init__(self, tree: ast.Module, aliases: Mapping[str, str], own: OwnNames) -> None:
        self._aliases = aliases
        self._models = {s.name for s in tree.body if isinstance(s, ast.ClassDef) and own.is_model(s)}
        functions = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.Lambda))
        self._functions = [n for n in functions if not is_kernel(n, aliases)]
        self._known = {getattr(f, "name", "") for f in self._functions} | self._models | {*aliases, *dir(builtins)}
        self._names = {first_parameter(m) for m in _methods_of(tree, self._models)} - {""}
        self._nodes = [n for n in ast.walk(tree) if isinstance(n, ast.expr | ast.stmt | ast.comprehension)]
        self._is_tangled = False  # handed on too often to be followed: anything may be a module
        n_before = -1
        for n_rounds in itertools.count():
            self._is_tangled = n_rounds == _MOST_ROUNDS
            if self._is_tangled or len(self._names) == n_before:
                break
            n_before = len(self._names)
            self._spread()

    def may_hold(self, node: ast.expr) -> bool:
        """Whether an expression may be a module, or something that contains one."""
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                return name in self._names or self._is_tangled
            case ast.Call():
                return self._may_answer(node)
            case ast.Subscript(value=value) | ast.Starred(value=value) | ast.NamedExpr(value=value):
                return self.may_hold(value)
            case ast.IfExp(body=body, orelse=orelse):
                return self.may_hold(body) or self.may_hold(orelse)
            case ast.BoolOp(values=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                return any(map(self.may_hold, parts))
            case ast.Dict(values=parts):
                return any(map(self.may_hold, parts))
            case ast.ListComp(elt=part) | ast.SetComp(elt=part) | ast.GeneratorExp(elt=part) | ast.DictComp(value=part):
                return self.may_hold(part)
            case ast.BinOp(left=left, right=right):
                return self.may_hold(left) or self.may_hold(right)
        return False

    def _may_answer(self, node: ast.Call) -> bool:
        """Whether a call may answer with a module: it makes one, hands one on, or asks a model for its parts."""
        full = full_name(dotted_name(node.func) or "", self._aliases)
        if full.startswith("torch.nn."):
            return full.rsplit(".", 1)[-1] not in _NO_MODULES and full.rsplit(".", 1)[-1][:1].isupper()
        match node.func:
            case ast.Name(id=name):
                given = any(self.may_hold(a) for a in node.args)
                return name in self._models or f"{name}()" in self._names or (name in _PASSING and given)
            case ast.Attribute(value=owner, attr=name):
                return name in _ASKED_FOR or f"{name}()" in self._names or self._is_kept(owner, name)
        return False

    def _is_kept(self, owner: ast.expr, method: str) -> bool:
        return method in _OF_CONTAINERS and self.may_hold(owner)

    def _spread(self) -> None:
        for node in self._nodes:
            match node:
                case ast.Assign(targets=targets, value=value) if self.may_hold(value):
                    self._bind(targets)
                case ast.AnnAssign(target=target, value=ast.expr() as value) if self.may_hold(value):
                    self._bind([target])
                case ast.NamedExpr(target=target, value=value) if self.may_hold(value):
                    self._bind([target])
                case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                    if self.may_hold(value):
                        self._bind([target])
                case ast.Call():
                    self._pass_on(node)
        for function in self._functions:
            returned = (n.value for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None)
            if isinstance(function, ast.FunctionDef) and any(map(self.may_hold, returned)):
                self._names.add(f"{function.name}()")

    def _bind(self, targets: list[ast.expr]) -> None:
        for part in (part for target in targets for part in ast.walk(target)):
            if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load):
                self._names.add(part.id)
            elif isinstance(part, ast.Attribute) and not isinstance(part.ctx, ast.Load):
                self._names.add(part.attr)

    def _pass_on(self, call: ast.Call) -> None:
        """Parameters that are given a module; of every function of that name, whoever has it."""
        keywords = {k.arg for k in call.keywords if k.arg and self.may_hold(k.value)}
        places = [i for i, a in enumerate(call.args) if self.may_hold(a)]
        if not keywords and not places:
            return
        called = self._called(call.func)
        for function in self._functions:
            name = getattr(function, "name", "")
            if function is call.func or self._is_anybody(call.func) or name in called:
                is_method = called.get(name, False) and "staticmethod" not in _decorators_of(function)
                parameters = [a.arg for a in (*function.args.posonlyargs, *function.args.args)][int(is_method) :]
                self._names |= {parameters[i] for i in places if i < len(parameters)}
                self._names |= keywords & {*parameters, *(a.arg for a in function.args.kwonlyargs)}

    def _is_anybody(self, function: ast.expr) -> bool:
        """Whether a call may run any function: by a name that is no function's, or by none."""
        if isinstance(function, ast.Name):
            return function.id not in self._known and not self.may_hold(function)
        return not isinstance(function, ast.Attribute | ast.Lambda) and not self.may_hold(function)

    def _called(self, function: ast.expr) -> dict[str, bool]:
        """Names of the functions that a call may run, and whether Python gives them an object first."""
        names = {"forward": True} if self.may_hold(function) else {}
        if isinstance(function, ast.Name):
            names |= {"__init__": True} if function.id in self._models else {function.id: False}
        elif isinstance(function, ast.Attribute):
            names[function.attr] = True
        return names


def _decorators_of(function: ast.FunctionDef | ast.Lambda) -> list[str | None]:
    return [dotted_name(d) for d in getattr(function, "decorator_list", ())]


def _methods_of(tree: ast.Module, models: set[str]) -> Iterator[ast.FunctionDef]:
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef) and statement.name in models:
            for method in statement.body:
                if isinstance(method, ast.FunctionDef) and "staticmethod" not in _decorators_of(method):
                    yield method
