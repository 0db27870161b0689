"""Which top-level code of a program can run when its entry point is called, and what its imports bind."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping

JIT = frozenset({"triton.jit", "triton.language.jit"})
USUAL_NAMES = {"triton": "triton", "tl": "triton.language", "jit": "triton.jit"}
_MAIN_TEST = ast.dump(ast.parse('__name__ == "__main__"', mode="eval").body)

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

# Decorators that put a function away and do not call it; bases whose classes call nothing of theirs when they are made
_WAITING_DECORATORS = JIT | {
    *("staticmethod", "classmethod", "property", "triton.autotune", "triton.heuristics", "triton.constexpr_function"),
    *("torch.no_grad", "torch.inference_mode", "torch.jit.ignore", "torch.jit.unused", "functools.wraps"),
    *("typing.final", "typing.override", "torch.autograd.function.once_differentiable", "dataclasses.dataclass"),
}
_QUIET_BASES = frozenset({"object", "torch.nn.Module", "torch.autograd.Function"})
# Special methods of a class that wait for an instance of it
_OF_INSTANCES = frozenset(
    {
        *("__init__", "__post_init__", "__call__", "__repr__", "__str__", "__eq__", "__hash__", "__len__", "__lt__"),
        *("__getitem__", "__setitem__", "__contains__", "__iter__", "__next__", "__enter__", "__exit__", "__getattr__"),
    }
)


def reachable_statements(tree: ast.Module, entry_point: str) -> list[ast.stmt]:
    """Top-level statements that run at import, and the definitions that the entry point leads to by name.

    Sound because the policy refuses what finds a function without naming it (getattr, globals, eval). What a file does
    as the main program is left out: a candidate never is. The other definitions are `unreached_definitions`.
    """
    program = _Program(tree)
    found = program.reached_from(entry_point)
    return [s for s in tree.body if s in found or s in program.always]


def unreached_definitions(tree: ast.Module, entry_point: str) -> list[Definition]:
    """Definitions that nothing leads to. Their decorators, defaults, bases and class bodies run at import all the same;
    bodies of their functions do not."""
    program = _Program(tree)
    found = program.reached_from(entry_point)
    return [s for s in program.definitions if s not in found]


class _Program:
    """The top level of a file: definitions, and statements that run in any case."""

    def __init__(self, tree: ast.Module) -> None:
        self._aliases = module_aliases(tree)
        stored = (n for n in ast.walk(tree) if not isinstance(n, ast.alias | ast.arg))
        self._bound = {name for node in stored for name in bound_names(node)}
        self.definitions = [s for s in tree.body if isinstance(s, Definition)]
        self.always = [s for s in tree.body if not isinstance(s, Definition) and not _is_main_block(s, tree)]
        self._quiet: dict[Definition, bool] = {}
        self._by_name: defaultdict[str, list[Definition]] = defaultdict(list)
        for definition in self.definitions:
            self._by_name[definition.name].append(definition)

    def reached_from(self, entry_point: str) -> set[ast.stmt]:
        """Definitions that run when a file is imported and its entry point called, whole."""
        waiting = [entry_point, *(name for s in self.always for name in _names_in(s))]
        waiting += [name for name in self._by_name if name.startswith("__")]  # Python calls these by itself
        for definition in self.definitions:
            waiting += [name for part in _run_at_import(definition) for name in _names_in(part)]
            waiting += [] if self._is_quiet(definition) else [definition.name]
        found: set[ast.stmt] = set()
        while waiting:
            name = waiting.pop()
            for definition in self._by_name.get(name, ()):
                if definition not in found:
                    found.add(definition)
                    waiting += _names_in(definition)
        return found

    def _is_quiet(self, node: Definition) -> bool:
        """Whether making a function or a class runs no body of a function that stands in it."""
        if node not in self._quiet:
            self._quiet[node] = False  # while it is being found out: no class derives from itself
            self._quiet[node] = self._is_found_quiet(node)
        return self._quiet[node]

    def _is_found_quiet(self, node: Definition) -> bool:
        if not all(map(self._is_waiting, node.decorator_list)):
            return False
        if not isinstance(node, ast.ClassDef):
            return True
        others = [s for s in node.body if not isinstance(s, Definition)]
        if node.keywords or any(isinstance(part, Definition) for s in others for part in ast.walk(s)):
            return False
        methods = {s.name for s in ast.walk(node) if isinstance(s, Definition) and s is not node}
        used = {name for part in _run_at_import(node) for name in _names_in(part)}
        if methods & used or any(n.startswith("__") and n not in _OF_INSTANCES for n in methods):
            return False
        return all(map(self._is_quiet_base, node.bases)) and all(map(self._is_quiet, _inner_definitions(node)))

    def _is_quiet_base(self, base: ast.expr) -> bool:
        name = dotted_name(base) or ""
        if name in self._by_name:
            return all(map(self._is_quiet, self._by_name[name]))
        return self._full_name(name) in _QUIET_BASES

    def _is_waiting(self, decorator: ast.expr) -> bool:
        name = dotted_name(decorator.func if isinstance(decorator, ast.Call) else decorator) or ""
        return self._full_name(name) in _WAITING_DECORATORS

    def _full_name(self, name: str) -> str:
        """A name in full; empty where the file may have given it another meaning."""
        return "" if name.partition(".")[0] in self._bound else full_name(name, self._aliases) or name


def _run_at_import(node: Definition) -> Iterator[ast.AST]:
    """What runs when a definition is made, but for plain names of bases and for annotations, which call nothing."""
    yield from node.decorator_list
    if not isinstance(node, ast.ClassDef):
        yield from (*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None))
        return
    yield from (*(b for b in node.bases if dotted_name(b) is None), *(k.value for k in node.keywords))
    for statement in node.body:
        if isinstance(statement, Definition):
            yield from _run_at_import(statement)
        else:
            yield statement  # with the bodies of what it defines: whether an `if` comes there is not asked


def _inner_definitions(node: ast.ClassDef) -> Iterator[Definition]:
    return (statement for statement in node.body if isinstance(statement, Definition))


def _names_in(node: ast.AST) -> list[str]:
    return [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]


def _is_main_block(statement: ast.stmt, tree: ast.Module) -> bool:
    if not isinstance(statement, ast.If) or statement.orelse or ast.dump(statement.test) != _MAIN_TEST:
        return False
    return not any("__name__" in bound_names(node) for node in ast.walk(tree))


def bound_names(node: ast.AST) -> tuple[str, ...]:
    """The names that one node of a tree binds by itself, its parts left out."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return (name,)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
            return (name,)
        case ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name):
            return (name,)
        case ast.MatchMapping(rest=str() as name) | ast.ExceptHandler(name=str() as name):
            return (name,)
        case ast.alias(name=name, asname=other):
            return (other or name.split(".")[0],)
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            return tuple(names)
    return ()


