"""Host code, read line by line: it may allocate, view and launch, and keeps nothing between calls.

Reading is a trip-wire that names the line; the dry run is what decides about operations, because it sees what is called
and not how it is spelt.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from evaluators.gates import policy
from evaluators.gates.allowed_names import MAY, is_allowed_operation, is_module, refusal_of
from evaluators.gates.kernel_code import begins_with_wait, kernel_findings, written_texts
from evaluators.gates.lasting import Function, Scope
from evaluators.gates.modules_held import ModulesHeld
from evaluators.gates.own_names import OwnNames, attribute_names, first_parameter
from evaluators.gates.reachable import (
    Definition,
    ambiguous_imports,
    bound_names,
    dotted_name,
    full_name,
    is_kernel,
    module_aliases,
    reachable_statements,
    unreached_definitions,
)

Finding = tuple[int, str]
_KEEPS = "a program keeps nothing between calls"
_OVERLAPS = "launch_pdl"  # programmatic dependent launch, an option of Triton's launches
_OF_BACKWARD = frozenset({"staticmethod", "torch.autograd.function.once_differentiable"})
_COMPUTING_ANNOTATION = (ast.Call, ast.Lambda, ast.NamedExpr, ast.comprehension, ast.Await)


def host_findings(tree: ast.Module, entry_point: str, allowed: frozenset[str]) -> Iterator[Finding]:
    """What the policy does not allow, with its line, in code that runs at import or that the entry point can reach.

    `allowed` are the names of operations that the compiled baseline calls too.
    """
    for line, name in ambiguous_imports(tree):
        yield line, f"{name} is imported twice, and stands for two things"
    reader = HostReader(tree, allowed)
    for statement in reachable_statements(tree, entry_point):
        reader.visit(statement)
    for definition in unreached_definitions(tree, entry_point):
        reader.read_what_runs_at_import(definition)
    yield from dict.fromkeys(reader.findings)


class HostReader(ast.NodeVisitor):
    """Walks host code, hands kernels on, and notes what the policy does not allow."""

    def __init__(self, tree: ast.Module, allowed: frozenset[str]) -> None:
        self.findings: list[Finding] = []
        self._allowed = allowed
        self._aliases = module_aliases(tree)
        self._own = OwnNames(tree, self._aliases)
        self._held = ModulesHeld(tree, self._aliases, self._own)
        self._attributes = attribute_names(tree)
        self._imported = {name for n in ast.walk(tree) if isinstance(n, ast.alias) for name in bound_names(n)}
        self._kernels = {s.name: s for s in tree.body if isinstance(s, ast.FunctionDef) and is_kernel(s, self._aliases)}
        self._texts = written_texts(tree, self._aliases)
        self._autograd = {s.name for s in tree.body if isinstance(s, ast.ClassDef) and self._is_autograd(s)}
        self._scopes: list[Scope] = []  # that of the module first, the innermost last
        self._scopes.append(Scope(tree, self._is_library, None, self._attributes))
        self._functions: list[Function] = []  # that we are in, outermost first
        self._classes: list[ast.ClassDef | None] = [None]  # whose body we are in; None inside a function of it
        self._layers: dict[str, str] = {}  # attributes of self that hold layers of torch.nn
        self._methods: set[str] = set()  # of the class that we are in
        self._owners: list[ast.ClassDef | None] = []  # of each function that we are in, whose method it is
        self._parents: set[int] = set()  # constructors of classes that are given our own object
        self._is_at_import = False  # bodies of functions are left out

    def read_what_runs_at_import(self, definition: Definition) -> None:
        """Reads a definition that nothing leads to: all but the bodies of its functions."""
        self._is_at_import = True
        self.visit(definition)
        self._is_at_import = False

    def _refuse(self, node: ast.AST, what: str) -> None:
        self.findings.append((getattr(node, "lineno", 1), what))

    # imports and names -----------------------------------------------------------------------------------------------

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._check_module(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or "."
        if module not in policy.MODULES or node.level:
            self._check_module(node, module)
            return
        for alias in node.names:
            full = f"{module}.{alias.name}"
            if module == "functools" and alias.name in policy.ATTRIBUTES:
                self._refuse(node, f"functools.{alias.name} remembers between calls")
            elif full not in policy.MODULES:
                self._check_library(node, full)

    def _check_module(self, node: ast.AST, module: str) -> None:
        if module not in policy.MODULES:
            self._refuse(node, f"import of {module}; allowed are torch, torch.nn, triton, math, typing and their like")

    def visit_Name(self, node: ast.Name) -> None:
        if self._is_shadowed(node.id):
            return
        full = self._aliases.get(node.id, "")
        if full.rsplit(".", 1)[-1] in policy.OF_KERNELS:
            self._refuse(node, f"{full} is for kernels alone")
        elif node.id in policy.BUILTINS:
            self._refuse(node, f"{node.id} is not for host code, {MAY}")
        elif not isinstance(node.ctx, ast.Load) and node.id in self._imported:
            self._refuse(node, f"{node.id} is imported, and bound again")
        elif is_module(full):
            self._refuse(node, f"the module {node.id} is passed around; call what you need of it by name")

    def _check_bound(self, node: ast.AST) -> None:
        """Definitions and patterns bind names, too; in a function they hide what was imported, and are seen to."""
        is_hidden = bool(self._functions) and self._classes[-1] is None
        for name in bound_names(node):
            if name in self._imported and not is_hidden:
                self._refuse(node, f"{name} is imported, and bound again")

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        self._check_bound(node)
        self.generic_visit(node)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        self._check_bound(node)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self._check_bound(node)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if not isinstance(node.value, str):
            return
        if any(register in node.value for register in policy.CLOCK_REGISTERS):
            self._refuse(node, "reads the clock of the GPU; work must not depend on when it is done")
        if node.value == _OVERLAPS:
            self._refuse(node, f"{_OVERLAPS} is given as a text; say it where a kernel is launched")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._check_written_attribute(node)
        full = self._full_name(node)
        if is_allowed_operation(full, self._allowed):
            return
        names = (dotted_name(node) or "").split(".")[1:] if full else [node.attr]
        refused = [name for name in names if self._is_refused(name, node)]
        if refused:
            self._refuse(node, f".{refused[0]} is not for host code, {MAY}")
        elif is_module(full):
            self._refuse(node, f"the module {full} is passed around; call what you need of it by name")
        elif full:
            self._check_library(node, full)
        else:
            self._check_mutator(node)
            self.generic_visit(node)

    def _is_refused(self, attribute: str, node: ast.Attribute) -> bool:
        """Is this an attribute that no host code may touch? A model may call its own what it likes, but for dunders."""
        if attribute in policy.DUNDER_ATTRIBUTES:
            return attribute != "__name__" and not (self._is_constructing() and self._is_of_parent(node))
        hidden = policy.ATTRIBUTES | policy.BUILTINS - policy.HARMLESS_AS_ATTRIBUTES | policy.HIDDEN_MODULES
        if attribute not in hidden and not attribute.startswith("_"):
            return False
        return attribute.startswith("__") or not self._is_own(node)

    def _is_own(self, node: ast.Attribute) -> bool:
        """Whether this is an attribute that a model has given itself, asked of the model itself."""
        if not isinstance(node.value, ast.Name):
            return False
        name = node.value.id
        for function, owner, scope in zip(self._functions[::-1], self._owners[::-1], self._scopes[:0:-1], strict=True):
            if scope.binds(name):
                is_self = isinstance(function, ast.FunctionDef) and first_parameter(function) == name
                if not is_self or owner is None or not scope.is_given_once(name):
                    return False
                return self._own.has(owner, function, node.attr)  # type: ignore[arg-type]
        return False

    def _full_name(self, node: ast.AST) -> str:
        """The dotted name with import aliases resolved, or nothing."""
        name = dotted_name(node) or ""
        return "" if self._is_shadowed(name.partition(".")[0]) else full_name(name, self._aliases)

    def _is_library(self, node: ast.expr) -> bool:
        return self._full_name(node).partition(".")[0] in ("torch", "triton", "math")

    def _is_shadowed(self, name: str) -> bool:
        return any(scope.binds(name) for scope in self._scopes[1:])

    def _check_library(self, node: ast.AST, full: str) -> None:
        """`full` is the full dotted name of something that an import reached."""
        refusal = refusal_of(full, self._allowed)
        if refusal:
            self._refuse(node, refusal)

    # state that survives a call --------------------------------------------------------------------------------------

    def visit_Global(self, node: ast.Global) -> None:
        self._refuse(node, f"global {', '.join(node.names)}: {_KEEPS}")

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self._refuse(node, f"nonlocal {', '.join(node.names)}: {_KEEPS}")

    def visit_Yield(self, node: ast.Yield | ast.YieldFrom) -> None:
        self._refuse(node, f"yield: a generator keeps its place, and {_KEEPS}")

    def visit_YieldFrom(self, node: ast.YieldFrom) -> None:
        self.visit_Yield(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._check_stored(node.targets, node.value)
        self._note_layer(node)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._check_annotation(node.annotation)
        self.visit(node.target)
        if node.value is not None:
            self._check_stored([node.target], node.value)
            self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """`+=` changes a list in place, and the list may be somebody else's."""
        if not self._scopes[-1].may_change(node):
            target = ast.unparse(node.target)
            self._refuse(node, f"may change {target} in place: {_KEEPS}; of a number, write {target} = {target} ...")
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load) and not self._may_write(node.value):
            self._refuse(node, f"writes to {ast.unparse(node)}: {_KEEPS}")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and self._scopes[-1].is_iterator(node.value):
            self._refuse(node, f"returns an iterator, which keeps its place; {_KEEPS}")
        self.generic_visit(node)

    def _check_written_attribute(self, node: ast.Attribute) -> None:
        """Attributes are written by constructors, to self, and by autograd functions, to the context of a call."""
        root, *path = (dotted_name(node) or "").split(".")
        is_here = (self._is_constructing() or self._is_in_autograd()) and root and root == self._first_parameter()
        if not is_here or not (len(path) == 1 or self._own.holds_only_layers(path[:-1])):
            self._refuse(node, f"writes to {ast.unparse(node)}: {_KEEPS}")

    def _check_mutator(self, node: ast.Attribute) -> None:
        if not isinstance(node.ctx, ast.Load) or self._may_write(node.value):
            return
        if node.attr in policy.CONVERSIONS:
            changes = self._held.may_hold(node.value)
        else:
            changes = node.attr in policy.MUTATORS and not self._is_autograd_apply(node)
        if changes:
            self._refuse(node, f"{ast.unparse(node)}() changes what outlives the call")

    def _is_autograd_apply(self, node: ast.Attribute) -> bool:
        """`Function.apply` runs a function; a module's changes all of its parts."""
        owner = node.value.id if isinstance(node.value, ast.Name) else ""
        return node.attr == "apply" and owner in self._autograd and not self._is_shadowed(owner)

    def _may_write(self, owner: ast.expr) -> bool:
        """Whether the object is this call's own, or that of the constructor that we are in."""
        is_super = isinstance(owner, ast.Call) and dotted_name(owner.func) == "super"
        if is_super or (self._is_constructing() and _root_of(owner) == (self._first_parameter() or None)):
            return True
        return self._scopes[-1].is_new(owner)

    def _check_stored(self, targets: list[ast.expr], value: ast.expr) -> None:
        """An iterator that is stored where it outlives the call counts calls."""
        outlives = not self._functions or any(not isinstance(target, ast.Name | ast.Tuple) for target in targets)
        if outlives and self._scopes[-1].is_iterator(value):
            self._refuse(value, f"stores an iterator, which keeps its place; {_KEEPS}")

    def _is_constructing(self) -> bool:
        """Are we in the constructor of a class, itself and not a function within?"""
        is_method = len(self._classes) > 1 and self._classes[-1] is None and self._classes[-2] is not None
        return is_method and getattr(self._functions[-1], "name", "") in ("__init__", "__post_init__")

    def _is_in_autograd(self) -> bool:
        owner = self._classes[-2] if len(self._classes) > 1 and self._classes[-1] is None else None
        return owner is not None and self._is_autograd(owner)

    def _is_autograd(self, node: ast.ClassDef) -> bool:
        names = [full_name(dotted_name(base) or "", self._aliases) for base in node.bases]
        return names in (["torch.autograd.Function"], ["torch.autograd.function.Function"])

    def _first_parameter(self) -> str:
        """The first parameter of the function that we are in, where it stays what it was given."""
        name = first_parameter(self._functions[-1])
        return name if self._scopes[-1].is_given_once(name) else ""

    def _is_of_parent(self, node: ast.Attribute) -> bool:
        """Is this `super().__init__`, or that of a named class, given the object that is being made?"""
        is_super = isinstance(node.value, ast.Call) and dotted_name(node.value.func) == "super"
        return is_super or id(node) in self._parents

    def _note_parent(self, node: ast.Call) -> None:
        owner = self._first_parameter() if self._functions else ""
        if owner and node.args and isinstance(node.args[0], ast.Name) and node.args[0].id == owner:
            self._parents.add(id(node.func))

    def _note_layer(self, node: ast.Assign) -> None:
        layer = self._full_name(node.value.func) if isinstance(node.value, ast.Call) else ""
        if not layer.startswith("torch.nn."):
            return
        for target in node.targets:
            if isinstance(target, ast.Attribute) and _root_of(target) == "self":
                self._layers[target.attr] = layer.rsplit(".", 1)[-1]

    # control flow and calls ------------------------------------------------------------------------------------------

    def visit_Try(self, node: ast.Try | ast.TryStar) -> None:
        """Only around imports, which differ between versions of Triton."""
        parts = [*node.body, *(s for handler in node.handlers for s in handler.body)]
        is_of_imports = all(isinstance(s, ast.Import | ast.ImportFrom) for s in parts)
        if not self._functions and is_of_imports and not node.orelse and not node.finalbody:
            for statement in parts:
                self.visit(statement)
            return
        self._refuse(node, "try: a program has no second way to its answer; let the kernel's error show")

    def visit_TryStar(self, node: ast.TryStar) -> None:
        self.visit_Try(node)

    def visit_MatchClass(self, node: ast.MatchClass) -> None:
        if node.kwd_attrs:
            self._refuse(node, "a pattern that takes attributes by name; name them where they are used")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.MatMult) and "@" not in self._allowed:
            self._refuse(node, "a product with @ computes in torch; do it in a kernel")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute):
            self._check_method(node, node.func)
            self._note_parent(node)
        self._check_overlap(node)
        self.generic_visit(node)

    def _check_overlap(self, node: ast.Call) -> None:
        """Launches may overlap only where the kernel begins by waiting for the one before it."""
        asked = next((k.value for k in node.keywords if k.arg == _OVERLAPS), None)
        if asked is None or (isinstance(asked, ast.Constant) and asked.value is False):
            return
        launched = node.func.value if isinstance(node.func, ast.Subscript) else None
        name = launched.id if isinstance(launched, ast.Name) and not self._is_shadowed(launched.id) else ""
        kernel = self._kernels.get(name)
        if kernel is None or not begins_with_wait(kernel, self._aliases):
            self._refuse(node, f"{_OVERLAPS} lets launches overlap; the kernel has to begin with gdc_wait()")

    def _check_method(self, node: ast.Call, function: ast.Attribute) -> None:
        is_of_self = dotted_name(function) == f"self.{function.attr}"
        layer = self._layers.get(function.attr) if is_of_self else None
        if layer and layer not in policy.IDLE_LAYERS | self._allowed | policy.NN_CONTAINERS:
            self._refuse(node, f"self.{function.attr} is torch.nn.{layer}, which computes in torch; do it in a kernel")
        if function.attr == "query" and not node.args and not node.keywords:
            self._refuse(node, ".query() asks how far the device is; work must not depend on when it is done")
        if self._full_name(function) or (is_of_self and function.attr in self._methods):
            return
        if function.attr in policy.COMPUTING_METHODS - self._allowed:
            self._refuse(node, f".{function.attr}() computes in torch; do it in a kernel")

    # definitions -----------------------------------------------------------------------------------------------------

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Constructors first: they say which attributes are layers."""
        self._check_bound(node)
        for decorator in node.decorator_list:
            self._check_decorator(decorator)
        for part in (*node.bases, *(k.value for k in node.keywords)):
            self.visit(part)
        if any(keyword.arg == "metaclass" for keyword in node.keywords):
            self._refuse(node, f"{node.name} has a metaclass, which runs unasked")
        self._classes.append(node)
        outer, self._methods = self._methods, {s.name for s in node.body if isinstance(s, ast.FunctionDef)}
        for statement in sorted(node.body, key=lambda s: getattr(s, "name", "") != "__init__"):
            self.visit(statement)
        self._methods = outer
        self._classes.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._check_bound(node)
        for decorator in node.decorator_list:
            self._check_decorator(decorator)
        self._check_signature(node)
        if is_kernel(node, {n: f for n, f in self._aliases.items() if not self._is_shadowed(n)}):
            self.findings += [] if self._is_at_import else kernel_findings(node, self._aliases, self._texts)
            return
        if self._is_at_import or self._is_backward(node):
            return
        if node.name.startswith("__") and node.name not in policy.DEFINABLE_DUNDERS:
            self._refuse(node, f"defines {node.name}, which runs unasked")
        self._enter(node, node.body)

    def _is_backward(self, node: ast.FunctionDef) -> bool:
        """Is this the backward of an autograd function, where no forward comes? Nobody may name it."""
        owner = self._classes[-1]
        if node.name != "backward" or owner is None or not self._is_autograd(owner) or owner.decorator_list:
            return False
        named = any(isinstance(n, ast.Name) and n.id == "backward" for n in ast.walk(owner))
        decorators = {dotted_name(d) or "" for d in node.decorator_list}
        return not named and all((self._aliases.get(d) or d) in _OF_BACKWARD for d in decorators)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        if self._is_at_import:
            for part in (*node.decorator_list, node.args):
                self.visit(part)
        else:
            self._refuse(node, "async: a program answers when its forward returns")

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._check_defaults(node.args)
        self._enter(node, [node.body])

    def _enter(self, node: Function, body: list[ast.stmt] | list[ast.expr]) -> None:
        self._scopes.append(Scope(node, self._is_library, self._scopes[-1], self._attributes))
        self._owners.append(self._classes[-1])
        self._functions.append(node)
        self._classes.append(None)
        for part in body:
            self.visit(part)
        self._classes.pop()
        self._functions.pop()
        self._owners.pop()
        self._scopes.pop()

    def _check_signature(self, node: ast.FunctionDef) -> None:
        self._check_defaults(node.args)
        arguments = [a for a in ast.walk(node.args) if isinstance(a, ast.arg)]
        for annotation in (*(a.annotation for a in arguments), node.returns):
            if annotation is not None:
                self._check_annotation(annotation)

    def _check_defaults(self, arguments: ast.arguments) -> None:
        for default in (*arguments.defaults, *filter(None, arguments.kw_defaults)):
            if isinstance(default, ast.Dict | ast.List | ast.Set | ast.ListComp | ast.SetComp | ast.DictComp):
                self._refuse(default, "a default that can be written to keeps state between calls")
            elif self._scopes[-1].is_iterator(default):
                self._refuse(default, f"an iterator as a default keeps its place; {_KEEPS}")
            self.visit(default)

    def _check_annotation(self, annotation: ast.expr) -> None:
        """An annotation is evaluated at import."""
        if any(isinstance(node, _COMPUTING_ANNOTATION) for node in ast.walk(annotation)):
            self._refuse(annotation, f"the annotation {ast.unparse(annotation)} computes; annotations name types")

    def _check_decorator(self, decorator: ast.expr) -> None:
        name = dotted_name(decorator.func if isinstance(decorator, ast.Call) else decorator) or ""
        if name.rsplit(".", 1)[-1] == "autotune" and self._is_at_import and isinstance(decorator, ast.Call):
            for part in (*decorator.args, *(k.value for k in decorator.keywords)):
                self.visit(part)
        elif name.rsplit(".", 1)[-1] == "autotune":
            self._refuse(
                decorator,
                "@triton.autotune: a program carries one configuration; each configuration is a candidate of its own",
            )
        else:
            self.visit(decorator)


def _root_of(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
