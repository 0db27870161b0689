"""Static gate: is it a legal program? Host code may allocate, view and launch; kernels compute.

`check_policy` reads the source, `check_capture` what a dry run on fake tensors did. Reading is a trip-wire that names
the line; the dry run is what decides about operations, because it sees what is called and not how it is spelt.
Only code that the entry point can reach is read: an unused reference in the same file hurts nobody.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Collection, Iterator

from db.errors import ConfigError
from db.records import Capture, Gate, GateResult, Hardware
from evaluators.gates import policy
from evaluators.gates.reachable import dotted_name, is_kernel, reachable_statements
from evaluators.hardware import load_hardware

MAX_GRID = (2**31 - 1, 65535, 65535)  # CUDA C++ Programming Guide, "Technical Specifications": grid dimensions
MAX_WARPS = 32
MOST_FINDINGS = 5


def check_policy(source: str, entry_point: str, allowed_ops: Collection[str] = ()) -> GateResult:
    """Reads host code. `allowed_ops` are the operations of libraries that the compiled baseline calls ("aten.mm")."""
    start = time.perf_counter()
    findings = sorted(_findings(source, entry_point, policy.spellings_of(frozenset(allowed_ops))))[:MOST_FINDINGS]
    reason = "; ".join(f"line {line}: {what}" for line, what in findings)
    return GateResult(
        gate=Gate.STATIC,
        passed=not findings,
        reason=reason,
        evidence={"lines": [line for line, _ in findings]} if findings else {},
        seconds=time.perf_counter() - start,
    )


def _findings(source: str, entry_point: str, allowed: frozenset[str]) -> Iterator[tuple[int, str]]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError) as error:
        yield getattr(error, "lineno", None) or 1, f"the source does not parse: {getattr(error, 'msg', error)}"
        return
    entry = next((s for s in tree.body if getattr(s, "name", None) == entry_point), None)
    if not isinstance(entry, ast.ClassDef | ast.FunctionDef):
        yield 1, f"the program defines no {entry_point} at the top level"
        return
    yield from _entry_findings(entry)
    statements = reachable_statements(tree, entry_point)
    if not any(is_kernel(node) for s in statements for node in ast.walk(s)):
        yield entry.lineno, f"{entry_point} reaches no @triton.jit kernel; the work has to be done in kernels"
    reader = _HostReader(allowed, _module_names(tree), module_aliases(tree))
    for statement in statements:
        reader.visit(statement)
    yield from dict.fromkeys(reader.findings)


def _entry_findings(entry: ast.ClassDef | ast.FunctionDef) -> Iterator[tuple[int, str]]:
    if isinstance(entry, ast.FunctionDef):
        return
    bases = [dotted_name(base) for base in entry.bases]
    if not any(base in ("nn.Module", "torch.nn.Module", "Module") for base in bases):
        yield (
            entry.lineno,
            f"{entry.name} must derive from torch.nn.Module alone, got ({', '.join(map(str, bases))})",
        )
    if not any(isinstance(s, ast.FunctionDef) and s.name == "forward" for s in entry.body):
        yield entry.lineno, f"{entry.name} defines no forward"


def _module_names(tree: ast.Module) -> frozenset[str]:
    """Names that live as long as the module: what is bound to them survives from call to call."""
    names: set[str] = set()
    for statement in ast.walk(tree) if not tree.body else tree.body:
        for node in [statement, *(ast.iter_child_nodes(statement) if isinstance(statement, ast.If) else [])]:
            names |= _bound_names(node)
    return frozenset(names)


def _bound_names(node: ast.AST) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(a.asname or a.name).split(".")[0] for a in node.names}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}


class _HostReader(ast.NodeVisitor):
    """Walks host code, kernels left out, and notes what the policy does not allow."""

    def __init__(self, allowed: frozenset[str], module_names: frozenset[str], aliases: dict[str, str]) -> None:
        self.findings: list[tuple[int, str]] = []
        self._allowed = allowed
        self._module_names = module_names
        self._aliases = aliases
        self._functions: list[str] = []  # names of the functions that we are in, outermost first
        self._locals: list[set[str]] = []
        self._layers: dict[str, str] = {}  # attributes of self that hold layers of torch.nn

    def _refuse(self, node: ast.AST, what: str) -> None:
        self.findings.append((getattr(node, "lineno", 1), what))

    # imports and names -----------------------------------------------------------------------------------------------

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._check_module(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or "."
        if module in policy.MODULES:
            for alias in node.names:
                self._check_import(node, module, alias.name)
        else:
            self._check_module(node, module)

    def _check_module(self, node: ast.AST, module: str) -> None:
        if module not in policy.MODULES:
            self._refuse(node, f"import of {module}; allowed are torch, torch.nn, triton, math, typing and their like")

    def _check_import(self, node: ast.AST, module: str, name: str) -> None:
        full = f"{module}.{name}"
        if full in policy.MODULES:
            return
        if module == "functools" and name in policy.ATTRIBUTES:
            self._refuse(node, f"functools.{name} remembers between calls")
        else:
            self._check_library(node, full)

    def visit_Name(self, node: ast.Name) -> None:
        if self._is_shadowed(node.id):
            return
        if node.id in policy.BUILTINS:
            self._refuse(node, f"{node.id} is not for host code, {_MAY}")
        elif node.id in self._aliases and self._aliases[node.id] in policy.MODULES:
            self._refuse(node, f"the module {node.id} is passed around; call what you need of it by name")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        full = self._full_name(node)
        names = (dotted_name(node) or "").split(".")[1:] if full else [node.attr]
        refused = [name for name in names if self._is_refused(name, _root_of(node))]
        if refused:
            self._refuse(node, f".{refused[0]} is not for host code, {_MAY}")
        elif full:
            self._check_library(node, full)
        else:
            self.generic_visit(node)

    def _is_refused(self, attribute: str, root: str) -> bool:
        """Is this an attribute that no host code may touch? A model may call its own what it likes, but for dunders."""
        if attribute in policy.DUNDER_ATTRIBUTES:
            return False
        if root in ("self", "cls") and not attribute.startswith("__"):
            return False
        hidden = policy.ATTRIBUTES | policy.BUILTINS | policy.HIDDEN_MODULES
        return attribute in hidden or attribute.startswith("_")

    def _full_name(self, node: ast.AST) -> str:
        """The dotted name with import aliases resolved ("F.relu" is torch.nn.functional.relu), or nothing."""
        name = dotted_name(node) or ""
        root, _, rest = name.partition(".")
        if root not in self._aliases or self._is_shadowed(root):
            return ""
        return f"{self._aliases[root]}.{rest}" if rest else self._aliases[root]

    def _is_shadowed(self, name: str) -> bool:
        return any(name in names for names in self._locals)

    def _check_library(self, node: ast.AST, full: str) -> None:
        """`full` is the full dotted name of something that an import reached."""
        parts = full.split(".")
        if parts[-1] in self._allowed or len(parts) < 2:
            return
        if full.startswith("torch.nn.functional."):
            self._refuse(node, f"{full} computes in torch; do it in a kernel")
        elif full.startswith("torch.nn."):
            return  # layers may hold weights; calling one is another matter
        elif ".".join(parts[:2]) in policy.SUBMODULE_NAMES and len(parts) > 2:
            if parts[2] not in policy.SUBMODULE_NAMES[".".join(parts[:2])]:
                self._refuse(node, f"{full} is not for host code, {_MAY}")
        elif parts[0] in _NAMES_OF and parts[1] not in _NAMES_OF[parts[0]]:
            self._refuse(node, f"{full} is not for host code, {_MAY}; kernels compute")

    # state that survives a call --------------------------------------------------------------------------------------

    def visit_Global(self, node: ast.Global) -> None:
        self._refuse(node, f"global {', '.join(node.names)}: a program keeps nothing between calls")

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self._refuse(node, f"nonlocal {', '.join(node.names)}: a program keeps nothing between calls")

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._check_target(target)
        self._note_layer(node)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._check_target(node.target)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._check_target(node.target)
        if node.value is not None:
            self.visit(node.value)

    def visit_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            self._check_target(target)

    def _check_target(self, target: ast.AST) -> None:
        """Writing to a part of something that outlives the call keeps state, or patches somebody else's module."""
        if isinstance(target, ast.Tuple | ast.List):
            for element in target.elts:
                self._check_target(element)
        if not isinstance(target, ast.Attribute | ast.Subscript):
            return
        root = _root_of(target)
        is_own = root in ("self", "cls") and self._functions[-1:] != ["__init__"]
        if is_own or self._outlives(root):
            self._refuse(target, f"writes to {ast.unparse(target)}: a program keeps nothing between calls")

    def _outlives(self, name: str) -> bool:
        return name in self._module_names and not self._is_shadowed(name)

    def _note_layer(self, node: ast.Assign) -> None:
        layer = self._full_name(node.value.func) if isinstance(node.value, ast.Call) else ""
        if not layer.startswith("torch.nn."):
            return
        for target in node.targets:
            if isinstance(target, ast.Attribute) and _root_of(target) == "self":
                self._layers[target.attr] = layer.rsplit(".", 1)[-1]

    # control flow and calls ------------------------------------------------------------------------------------------

    def visit_Try(self, node: ast.Try) -> None:
        """Only around imports, which differ between versions of Triton."""
        parts = [*node.body, *(s for handler in node.handlers for s in handler.body)]
        if not self._functions and all(isinstance(s, ast.Import | ast.ImportFrom) for s in parts):
            for statement in parts:
                self.visit(statement)
            return
        self._refuse(node, "try: a program has no second way to its answer; let the kernel's error show")

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.MatMult) and "@" not in self._allowed:
            self._refuse(node, "a product with @ computes in torch; do it in a kernel")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute):
            self._check_method(node, node.func)
        self.generic_visit(node)

    def _check_method(self, node: ast.Call, function: ast.Attribute) -> None:
        layer = self._layers.get(function.attr) if dotted_name(function) == f"self.{function.attr}" else None
        if layer and layer not in policy.IDLE_LAYERS | self._allowed | policy.NN_CONTAINERS:
            self._refuse(node, f"self.{function.attr} is torch.nn.{layer}, which computes in torch; do it in a kernel")
        root = _root_of(function)
        if self._full_name(function):
            return
        if function.attr in policy.COMPUTING_METHODS - self._allowed:
            self._refuse(node, f".{function.attr}() computes in torch; do it in a kernel")
        elif self._outlives(root) and isinstance(function.value, ast.Name) and function.attr in _MUTATORS:
            self._refuse(node, f"{root}.{function.attr}() changes what outlives the call")

    # functions -------------------------------------------------------------------------------------------------------

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Constructors first: they say which attributes are layers."""
        for base in node.bases:
            self.visit(base)
        for statement in sorted(node.body, key=lambda s: getattr(s, "name", "") != "__init__"):
            self.visit(statement)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for decorator in node.decorator_list:
            self._check_decorator(decorator)
        if is_kernel(node) or node.name in _NEVER_CALLED:
            return
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            if isinstance(default, ast.Dict | ast.List | ast.Set | ast.Call):
                self._refuse(default, "a default that can be written to keeps state between calls")
            self.visit(default)
        self._functions.append(node.name)
        self._locals.append({a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)} | _assigned_names(node))
        for statement in node.body:
            self.visit(statement)
        self._functions.pop()
        self._locals.pop()

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._refuse(node, "async: a program answers when its forward returns")

    def _check_decorator(self, decorator: ast.expr) -> None:
        name = dotted_name(decorator.func if isinstance(decorator, ast.Call) else decorator) or ""
        if name.rsplit(".", 1)[-1] == "autotune":
            self._refuse(
                decorator,
                "@triton.autotune: a program carries one configuration; each configuration is a candidate of its own",
            )
        else:
            self.visit(decorator)


_MAY = "which may allocate, view and launch"
_NAMES_OF = {"torch": policy.TORCH_NAMES, "triton": policy.TRITON_NAMES}
_NEVER_CALLED = frozenset({"backward"})  # of an autograd function: a forward does not come there
_MUTATORS = frozenset(
    {"add", "append", "clear", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"}
)


def _root_of(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _assigned_names(function: ast.FunctionDef) -> set[str]:
    stored = (n for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return {name.id for name in stored}


def module_aliases(tree: ast.Module) -> dict[str, str]:
    """What the names that imports bind stand for: {"tl": "triton.language", "next": "triton.next_power_of_2"}."""
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases |= {
                a.asname or a.name.split(".")[0]: a.name if a.asname else a.name.split(".")[0] for a in node.names
            }
        elif isinstance(node, ast.ImportFrom):
            aliases |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return aliases


# ------------------------------------------------------------------------------------------------------------- dry run


def check_capture(capture: Capture, allowed_ops: Collection[str] = (), hardware: Hardware | None = None) -> GateResult:
    """Judges a dry run: it launches, fits on the device, and leaves the work to kernels.

    `allowed_ops` are the operations of libraries that the compiled baseline calls; without `hardware`, the limits are
    those of the target that the capture names.
    """
    refusals = [
        *_launch_refusals(capture, hardware or _hardware_of(capture)),
        *_operation_refusals(capture, policy.spellings_of(frozenset(allowed_ops))),
    ]
    evidence = {"n_launches": len(capture.launches), "torch_ops": [op.name for op in capture.torch_ops]}
    return GateResult(gate=Gate.STATIC, passed=not refusals, reason="; ".join(refusals), evidence=evidence)


def _hardware_of(capture: Capture) -> Hardware | None:
    try:
        return load_hardware(capture.target)
    except ConfigError:
        return None


def _launch_refusals(capture: Capture, hardware: Hardware | None) -> Iterator[str]:
    if not capture.launches:
        yield "forward launches no kernel"
    for launch in capture.launches:
        if launch.num_warps > MAX_WARPS:
            yield f"kernel {launch.kernel} asks for {launch.num_warps} warps, a block has at most {MAX_WARPS}"
        if any(size > most for size, most in zip(launch.grid, MAX_GRID, strict=True)):
            yield f"kernel {launch.kernel} has grid {launch.grid}, at most {MAX_GRID} is possible"
        if hardware and launch.shared_bytes > hardware.shared_bytes_per_block:
            yield (
                f"kernel {launch.kernel} needs {launch.shared_bytes} bytes of shared memory, a block of "
                f"{hardware.name} has {hardware.shared_bytes_per_block}; smaller tiles or fewer stages"
            )


def _operation_refusals(capture: Capture, allowed: frozenset[str]) -> Iterator[str]:
    for operation in dict.fromkeys(op.name for op in capture.torch_ops):
        name = policy.operation_name(operation)
        if name in policy.MEMORY_OPERATIONS or name in allowed:
            continue
        if name in policy.HOST_READS:
            yield f"host code reads a value from the device ({operation}), so launches wait for it"
        else:
            yield f"host code calls {operation}, which computes in torch; do it in a kernel"
