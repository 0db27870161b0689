"""Names that reach into torch, Triton and Python's own modules: which of them host code and kernels may use."""

from __future__ import annotations

from collections.abc import Iterable

from evaluators.gates import policy

MAY = "which may allocate, view and launch"
_NAMES_OF = {"torch": policy.TORCH_NAMES, "triton": policy.TRITON_NAMES}
_BEYOND = frozenset({"torch", "F"})  # met again further down a dotted name, a module that a module has imported


def refusal_of(full: str, allowed: Iterable[str] = ()) -> str:
    """Why host code may not use a name, given in full ("torch.nn.functional.relu"); empty when it may.

    `allowed` are names of operations that the compiled baseline calls too.
    """
    parts = full.split(".")
    if parts[-1] in allowed or len(parts) < 2:
        return ""
    hidden = [part for part in parts[1:] if part in policy.HIDDEN_MODULES and part not in _PLACES.get(parts[0], ())]
    if hidden or parts[-1] == "*" or _BEYOND & set(parts[1:]):
        return f"{full} is not for host code, {MAY}"
    if parts[0] in policy.STANDARD_NAMES:
        is_fine = parts[1] in policy.STANDARD_NAMES[parts[0]]
        return "" if is_fine else f"{full} is not for host code, {MAY}"
    return _library_refusal(full, parts)


def is_allowed_operation(full: str, allowed: Iterable[str]) -> bool:
    """Whether a full name is an allowed operation of ATen: "torch.ops.aten.mm", with or without its overload."""
    match full.split("."):
        case ["torch", "ops", "aten", name] | ["torch", "ops", "aten", name, _]:
            return name in allowed
    return False


def _library_refusal(full: str, parts: list[str]) -> str:
    if full.startswith("torch.nn.functional."):
        return f"{full} computes in torch; do it in a kernel"
    if parts[:2] == ["torch", "Tensor"] and parts[-1] in policy.COMPUTING_METHODS:
        return f"{full} computes in torch; do it in a kernel"
    if full.startswith("torch.nn."):
        return "" if _is_part_of_nn(parts[2:]) else f"{full} is not for host code, {MAY}"
    for n in range(2, len(parts)):
        names = policy.SUBMODULE_NAMES.get(".".join(parts[:n]))
        if names is not None and parts[n] not in names:
            return f"{full} is not for host code, {MAY}"
    if parts[0] in _NAMES_OF and parts[1] not in _NAMES_OF[parts[0]]:
        return f"{full} is not for host code, {MAY}; kernels compute"
    return ""


def _is_part_of_nn(parts: list[str]) -> bool:
    """Layers may hold weights (calling one is another matter), and init may fill them."""
    return parts[0][:1].isupper() or parts[0] == "functional" or (parts[0] in ("init", "parameter") and len(parts) == 2)


def is_module(full: str) -> bool:
    """Whether a full name is that of a module, which host code may not hand around."""
    return full in policy.MODULES or full in policy.SUBMODULE_NAMES


# names of hidden modules that mean something else there
_PLACES = {"collections": frozenset({"abc"}), "triton": frozenset({"io"})}
