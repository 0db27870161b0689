"""What outlives a call. A program keeps nothing from one call to the next, so host code may write only to what the same
call has made: lists and tables that it wrote out, results of torch. All else, parameters included, belongs to others.

Told from the text alone, and on the safe side: a name is a function's own when every value that it is given there is
new. What a loop, an unpacking or a pattern binds may be an old object in a new list.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from evaluators.gates import policy

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_NEW = (
    *(ast.Constant, ast.JoinedStr, ast.List, ast.Dict, ast.Set, ast.Tuple, ast.ListComp, ast.SetComp, ast.DictComp),
    *(ast.BinOp, ast.UnaryOp, ast.Compare),
)
_CONTAINERS = (ast.List, ast.Dict, ast.Set, ast.Tuple, ast.ListComp, ast.SetComp, ast.DictComp)


class Scope:
    """The names that one function (or the module) binds, and what it gives them.

    Args:
        node: a function, or the module.
        is_library: whether an expression is a function of torch or triton, whose results are new.
    """

    def __init__(self, node: Function | ast.Module, is_library: Callable[[ast.expr], bool]) -> None:
        self._is_library = is_library
        self._values: dict[str, list[ast.expr | None]] = {}  # None: nobody knows what
        self._asked: set[str] = set()  # names whose values are being looked at: `x = f(x)` must not go round for ever
        if not isinstance(node, ast.Module):
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg):
                    self._bind(argument.arg, None)
        for part in _own_nodes(node):
            self._read(part)

    def binds(self, name: str) -> bool:
        """Whether the name is local here."""
        return name in self._values

    def owns(self, name: str) -> bool:
        """Whether the name holds what this call has made, whichever way it went."""
        return name in self._values and all(value is not None and self.is_new(value) for value in self._values_of(name))

    def _values_of(self, name: str) -> Iterator[ast.expr | None]:
        """What a name is given, nothing when this is what is being found out."""
        if name not in self._asked:
            self._asked.add(name)
            try:
                yield from self._values.get(name, [])
            finally:
                self._asked.remove(name)

    def is_new(self, node: ast.expr) -> bool:
        """Whether an expression makes an object, or names one that this call has made."""
        match node:
            case ast.Name(id=name):
                return self.owns(name)
            case ast.NamedExpr(value=value):
                return self.is_new(value)
            case ast.IfExp(body=body, orelse=orelse):
                return self.is_new(body) and self.is_new(orelse)
            case ast.BoolOp(values=values):
                return all(self.is_new(value) for value in values)
            case ast.Call(func=ast.Name(id=name)) if not self.binds(name):
                return name in policy.CONSTRUCTORS
            case ast.Call(func=ast.Attribute(attr=name) as function):
                return name in policy.COPYING_METHODS or self._is_library(function)
        return isinstance(node, _NEW)

    def is_container(self, node: ast.expr) -> bool:
        """Whether an expression is seen to be a list, a tuple, a set or a table."""
        if isinstance(node, ast.Name):
            return any(value is not None and self.is_container(value) for value in self._values_of(node.id))
        return isinstance(node, _CONTAINERS) or (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in policy.CONSTRUCTORS
        )

    def is_iterator(self, node: ast.expr) -> bool:
        """Whether an expression holds an iterator, which keeps its place, that nothing in it uses up."""
        match node:
            case ast.Name(id=name):
                if name in policy.ITERATOR_MAKERS and not self.binds(name):
                    return True
                return any(value is not None and self.is_iterator(value) for value in self._values_of(name))
            case ast.GeneratorExp():
                return True
            case ast.Starred() | ast.Lambda():
                return False
            case ast.Call(func=function):
                if isinstance(function, ast.Name) and function.id in policy.ITERATOR_MAKERS:
                    return True
                if ast.unparse(function).split(".")[0] == "itertools":
                    return True
                return not _uses_up(function) and any(self.is_iterator(a) for a in _arguments(node))
        return any(self.is_iterator(part) for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr))

    def _bind(self, name: str, value: ast.expr | None) -> None:
        self._values.setdefault(name, []).append(value)

    def _read(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._unpack(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._unpack(target, value)
            case ast.NamedExpr(target=target, value=value):
                self._unpack(target, value)
            case ast.For(target=target) | ast.AsyncFor(target=target) | ast.comprehension(target=target):
                self._unpack(target, None)
            case ast.withitem(optional_vars=ast.expr() as target):
                self._unpack(target, None)
            case ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name):
                self._bind(name, None)
            case ast.MatchMapping(rest=str() as name) | ast.ExceptHandler(name=str() as name):
                self._bind(name, None)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                self._bind(name, None)

    def _unpack(self, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            self._bind(target.id, value)
        elif isinstance(target, ast.Starred):
            self._unpack(target.value, None)
        elif isinstance(target, ast.Tuple | ast.List):
            same = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
            plain = same and not any(isinstance(e, ast.Starred) for e in (*target.elts, *value.elts))  # type: ignore[union-attr]
            values = value.elts if plain else [None] * len(target.elts)  # type: ignore[union-attr]
            for part, given in zip(target.elts, values, strict=True):
                self._unpack(part, given)


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a function's body, those of inner functions and classes left out."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, _INNER):
            yield from _own_nodes(child)


def _uses_up(function: ast.expr) -> bool:
    """Whether a function takes all that an iterator has, and gives back no iterator."""
    if isinstance(function, ast.Attribute):
        return function.attr == "join"
    return isinstance(function, ast.Name) and function.id in policy.CONSUMERS


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]