def is_kernel(node: ast.AST, aliases: Mapping[str, str] = USUAL_NAMES) -> bool:
    """Is this a function under Triton's own @triton.jit, in whatever company?

    Args:
        aliases: what imports bind, from `module_aliases` where the text is not trusted.
    """
    if not isinstance(node, ast.FunctionDef):
        return False
    names = [dotted_name(d.func if isinstance(d, ast.Call) else d) or "" for d in node.decorator_list]
    return any(full_name(name, aliases) in JIT for name in names)


def module_aliases(tree: ast.Module) -> dict[str, str]:
    """What the names that imports bind stand for: {"tl": "triton.language", "next": "triton.next_power_of_2"}.

    A name that the file itself defines at the top level is not among them. `ambiguous_imports` has those that stand for
    one thing here and for another there.
    """
    aliases = {name: full for _, name, full in _imports(tree)}
    defined = {s.name for s in tree.body if isinstance(s, ast.FunctionDef | ast.ClassDef)}
    return {name: full for name, full in aliases.items() if name not in defined}


def ambiguous_imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Lines of imports that bind a name to something else than an earlier one, with the name.

    What Triton keeps in several places, and in others in other versions, is taken for the same.
    """
    first: dict[str, str] = {}
    for line, name, full in sorted(_imports(tree)):
        known = first.setdefault(name, full)
        if known != full and not all(place.startswith("triton.language.") for place in (known, full)):
            yield line, name


def _imports(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Line, bound name and full name of everything that is imported anywhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for a in node.names:
                yield node.lineno, a.asname or a.name.split(".")[0], a.name if a.asname else a.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom):
            for a in node.names:
                yield node.lineno, a.asname or a.name, f"{node.module}.{a.name}"


def full_name(name: str, aliases: Mapping[str, str]) -> str:
    """A dotted name, its first part resolved ("F.relu" is torch.nn.functional.relu); empty where no import bound it."""
    root, _, rest = name.partition(".")
    if root not in aliases:
        return ""
    return f"{aliases[root]}.{rest}" if rest else aliases[root]


def dotted_name(node: ast.AST) -> str | None:
    """ "torch.nn.Module" for such an expression, None for any other."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted_name(node.value)
        return f"{owner}.{node.attr}" if owner else None
    return None
