"""Which names a model may call its own, and what it holds.

A model's attributes may be called what it likes (`self._rows`, `self.input`), although the same names on a tensor, a
kernel or a class reach around the language. So `self` has to be a model, surely: the first parameter of a method that
nobody can call with something else in its place.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from evaluators.gates.reachable import dotted_name, full_name

Method = ast.FunctionDef
_MODEL = "torch.nn.Module"
_KEEPING_SELF = frozenset({"property", "classmethod", "torch.no_grad", "torch.inference_mode", "typing.override"})
_ASKING = frozenset({"isinstance", "issubclass", "super"})
_REGISTERING = frozenset({"register_buffer", "register_parameter", "register_module", "add_module"})


class OwnNames:
    """The attributes that the models of a file define.

    Args:
        tree: the whole file.
        aliases: what its imports bind.
    """

    def __init__(self, tree: ast.Module, aliases: Mapping[str, str]) -> None:
        self._aliases = aliases
        self._classes = {s.name: s for s in tree.body if isinstance(s, ast.ClassDef)}
        self._is_unique = len(self._classes) == sum(isinstance(s, ast.ClassDef) for s in tree.body)
        self._is_of_models: dict[ast.ClassDef, bool] = {}
        self._models = {name: s for name, s in self._classes.items() if self.is_model(s)}
        self._is_exposed = not self._is_unique or any(self._exposures(tree))
        self._stored = _stored_attributes(tree)
        self._found: dict[ast.FunctionDef, frozenset[str]] = {}

    def is_model(self, node: ast.ClassDef) -> bool:
        """Whether a class derives from torch.nn.Module, by way of classes of the file or at once, and nothing else."""
        if node not in self._is_of_models:
            self._is_of_models[node] = False  # while it is being found out: no class derives from itself
            is_here = bool(node.bases) and self._classes.get(node.name) is node
            self._is_of_models[node] = is_here and all(map(self._is_base_of_models, node.bases))
        return self._is_of_models[node]

    def _is_base_of_models(self, base: ast.expr) -> bool:
        name = dotted_name(base) or ""
        if name in self._classes:
            return self.is_model(self._classes[name])
        return full_name(name, self._aliases) == _MODEL

    def has(self, owner: ast.ClassDef, method: Method, attribute: str) -> bool:
        """Whether `attribute` is one that the class defines, and the first parameter of its method is one of it."""
        if self._is_exposed or self._models.get(owner.name) is not owner:
            return False
        if method not in self._found:
            names = (_defined_in(c) for c in self._family(owner)) if self._keeps_self(owner, method) else ()
            self._found[method] = frozenset().union(*names)
        return attribute in self._found[method]

    def holds_only_layers(self, path: list[str]) -> bool:
        """Whether attributes on the way to one ("norm", "weight") are surely layers or parameters of torch.nn.

        The first is one that the file stores; those after it are what torch has put there.
        """
        values = [self._stored.get(name, []) for name in path]
        return bool(values[0]) and all(self._makes_layer(value) for stored in values for value in stored)

    def _makes_layer(self, value: ast.expr | None) -> bool:
        made = isinstance(value, ast.Call) and full_name(dotted_name(value.func) or "", self._aliases)
        return bool(made) and str(made).startswith("torch.nn.")

    def _keeps_self(self, owner: ast.ClassDef, method: Method) -> bool:
        if owner.decorator_list or owner.keywords:
            return False
        names = [dotted_name(d.func if isinstance(d, ast.Call) else d) or "" for d in method.decorator_list]
        if any((full_name(name, self._aliases) or name) not in _KEEPING_SELF for name in names):
            return False
        loaded = {n.id for s in owner.body if not isinstance(s, Method) for n in ast.walk(s) if isinstance(n, ast.Name)}
        loaded |= {n.id for s in owner.body if isinstance(s, Method) for n in _names_outside(s)}
        return method.name not in loaded

    def _family(self, node: ast.ClassDef) -> list[ast.ClassDef]:
        """A model's class and those of the file that it derives from."""
        family = [node]
        for one in family:  # which grows meanwhile
            names = (dotted_name(base) or "" for base in one.bases)
            family += [m for m in (self._models.get(name) for name in names) if m is not None and m not in family]
        return family

    def _exposures(self, tree: ast.Module) -> Iterator[ast.Name]:
        """Where the class of a model is passed around, or a method of it is taken without a model."""
        plain = set(map(id, _plain_uses(tree)))
        methods = {s.name for c in self._models.values() for s in c.body if isinstance(s, Method) and _takes_self(s)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr not in methods:
                plain.add(id(node.value))
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id in self._models and id(node) not in plain:
                yield node


def first_parameter(function: ast.AST) -> str:
    """The name of a function's first parameter, empty where it has none."""
    arguments = getattr(function, "args", None)
    if not isinstance(arguments, ast.arguments):
        return ""
    return next((a.arg for a in (*arguments.posonlyargs, *arguments.args)), "")


def attribute_names(tree: ast.Module) -> frozenset[str]:
    """Every name that a file may give to an attribute of its own: stores, what class bodies define, text."""
    names: set[str] = set()
    named_tuples = any("NamedTuple" in (getattr(n, "name", ""), getattr(n, "attr", "")) for n in ast.walk(tree))
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Constant(value=str(name)):
                names.add(name)
            case ast.keyword(arg=str(name)) if named_tuples:
                names.add(name)
            case ast.ClassDef():
                names |= _class_names(node)
    return frozenset(names)


def _takes_self(method: Method) -> bool:
    names = [dotted_name(decorator) for decorator in method.decorator_list]
    return "staticmethod" not in names and "classmethod" not in names


def _names_outside(method: Method) -> Iterator[ast.Name]:
    """Names that a method's definition uses where the body of its class runs."""
    defaults = (d for d in (*method.args.defaults, *method.args.kw_defaults) if d is not None)
    for part in (*method.decorator_list, *defaults):
        yield from (n for n in ast.walk(part) if isinstance(n, ast.Name))


def _plain_uses(tree: ast.Module) -> Iterator[ast.AST]:
    """Expressions that are called, derived from, asked about, or name a type: none of these hands a class on."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name), args=arguments) if name in _ASKING:
                yield from (node.func, *(part for a in arguments for part in ast.walk(a)))
            case ast.Call(func=function):
                yield function
            case ast.ClassDef(bases=bases):
                yield from bases
            case ast.arg(annotation=ast.expr() as annotation) | ast.AnnAssign(annotation=annotation):
                yield from ast.walk(annotation)
            case ast.FunctionDef(returns=ast.expr() as annotation):
                yield from ast.walk(annotation)
            case ast.MatchClass(cls=named):
                yield named


def _class_names(node: ast.ClassDef) -> set[str]:
    names: set[str] = set()
    for statement in node.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    return names


def _defined_in(node: ast.ClassDef) -> set[str]:
    """Attributes of a class: what its body binds, what its methods store to their first parameter, or register."""
    names = _class_names(node)
    for method in (s for s in node.body if isinstance(s, Method)):
        own = first_parameter(method)
        for part in ast.walk(method):
            match part:
                case ast.Attribute(value=ast.Name(id=name), attr=attribute, ctx=ast.Store()) if name == own:
                    names.add(attribute)
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id=name), attr=attribute),
                    args=[ast.Constant(value=str(given)), *_],
                ) if name == own and attribute in _REGISTERING:
                    names.add(given)
    return names


def _stored_attributes(tree: ast.Module) -> dict[str, list[ast.expr | None]]:
    """What a file gives to attributes, by their name; None where the text does not say."""
    stored: dict[str, list[ast.expr | None]] = {}
    given = {
        id(target): node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            stored.setdefault(node.attr, []).append(given.get(id(node)))
    return stored
