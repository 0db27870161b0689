"""How many operations a product, a convolution or an attention of torch takes, as torch's own formulas have it."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

# On a GPU-less build attention is this operation, for which torch has no formula
CPU_ATTENTION = "aten._scaled_dot_product_flash_attention_for_cpu"
KINDS = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float64: "fp64", torch.int8: "int8"}


def flops_of(operation: Any, args: Any, kwargs: Any, result: Any) -> dict[str, float]:
    """Operations by the unit that does them, as in `Hardware.tflops`; empty for what only moves bytes.

    Elementwise arithmetic and reductions count as nothing: on a GPU their bytes take longer.
    """
    packet = getattr(operation, "_overloadpacket", operation)
    if str(packet) == CPU_ATTENTION:
        n_flops = sdpa_flop_count(*(tuple(tensor.shape) for tensor in args[:3]))
    elif packet in flop_registry:
        n_flops = flop_registry[packet](*args, **(kwargs or {}), out_val=result)
    else:
        return {}
    return {_kind_of(args): float(n_flops)}


def _kind_of(args: Any) -> str:
    """The kind of the first tensor among the operands: they have one dtype."""
    dtypes = [value.dtype for value in tree_leaves(args) if isinstance(value, torch.Tensor)]
    return KINDS.get(dtypes[0], "fp32") if dtypes else "fp32"
