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
# No list, set or table takes these; of the others, a list takes += and *=, a set and a table -=, |=, &= and ^=
NUMERIC_OPERATORS = (ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.LShift, ast.RShift, ast.MatMult)
_NEVER_WITH_NUMBERS = (ast.Add, ast.Sub, ast.BitOr, ast.BitAnd, ast.BitXor)
_MOST_STEPS = 100_000  # from name to name, in one function
_ORDERING = frozenset({"__lt__", "__eq__"})


class _Part(ast.Subscript):
    """One of what an expression consists of, which a loop or an unpacking takes, while `of` is Python's."""

    def __init__(self, whole: ast.expr, of: str = "") -> None:
        super().__init__(value=whole, slice=ast.Constant(0), ctx=ast.Load())
        self.of = of


class Scope:
    """The names that one function (or the module) binds, and what it gives them.

    Args:
        node: a function, or the module.
        is_library: whether an expression is a function of torch, triton or math, whose results are new.
        outer: the scope that this one stands in.
        attributes: names of attributes that the file itself may define, and that say nothing of what they hold.
    """

    def __init__(
        self,
        node: Function | ast.Module,
        is_library: Callable[[ast.expr], bool],
        outer: Scope | None = None,
        attributes: frozenset[str] = frozenset(),
    ) -> None:
        self._is_library = is_library
        self._outer = outer
        self._attributes = attributes
        self._imported: set[str] = set()
        self._values: dict[str, list[ast.expr | None]] = {}  # None: nobody knows what
        self._n_steps = 0
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

    def is_given_once(self, name: str) -> bool:
        """Whether a parameter stays what the caller gave."""
        return len(self._values.get(name, ())) == 1 and name not in self._imported

    def _is_builtin(self, name: str) -> bool:
        """Whether a name of Python's still means what Python means by it."""
        here = self.binds(name) or name in self._imported
        return not here and (self._outer is None or self._outer._is_builtin(name))

    def owns(self, name: str) -> bool:
        """Whether the name holds what this call has made, whichever way it went."""
        return name in self._values and all(value is not None and self.is_new(value) for value in self._values_of(name))

    def _values_of(self, name: str) -> Iterator[ast.expr | None]:
        """What a name is given, nothing when this is what is being found out.

        Raises:
            RecursionError: names are given in terms of one another, too many times over.
        """
        self._n_steps += 1
        if self._n_steps > _MOST_STEPS:
            raise RecursionError(f"{name} is given in terms of too many other names")
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
            case ast.Call(func=ast.Name(id=name)) if self._is_builtin(name) and name in policy.CONSTRUCTORS:
                return True
            case ast.Compare():
                return not _ORDERING & self._attributes
            case ast.Call(func=ast.Attribute(attr=name) as function):
                return name in policy.COPYING_METHODS or self._is_library(function)
        return isinstance(node, _NEW) or self.is_number(node)

    def may_change(self, node: ast.AugAssign) -> bool:
        """Whether an augmented assignment changes nothing but what this call has made: its target is that, or a number,
        or no container takes what is done to it."""
        if isinstance(node.op, NUMERIC_OPERATORS):
            return True
        if isinstance(node.op, _NEVER_WITH_NUMBERS) and self.is_number(node.value):
            return True
        return isinstance(node.target, ast.Name) and (self.owns(node.target.id) or self.is_number(node.target))

    def is_number(self, node: ast.expr) -> bool:
        """Whether an expression is seen to be a number, or a tensor that it computes."""
        match node:
            case ast.Constant(value=value):
                return isinstance(value, int | float)
            case ast.Name(id=name):
                return self.binds(name) and all(v is not None and self.is_number(v) for v in self._values_of(name))
            case ast.UnaryOp(operand=operand):
                return isinstance(node.op, ast.Not) or self.is_number(operand)
            case ast.BinOp(left=left, op=op, right=right):
                return self._computes_number(left, op, right)
            case ast.IfExp(body=body, orelse=orelse):
                return self.is_number(body) and self.is_number(orelse)
            case ast.NamedExpr(value=value):
                return self.is_number(value)
            case _Part(of=str(name)) if name and not self._is_builtin(name):
                return False
            case ast.Subscript(value=value, slice=index):
                return not isinstance(index, ast.Slice | ast.Tuple) and self._has_numbers(value)
            case ast.Attribute(attr=name):
                return name in policy.NUMBERS and name not in self._attributes
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                return self._is_builtin(name) and self._answers_number(name, arguments)
            case ast.Call(func=ast.Attribute(attr=name) as function):
                counts = name in policy.COUNTING_METHODS or (name in policy.SHAPES and bool(_arguments(node)))
                return (counts and name not in self._attributes) or ast.unparse(function).startswith("math.")
        return False

    def _computes_number(self, left: ast.expr, op: ast.operator, right: ast.expr) -> bool:
        numbers = [self.is_number(left), self.is_number(right)]
        if isinstance(op, ast.Mult):
            return all(numbers)
        return any(numbers) or isinstance(op, ast.FloorDiv | ast.Div | ast.Pow | ast.LShift | ast.RShift)

    def _answers_number(self, name: str, arguments: list[ast.expr]) -> bool:
        """Whether a function of Python's answers with a number; the least of a number and something is one."""
        if name in ("min", "max"):
            return len(arguments) > 1 and any(map(self.is_number, arguments)) and not _ORDERING & self._attributes
        return name in policy.COUNTING_BUILTINS or (name == "sum" and len(arguments) == 1)

    def _has_numbers(self, node: ast.expr) -> bool:
        """Whether an expression consists of numbers: the shape or the strides of a tensor, or what counts."""
        match node:
            case ast.Call(func=ast.Name(id="range" | "enumerate" as name)):
                return self._is_builtin(name)  # of enumerate's pairs only the count is asked for
            case ast.Attribute(attr=name) | ast.Call(func=ast.Attribute(attr=name), args=[], keywords=[]):
                return name in policy.SHAPES and name not in self._attributes
            case ast.Subscript(value=value, slice=ast.Slice()):
                return self._has_numbers(value)
            case ast.Name(id=name):
                return self.binds(name) and all(v is not None and self._has_numbers(v) for v in self._values_of(name))
        return False

    def is_iterator(self, node: ast.expr) -> bool:
        """Whether an expression holds an iterator, which keeps its place, that nothing in it uses up."""
        match node:
            case ast.Name(id=name):
                if name in policy.ITERATOR_MAKERS and not self.binds(name):
                    return True
                return any(value is not None and self.is_iterator(value) for value in self._values_of(name))
            case ast.GeneratorExp():
                return True
            case _Part():
                return False
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
            case ast.For(target=target, iter=over) | ast.comprehension(target=target, iter=over):
                self._unpack_each(target, over)
            case ast.AsyncFor(target=target):
                self._unpack(target, None)
            case ast.AugAssign(target=ast.Name(id=name)):
                self._imported.add(name)  # given twice, if not anew
            case ast.alias(name=name, asname=other):
                self._imported.add(other or name.split(".")[0])
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
            part = None if value is None else _Part(value)
            values = value.elts if plain else [part] * len(target.elts)  # type: ignore[union-attr]
            for place, given in zip(target.elts, values, strict=True):
                self._unpack(place, given)

    def _unpack_each(self, target: ast.expr, over: ast.expr) -> None:
        """The targets of a loop. Of `enumerate` the first one counts."""
        counts = isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id == "enumerate"
        if not counts:
            self._unpack(target, _Part(over))
        elif isinstance(target, ast.Tuple) and len(target.elts) == 2:
            self._unpack(target.elts[0], _Part(over))
            self._unpack(target.elts[1], _Part(over.args[0], "enumerate") if over.args else None)  # type: ignore[attr-defined]
        else:
            self._unpack(target, None)


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
