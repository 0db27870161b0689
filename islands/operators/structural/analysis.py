"""What a Triton program consists of, with positions: kernels, host functions, launches, and where a name is bound.

Analysis costs 2 to 40 ms, so `analyse` keeps the latest programs; a proposal then costs a splice and a parse.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast

import libcst as cst

from islands.operators.structural.parts import Nodes, Part, Placed, children, parts_of
from islands.operators.structural.text import Span

MAX_SOURCE_CHARS = 100_000
MAX_CACHED_PROGRAMS = 256  # about 0.2 MB each, without the parts that they share

_NEWLINE = re.compile(r"\r\n?|\n")
N = TypeVar("N", bound=cst.CSTNode)
T = TypeVar("T")


class Parameter:
    """A parameter of a kernel or of a host function."""

    def __init__(self, node: cst.Param, is_constexpr: bool) -> None:
        self.node = node
        self.name = node.name.value
        self.is_constexpr = is_constexpr
        self.default = node.default


class Scope:
    """A function, or the module itself, with the nodes that lie in it but in no function inside it."""

    def __init__(
        self, name: str, node: cst.FunctionDef | cst.Module, parent: Scope | None, class_name: str, nodes: Nodes
    ) -> None:
        self.name = name
        self.node = node
        self.parent = parent
        self.class_name = class_name
        self.is_kernel = False
        self.parameters: list[Parameter] = []
        self._nodes = nodes

    def all(self, kind: type[N]) -> list[N]:
        """Every node of exactly this type, in order of the text."""
        return cast(list[N], self._nodes.get(kind, []))

    def parameter(self, name: str) -> Parameter | None:
        return next((p for p in self.parameters if p.name == name), None)


class Launch:
    """`kernel[grid](arguments)`, with arguments by the name of the kernel's parameter where the kernel is known."""

    def __init__(self, ordinal: int, scope: Scope, call: cst.Call, kernel_name: str, kernel: Scope | None) -> None:
        self.ordinal = ordinal  # among the launches of the same kernel
        self.scope = scope
        self.call = call
        self.kernel_name = kernel_name
        self.kernel = kernel
        subscript = cast(cst.Subscript, call.func)
        # one expression, or several where the tuple is written without parentheses
        self.grid = [cast(cst.Index, element.slice).value for element in subscript.slice]
        self.arguments = _bind_arguments(call, kernel)

    @property
    def key(self) -> str:
        return f"{self.kernel_name}/{self.ordinal}"


