"""A module that a package made, as a `Model` that is made anew each time."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack


def copied(module: nn.Module, *_arguments: Any) -> nn.Module:
    """A copy with weights of its own; inside a mode of fake tensors, fake ones. Arguments are for programs alone."""
    mode = next((m for m in _get_current_dispatch_mode_stack() if isinstance(m, FakeTensorMode)), None)
    known: dict[int, Any] = {}
    if mode is not None:
        known |= {id(weight): _faked(weight, mode) for weight in module.parameters()}
        known |= {id(buffer): mode.from_tensor(buffer) for buffer in module.buffers()}
    return copy.deepcopy(module, known)


def _faked(weight: nn.Parameter, mode: FakeTensorMode) -> Tensor:
    fake = mode.from_tensor(weight)
    return fake if isinstance(fake, nn.Parameter) else nn.Parameter(fake, requires_grad=weight.requires_grad)
