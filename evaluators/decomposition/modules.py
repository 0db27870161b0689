"""The weights of a model as nested modules: their names are those of the original state dict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from db.records import Record, TensorSpec


class Weight(Record):
    """A tensor of the state dict."""

    name: str  # "encoder.layers.0.norm.weight"
    spec: TensorSpec
    kind: Literal["parameter", "buffer"]


def constructor_lines(weights: Sequence[Weight]) -> list[str]:
    """Statements for `__init__` that make every weight, uninitialised, under its name."""
    return [*_module_lines("self", "", _tree(weights)), *(_weight_line(weight) for weight in weights)]


def attribute(name: str) -> str:
    """How `forward` reaches a weight: `self.encoder.layers["0"].norm.weight`."""
    *path, last = name.split(".")
    return f"{_reached(path)}.{last}"


def _reached(path: Sequence[str]) -> str:
    return "self" + "".join(f".{part}" if part.isidentifier() else f"[{part!r}]" for part in path)


_Tree = dict[str, "_Tree"]


def _tree(weights: Sequence[Weight]) -> _Tree:
    root: _Tree = {}
    for weight in weights:
        node = root
        for part in weight.name.split(".")[:-1]:
            node = node.setdefault(part, {})
    return root


def _module_lines(owner: str, path: str, tree: _Tree) -> Iterator[str]:
    """Modules from the outside in. One with children that are numbers is a ModuleDict, which allows any name."""
    for name, children in tree.items():
        kind = "nn.Module()" if all(child.isidentifier() for child in children) else "nn.ModuleDict()"
        full = f"{path}.{name}" if path else name
        yield f"{owner}.add_module({name!r}, {kind})"
        yield from _module_lines(_reached(full.split(".")), full, children)


def _weight_line(weight: Weight) -> str:
    *path, last = weight.name.split(".")
    spec = weight.spec
    made = f"torch.empty_strided({spec.shape}, {spec.strides}, dtype=torch.{spec.dtype})"
    if weight.kind == "buffer":
        return f"{_reached(path)}.register_buffer({last!r}, {made})"
    return f"{_reached(path)}.register_parameter({last!r}, nn.Parameter({made}, requires_grad=False))"
