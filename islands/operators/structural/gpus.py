"""What a technique has to know of the GPU that a parent was judged on, by the model in its id."""

from __future__ import annotations

from islands.operators.structural.technique import Observed

# streaming multiprocessors, from the vendors' data sheets; the part of the id that says the model
_MULTIPROCESSORS = {"a100": 108, "h100": 132, "h200": 132, "l40s": 142, "b200": 148}
_BEFORE_HOPPER = ("a100", "l40s", "l4", "a10", "rtx4090")
_TENSOR_MEMORY = ("b200",)  # products with accumulators in a memory of their own: Blackwell for data centres


def n_multiprocessors(observed: Observed) -> int:
    """Of the GPU that the parent was judged on; of an H100 where that is not known."""
    model = next((m for m in _MULTIPROCESSORS if m in observed.hardware_id), "h100")
    return _MULTIPROCESSORS[model]


def copies_tiles(observed: Observed) -> bool:
    """Whether the GPU has the tensor memory accelerator; true where the GPU is not known."""
    return not any(model in observed.hardware_id for model in _BEFORE_HOPPER)


def has_tensor_memory(observed: Observed) -> bool:
    return any(model in observed.hardware_id for model in _TENSOR_MEMORY)
