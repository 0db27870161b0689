"""Tensors that have shape, dtype and a virtual address, and no data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from db.records import TensorSpec

# Storages lie this far apart, so an address names its storage. Allocations of CUDA are aligned to at least 512 bytes.
STORAGE_SPACING_BITS = 44


class AddressSpace:
    """Gives every storage a virtual base address and a name that does not depend on when it was allocated.

    Inputs and weights keep the names that they were given; anything else is numbered in the order in which launches
    and operations first use it. Storages are kept alive, or the next one might be taken for an old one.
    """

    def __init__(self) -> None:
        self._index: dict[int, int] = {}
        self._storages: list[Any] = []
        self._names: list[str] = []

    def name(self, tensor: Any, name: str) -> None:
        """Names the storage of an input or a weight before the program runs."""
        self._names[self._index_of(tensor)] = name

    def address_of(self, tensor: Any) -> int:
        """The virtual address of a tensor's first element."""
        offset = int(tensor.storage_offset()) * int(tensor.element_size())
        return ((self._index_of(tensor) + 1) << STORAGE_SPACING_BITS) + offset

    def label_of(self, tensor: Any) -> str:
        """Storage and byte offset: "x0+0" for the first input, "t2+64" for something allocated on the way."""
        index = self._index_of(tensor)
        offset = int(tensor.storage_offset()) * int(tensor.element_size())
        return f"{self._names[index]}+{offset}"

    def describe(self, tensor: Any) -> str:
        """Label, dtype, shape and strides: what a caller gets when a program returns this tensor."""
        dtype = str(tensor.dtype).removeprefix("torch.")
        return f"{self.label_of(tensor)}:{dtype}{tuple(tensor.shape)}{tuple(tensor.stride())}"

    def storage_bytes(self, index: int) -> int:
        """Bytes of a storage, by the upper bits of an address less one."""
        return int(self._storages[index].nbytes())

    def storage_name(self, index: int) -> str:
        return self._names[index]

    @property
    def n_storages(self) -> int:
        return len(self._storages)

    def _index_of(self, tensor: Any) -> int:
        storage = tensor.untyped_storage()
        index = self._index.setdefault(storage._cdata, len(self._storages))
        if index == len(self._storages):
            self._storages.append(storage)
            self._names.append(f"t{index}")
        return index


def fake_values(specs: Sequence[Any]) -> list[Any]:
    """Fake tensors for dumped `TensorSpec`s; scalars and None pass through. Inside a fake mode only."""
    return [fake_tensor(TensorSpec.model_validate(s)) if isinstance(s, dict) else s for s in specs]


def fake_tensor(spec: TensorSpec) -> Any:
    """A fake CPU tensor of the spec's shape, dtype and strides. Inside a fake mode only."""
    dtype = getattr(torch, spec.dtype)
    if not spec.strides:
        return torch.empty(spec.shape, dtype=dtype)
    return torch.empty_strided(spec.shape, spec.strides, dtype=dtype)
