"""The operations of torch that host code calls between its launches, with the bytes that they move and their flops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from db.records import TorchOp
from evaluators.capture.fake_device import inside_torch
from evaluators.capture.flops import flops_of
from evaluators.capture.tensors import AddressSpace
from evaluators.capture.unwritten import UnwrittenMemory, storage_key

# They allocate and touch nothing. zeros and full write, so they are recorded, as operations that the policy allows.
ALLOCATIONS = frozenset(
    f"aten.{name}"
    for name in ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")
)
# They answer from the shape alone, or hand out the same storage under a schema that does not say so.
SHAPE_ONLY = frozenset({"aten._unsafe_view", "aten.lift_fresh", "aten.lift", "aten._reshape_alias"})
ONLY_WRITES = frozenset(
    f"aten.{name}"
    for name in ("fill_", "zero_", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")
)
# What they make of values that nobody wrote, nobody has written; what computes is no matter of memory
MOVES = frozenset(f"aten.{name}" for name in ("clone", "copy_", "_to_copy", "lift_fresh_copy"))
HOST_READ = "aten._local_scalar_dense"


def is_allocation_or_view(operation: Any) -> bool:
    """Does this operation move no bytes?"""
    name = _packet_name(operation)
    if name in ALLOCATIONS or name in SHAPE_ONLY or not name.startswith("aten."):
        return True
    returns = operation._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def _packet_name(operation: Any) -> str:
    """Without the overload: "aten.sum" for aten.sum.dim_IntList."""
    return str(operation).rsplit(".", 1)[0]


class OperationNames(TorchDispatchMode):  # type: ignore[misc]
    """Collects `names` of operations that move bytes ("aten.mul.Tensor") in a real run, while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.is_listening and not is_allocation_or_view(operation):
            self.names.add(str(operation))
        return operation(*args, **(kwargs or {}))

    @property
    def is_listening(self) -> bool:
        """Whether what is called now is called by host code."""
        return True


class OpRecorder(TorchDispatchMode):  # type: ignore[misc]
    """Records operations that move bytes. A value that the host reads (`.item()`) is answered with 1."""

    def __init__(
        self, addresses: AddressSpace, n_launches: Callable[[], int], memory: UnwrittenMemory | None = None
    ) -> None:
        super().__init__()
        self.operations: list[TorchOp] = []
        self._memory = memory or UnwrittenMemory()
        self._addresses = addresses
        self._n_launches = n_launches

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with inside_torch():
            try:
                result = operation(*args, **(kwargs or {}))
            except DataDependentOutputException:
                if _packet_name(operation) != HOST_READ:
                    raise
                result = _one_of(args[0].dtype)
            inputs = tree_leaves((args, kwargs))
            self._follow(operation, _tensors(inputs), _tensors(tree_leaves(result)))
            if not is_allocation_or_view(operation) and not _is_on_host(inputs):
                self._record(operation, inputs, tree_leaves(result), flops_of(operation, args, kwargs, result))
        return result

    def _follow(self, operation: Any, inputs: list[Any], outputs: list[Any]) -> None:
        """Tells whose memory is written now."""
        if _packet_name(operation) in ALLOCATIONS:
            self._memory.allocate(outputs)
        elif not str(operation).startswith(("aten.", "prim.")):
            self._memory.give(inputs + outputs)  # nobody knows what it writes
        elif not is_allocation_or_view(operation):
            written = outputs or inputs
            own = {storage_key(tensor) for tensor in written}
            read = [t for t in inputs if storage_key(t) not in own] if _packet_name(operation) in MOVES else []
            self._memory.move(read, written)

    def _record(self, operation: Any, inputs: list[Any], outputs: list[Any], flops: dict[str, float]) -> None:
        read = [] if _packet_name(operation) in ONLY_WRITES else _tensors(inputs)
        written = _tensors(outputs)
        binding = [f"@{self._n_launches()}"] + [
            self._addresses.label_of(v) if isinstance(v, torch.Tensor) else repr(v) for v in inputs + outputs
        ]
        n_bytes = sum(map(_unique_bytes, read + written))
        bound = " ".join(binding)
        self.operations.append(TorchOp(name=str(operation), moved_bytes=n_bytes, binding=bound, flops=flops))


def _tensors(values: list[Any]) -> list[Any]:
    return [v for v in values if isinstance(v, torch.Tensor)]


def _is_on_host(inputs: list[Any]) -> bool:
    """Do all tensors have known values? Host code made them of numbers (`torch.tensor([2, 4])`), no GPU is asked."""
    tensors = _tensors(inputs)
    return bool(tensors) and all(getattr(t, "constant", None) is not None for t in tensors)


def _unique_bytes(tensor: Any) -> int:
    """Bytes behind a tensor: an expanded one has fewer than its elements."""
    return min(int(tensor.nbytes), int(tensor.untyped_storage().nbytes()))


def _one_of(dtype: Any) -> bool | int | float:
    if dtype is torch.bool:
        return True
    return 1.0 if dtype.is_floating_point else 1