class Program:
    """One analysed source."""

    def __init__(self, source: str, parts: Sequence[Placed]) -> None:
        self.source = source
        self.module = cst.Module(body=[statement for _, part in parts for statement in part.statements])
        self._line_starts = [0, *(m.end() for m in _NEWLINE.finditer(source))]
        self._derived: dict[Any, Any] = {}
        self._device_calls: dict[int, str] = {}  # by id of the call
        self._spans: dict[int, tuple[int, int]] = {}  # by id of the node, from the start of its part
        self._starts: dict[int, int] = {}  # of the part of a node, likewise
        self._spans[id(self.module)], self._starts[id(self.module)] = (0, len(source)), 0
        self.parents: dict[cst.CSTNode, cst.CSTNode] = {}
        outside: Nodes = {}
        self.root = Scope("", self.module, None, "", outside)
        self.scopes: list[Scope] = [self.root]
        self.classes: dict[str, cst.ClassDef] = {}
        for start, part in parts:
            self._place(part, start)
            for kind, nodes in part.outside.items():
                outside.setdefault(kind, []).extend(nodes)
        self.aliases = _import_aliases(self.scopes)
        self.kernels = self._find_kernels()
        self.all_launches = self._find_launches()
        reachable = self._reachable()
        self.launches = [x for x in self.all_launches if x.scope in reachable]

    # ------------------------------------------------------------------------------------------------- positions

    def span(self, node: cst.CSTNode) -> Span:
        """Where a node stands, without the parentheses around it."""
        start, end = self._spans[id(node)]
        first = self._starts[id(node)]
        return Span(first + start, first + end)

    def text(self, node: cst.CSTNode) -> str:
        """The text of a node, parenthesised when it is in the source."""
        start, end = self.span(node)
        depth = len(getattr(node, "lpar", ()))
        return "(" * depth + self.source[start:end] + ")" * depth

    def line_of(self, position: int) -> int:
        return bisect_right(self._line_starts, position)

    # ----------------------------------------------------------------------------------------------------- facts

    def derived(self, key: Any, compute: Callable[[], T]) -> T:
        """A fact about this program, computed once."""
        if key not in self._derived:
            self._derived[key] = compute()
        return cast(T, self._derived[key])

    def alias(self, module: str) -> str:
        """How the program calls a module: "tl" for "triton.language"; empty when it is not imported."""
        return next((name for name, target in self.aliases.items() if target == module), "")

    def qualified(self, node: cst.BaseExpression) -> str:
        """The full dotted name of an expression ("triton.language.load"), or the empty string."""
        dotted = dotted_name(node)
        head, _, rest = dotted.partition(".")
        target = self.aliases.get(head, head)
        return f"{target}.{rest}" if rest else target

    def device_call(self, call: cst.Call) -> str:
        """The name of a function of `triton.language` that a call calls ("load"), or the empty string."""
        known = self._device_calls.get(id(call))
        if known is None:
            name = self.qualified(call.func)
            known = name.removeprefix("triton.language.") if name.startswith("triton.language.") else ""
            self._device_calls[id(call)] = known
        return known

    def device_calls(self, scope: Scope, *names: str) -> list[cst.Call]:
        """The calls of these functions of `triton.language` in a kernel, in order of the text."""
        return [call for call in scope.all(cst.Call) if self.device_call(call) in names]

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The nodes around a node, innermost first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def runs(self, kernel_name: str, is_launched: Callable[[str], bool]) -> bool:
        """Whether a kernel is among those launched, or is called by one of them, through others too."""
        waiting, seen = [kernel_name], {kernel_name}
        while waiting:
            name = waiting.pop()
            if is_launched(name):
                return True
            callers = {caller for caller, k in self.kernels.items() if caller not in seen and _calls(k, name)}
            seen |= callers
            waiting += callers
        return False

    def launches_of(self, kernel: Scope) -> list[Launch]:
        return [launch for launch in self.launches if launch.kernel is kernel]

    @property
    def entry_scopes(self) -> list[Scope]:
        """The functions that a caller enters: methods of `ModelNew`, or `kernel_function`."""
        return [s for s in self.scopes if s.class_name == "ModelNew" or s.name == "kernel_function"]

    # ---------------------------------------------------------------------------------------------------- walking

    def _place(self, part: Part, start: int) -> None:
        self._spans.update(part.spans)
        self._starts.update(dict.fromkeys(part.spans, start))
        self.parents.update(part.parents)
        self.parents.update(dict.fromkeys(part.statements, self.module))
        self.classes.update(part.classes)
        first = len(self.scopes)
        for node, parent, class_name, nodes in part.scopes:
            around = self.scopes[first + parent] if parent >= 0 else self.root
            self.scopes.append(Scope(node.name.value, node, around, class_name, nodes))

    def _find_kernels(self) -> dict[str, Scope]:
        kernels: dict[str, Scope] = {}
        for scope in self.scopes[1:]:
            node = cast(cst.FunctionDef, scope.node)
            scope.is_kernel = any(self._is_jit(d.decorator) for d in node.decorators)
            scope.parameters = [Parameter(p, self._is_constexpr(p)) for p in _all_parameters(node.params)]
            if scope.is_kernel:
                kernels[scope.name] = scope
        return kernels

    def _is_jit(self, decorator: cst.BaseExpression) -> bool:
        function = decorator.func if isinstance(decorator, cst.Call) else decorator
        return self.qualified(function) in ("triton.jit", "triton.runtime.jit", "triton.runtime.jit.jit")

    def _is_constexpr(self, parameter: cst.Param) -> bool:
        annotation = parameter.annotation
        return annotation is not None and self.qualified(annotation.annotation).endswith("constexpr")

    def _find_launches(self) -> list[Launch]:
        launches: list[Launch] = []
        for scope in self.scopes:
            if scope.is_kernel:
                continue
            for call in scope.all(cst.Call):
                name = self._launched_kernel(call)
                if name:
                    n_before = sum(launch.kernel_name == name for launch in launches)
                    launches.append(Launch(n_before, scope, call, name, self.kernels.get(name)))
        return launches

    def _reachable(self) -> set[Scope]:
        """The functions that the entry may call, by name; all of them where there is no entry."""
        waiting = [*self.entry_scopes, self.root]
        if len(waiting) == 1:
            return set(self.scopes)
        reached: set[Scope] = set()
        while waiting:
            scope = waiting.pop()
            if scope in reached:
                continue
            reached.add(scope)
            names = {n.value for n in scope.all(cst.Name)} if scope.parent is not None else set()
            waiting += [s for s in self.scopes if s.parent is scope and scope.parent is not None]
            waiting += [s for s in self.scopes if s.name in names or (s.class_name in names and s.name != "backward")]
        return reached

    def _launched_kernel(self, call: cst.Call) -> str:
        """The name of the kernel that a call launches, or the empty string."""
        if not isinstance(call.func, cst.Subscript):
            return ""
        indices = [element.slice for element in call.func.slice]
        name = dotted_name(call.func.value)
        if not name or not all(isinstance(index, cst.Index) for index in indices):
            return ""
        first = cast(cst.Index, indices[0]).value
        is_imported = "." in self.aliases.get(name.split(".")[0], "")
        looks_like_grid = isinstance(first, cst.Tuple | cst.Lambda) or "grid" in dotted_name(first).lower()
        return name if name in self.kernels or (is_imported and looks_like_grid) else ""


