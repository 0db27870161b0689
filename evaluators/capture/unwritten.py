"""Memory that nobody has written to in this call, and the launches that read it all the same.

Memory that `torch.empty` hands out holds what was there before: with luck, what the last call left. So does memory that
a program has made for itself at construction. A kernel that looks there first can find its own answer of an earlier
call; it is right under every check, and an honest kernel has no use for a value that nobody wrote.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from evaluators.capture.fake_device import inside_torch
from evaluators.capture.first_reads import Accesses


class Bound(NamedTuple):
    """A tensor that a launch has for an argument, or as a part of one."""

    name: str  # "out_ptr", "pair[0]"
    tensor: Any


class UnwrittenMemory:
    """Follows storages through one call: which were allocated in it, or kept from before, and are as they were.

    Storages are held, or another one might be taken for them.
    """

    def __init__(self) -> None:
        self._fresh: dict[int, Any] = {}  # allocated in this call
        self._kept: dict[int, Any] = {}  # made by the program before the call
        self._looked_at: list[tuple[int, str, int]] = []  # launch, argument and kept storage that it reads first
        self._stored: set[int] = set()  # kept storages that a launch stores to

    def keep(self, tensors: Iterable[Any]) -> None:
        """Memory that the program has made for itself, before the call."""
        self._kept.update((storage_key(t), t.untyped_storage()) for t in tensors)

    def give(self, tensors: Iterable[Any]) -> None:
        """Memory that comes from the judge, or that somebody writes to: it holds what it should."""
        for tensor in tensors:
            self._fresh.pop(storage_key(tensor), None)
            self._kept.pop(storage_key(tensor), None)

    def allocate(self, tensors: Iterable[Any]) -> None:
        """Memory that is handed out as it is."""
        self._fresh.update((storage_key(t), t.untyped_storage()) for t in tensors if t.untyped_storage().nbytes())

    def move(self, read: Collection[Any], written: Collection[Any]) -> None:
        """An operation of torch that moves values: those that nobody wrote, nobody has written afterwards."""
        self.give(written)
        if any(storage_key(tensor) in self._fresh for tensor in read):
            self.allocate(written)

    def concerns(self, bound: Sequence[Bound]) -> bool:
        """Is any of it as it was before the call?"""
        return any(storage_key(b.tensor) in self._fresh or storage_key(b.tensor) in self._kept for b in bound)

    def launch(self, number: int, bound: Sequence[Bound], accesses: Accesses | None) -> tuple[str, ...]:
        """The arguments of a launch through which it reads fresh memory; it may write to what it writes from now on."""
        if accesses is None:  # not understood: it may write to all
            self.give(b.tensor for b in bound)
            return ()
        names: dict[int, str] = {}
        for name, tensor in bound:
            names.setdefault(storage_key(tensor), name)
        self._looked_at += [(number, n, key) for key, n in names.items() if key in self._kept and key in accesses.loads]
        self._stored |= {key for key in self._kept if key in accesses.stores}
        read = tuple(n for key, n in names.items() if key in self._fresh and key in accesses.loads | accesses.atomics)
        self.give(b.tensor for b in bound if storage_key(b.tensor) in accesses.writes)
        return read

    def kept_answers(self) -> Mapping[int, tuple[str, ...]]:
        """By launch: arguments through which it reads what the program keeps, where this very call stores for the next.

        Known when the call is over.
        """
        found: dict[int, tuple[str, ...]] = {}
        for number, name, key in self._looked_at:
            if key in self._stored:
                found[number] = (*found.get(number, ()), name)
        return found


def storage_key(tensor: Any) -> int:
    """The same for tensors that share memory."""
    return int(tensor.untyped_storage()._cdata)


def bound_memory(arguments: Mapping[str, Any]) -> list[Bound]:
    """The tensors of a launch, in the order in which the compiled kernel takes them."""
    return [bound for name, value in arguments.items() for bound in _tensors_in(name, value)]


def _tensors_in(name: str, value: Any) -> Iterator[Bound]:
    if isinstance(value, tuple | list):
        for i, part in enumerate(value):
            yield from _tensors_in(f"{name}[{i}]", part)
        return
    tensor = value.base if hasattr(value, "block_shape") else value  # TensorDescriptor
    if isinstance(tensor, torch.Tensor):
        yield Bound(name, tensor)


class MadeHere(TorchDispatchMode):  # type: ignore[misc]
    """Collects the `tensors` that are made while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: list[Any] = []

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with inside_torch():
            result = operation(*args, **(kwargs or {}))
        self.tensors += [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        return result
