"""Host code, read line by line: it may allocate, view and launch, and keeps nothing between calls.

Reading is a trip-wire that names the line; the dry run is what decides about operations, because it sees what is called
and not how it is spelt.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from evaluators.gates import policy
from evaluators.gates.allowed_names import MAY, is_allowed_operation, is_module, refusal_of
from evaluators.gates.kernel_code import kernel_findings
from evaluators.gates.lasting import Function, Scope
from evaluators.gates.reachable import dotted_name, full_name, is_kernel, module_aliases, reachable_statements

Finding = tuple[int, str]
_KEEPS = "a program keeps nothing between calls"
_COMPUTING_ANNOTATION = (ast.Call, ast.Lambda, ast.NamedExpr, ast.comprehension, ast.Await)


def host_findings(tree: ast.Module, entry_point: str, allowed: frozenset[str]) -> Iterator[Finding]:
    """What the policy does not allow, with its line, in code that the entry point can reach.

    `allowed` are the names of operations that the compiled baseline calls too.
    """
    statements = reachable_statements(tree, entry_point)
    reader = HostReader(tree, allowed)
    for statement in statements:
        reader.visit(statement)
    yield from dict.fromkeys(reader.findings)


class HostReader(ast.NodeVisitor):
    """Walks host code, hands kernels on, and notes what the policy does not allow."""

    def __init__(self, tree: ast.Module, allowed: frozenset[str]) -> None:
        self.findings: list[Finding] = []
        self._allowed = allowed
        self._aliases = module_aliases(tree)
        self._scopes: list[Scope] = [Scope(tree, self._is_library)]  # that of the module first, the innermost last
        self._functions: list[Function] = []  # that we are in, outermost first
        self._classes: list[ast.ClassDef | None] = [None]  # whose body we are in; None inside a function of it
        self._layers: dict[str, str] = {}  # attributes of self that hold layers of torch.nn
        self._methods: set[str] = set()  # of the class that we are in

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
        if node.id in policy.BUILTINS:
            self._refuse(node, f"{node.id} is not for host code, {MAY}")
        elif full and not isinstance(node.ctx, ast.Load):
            self._refuse(node, f"{node.id} is imported, and bound again")
        elif is_module(full):
            self._refuse(node, f"the module {node.id} is passed around; call what you need of it by name")

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and any(register in node.value for register in policy.CLOCK_REGISTERS):
            self._refuse(node, "reads the clock of the GPU; work must not depend on when it is done")

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
            return attribute != "__name__" and not (self._is_constructing() and _is_of_parent(node))
        if _root_of(node) in ("self", "cls") and not attribute.startswith("__"):
            return False
        hidden = policy.ATTRIBUTES | policy.BUILTINS | policy.HIDDEN_MODULES
        return attribute in hidden or attribute.startswith("_")

    def _full_name(self, node: ast.AST) -> str:
        """The dotted name with import aliases resolved, or nothing."""
        name = dotted_name(node) or ""
        return "" if self._is_shadowed(name.partition(".")[0]) else full_name(name, self._aliases)

    def _is_library(self, node: ast.expr) -> bool:
        return self._full_name(node).partition(".")[0] in ("torch", "triton")

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
        scope, target = self._scopes[-1], node.target
        if isinstance(target, ast.Name) and scope.is_container(node.value) and not scope.owns(target.id):
            self._refuse(node, f"changes {target.id} in place: {_KEEPS}")
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
        root = _root_of(node)
        if not (self._is_constructing() or self._is_in_autograd()) or root != self._first_parameter():
            self._refuse(node, f"writes to {ast.unparse(node)}: {_KEEPS}")

    def _check_mutator(self, node: ast.Attribute) -> None:
        if node.attr in policy.MUTATORS and isinstance(node.ctx, ast.Load) and not self._may_write(node.value):
            self._refuse(node, f"{ast.unparse(node)}() changes what outlives the call")

    def _may_write(self, owner: ast.expr) -> bool:
        """Whether the object is this call's own, or that of the constructor that we are in."""
        is_super = isinstance(owner, ast.Call) and dotted_name(owner.func) == "super"
        if is_super or (self._is_constructing() and _root_of(owner) == self._first_parameter()):
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
        return any(self._full_name(base).endswith("torch.autograd.Function") for base in node.bases)

    def _first_parameter(self) -> str:
        arguments = self._functions[-1].args
        return next((a.arg for a in (*arguments.posonlyargs, *arguments.args)), "")

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
        self.generic_visit(node)

    def _check_method(self, node: ast.Call, function: ast.Attribute) -> None:
        is_of_self = dotted_name(function) == f"self.{function.attr}"
        layer = self._layers.get(function.attr) if is_of_self else None
        if layer and layer not in policy.IDLE_LAYERS | self._allowed | policy.NN_CONTAINERS:
            self._refuse(node, f"self.{function.attr} is torch.nn.{layer}, which computes in torch; do it in a kernel")
        if self._full_name(function) or (is_of_self and function.attr in self._methods):
            return
        if function.attr in policy.COMPUTING_METHODS - self._allowed:
            self._refuse(node, f".{function.attr}() computes in torch; do it in a kernel")

    # definitions -----------------------------------------------------------------------------------------------------

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Constructors first: they say which attributes are layers."""
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
        for decorator in node.decorator_list:
            self._check_decorator(decorator)
        self._check_signature(node)
        if is_kernel(node, {n: f for n, f in self._aliases.items() if not self._is_shadowed(n)}):
            self.findings += kernel_findings(node, self._aliases)
            return
        owner = self._classes[-1]
        if node.name == "backward" and owner is not None and self._is_autograd(owner):
            return  # a forward does not come there
        if node.name.startswith("__") and node.name not in policy.DEFINABLE_DUNDERS:
            self._refuse(node, f"defines {node.name}, which runs unasked")
        self._enter(node, node.body)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._refuse(node, "async: a program answers when its forward returns")

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._check_defaults(node.args)
        self._enter(node, [node.body])

    def _enter(self, node: Function, body: list[ast.stmt] | list[ast.expr]) -> None:
        self._scopes.append(Scope(node, self._is_library))
        self._functions.append(node)
        self._classes.append(None)
        for part in body:
            self.visit(part)
        self._classes.pop()
        self._functions.pop()
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
        if name.rsplit(".", 1)[-1] == "autotune":
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


def _is_of_parent(node: ast.Attribute) -> bool:
    """Is this `super().__init__`, or that of a named class?"""
    return dotted_name(node.value) is not None or (
        isinstance(node.value, ast.Call) and dotted_name(node.value.func) == "super"
    )