@lru_cache(maxsize=MAX_CACHED_PROGRAMS)
def analyse(source: str) -> Program | None:
    """The program of a source, or None for one that cannot be understood. Keeps the latest 256."""
    if len(source) > MAX_SOURCE_CHARS:
        return None
    try:
        return Program(source, parts_of(source))
    except (SyntaxError, cst.ParserSyntaxError, cst.CSTValidationError, RecursionError, ValueError, MemoryError):
        return None
    except KeyError:  # what libcst makes of a RecursionError while it looks for positions
        return None


# ------------------------------------------------------------------------------------------------------------ nodes


def descendants(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """A node and everything in it."""
    yield node
    for child in children(node):
        yield from descendants(child)


def names_in(node: cst.CSTNode) -> set[str]:
    """The names that a piece of code reads or binds, attributes and keywords left out."""
    found: set[str] = set()
    stack: list[cst.CSTNode] = [node]
    while stack:
        item = stack.pop()
        if isinstance(item, cst.Name):
            found.add(item.value)
        elif isinstance(item, cst.Attribute | cst.Arg):
            stack.append(item.value)
        else:
            stack.extend(children(item))
    return found


def dotted_name(node: cst.CSTNode) -> str:
    """`a.b.c` of names and attributes, or the empty string."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        head = dotted_name(node.value)
        return f"{head}.{node.attr.value}" if head else ""
    return ""


def _calls(caller: Scope, name: str) -> bool:
    return any(isinstance(c.func, cst.Name) and c.func.value == name for c in caller.all(cst.Call))


def integer(node: cst.CSTNode | None) -> int | None:
    """The value of an integer literal, or None."""
    if isinstance(node, cst.Integer):
        return int(node.value.replace("_", ""), 0)
    return None


def keyword(call: cst.Call, name: str) -> cst.Arg | None:
    """The argument `name=...` of a call."""
    return next((a for a in call.args if a.keyword is not None and a.keyword.value == name), None)


def argument(call: cst.Call, position: int, name: str) -> cst.BaseExpression | None:
    """The value of an argument by position or by name."""
    plain = [a.value for a in call.args if a.keyword is None and not a.star]
    named = keyword(call, name)
    if named is not None:
        return named.value
    return plain[position] if position < len(plain) else None


def _all_parameters(parameters: cst.Parameters) -> Sequence[cst.Param]:
    return [*parameters.posonly_params, *parameters.params, *parameters.kwonly_params]


def _bind_arguments(call: cst.Call, kernel: Scope | None) -> dict[str, cst.Arg]:
    bound: dict[str, cst.Arg] = {}
    names = iter([p.name for p in kernel.parameters] if kernel is not None else [])
    for arg in call.args:
        if arg.keyword is not None:
            bound[arg.keyword.value] = arg
        elif arg.star:
            names = iter(())  # what follows a * cannot be told apart
        else:
            name = next(names, None)
            if name is not None:
                bound[name] = arg
    return bound


def _import_aliases(scopes: Sequence[Scope]) -> dict[str, str]:
    """Local name to module or member: {"tl": "triton.language", "next_power_of_2": "triton.next_power_of_2"}."""
    aliases: dict[str, str] = {}
    for scope in scopes:
        for node in scope.all(cst.Import):
            for item in node.names:
                name = dotted_name(item.name)
                alias = dotted_name(item.asname.name) if item.asname else ""
                aliases[alias or name.split(".")[0]] = name if alias else name.split(".")[0]
        for node_from in scope.all(cst.ImportFrom):
            if isinstance(node_from.names, cst.ImportStar) or node_from.module is None:
                continue
            for item in node_from.names:
                alias = dotted_name(item.asname.name) if item.asname else dotted_name(item.name)
                aliases[alias] = f"{dotted_name(node_from.module)}.{dotted_name(item.name)}"
    return aliases
