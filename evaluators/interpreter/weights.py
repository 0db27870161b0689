"""The weights of a candidate that runs, and which of them it has written to."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch import Tensor, nn

from evaluators.gates.integrity import has_same_bytes


class Weights:
    """What a candidate holds when it has been built: all its parameters, and the buffers that are the reference's too.
    Other buffers are its own to write to."""

    def __init__(self, function: Any, given: Collection[str]) -> None:
        """`given`: names of the reference's weights."""
        self._module = function if isinstance(function, nn.Module) else nn.Module()
        self._given = given
        self._kept = {name: tensor.detach().clone() for name, tensor in self._now().items()}

    @property
    def tensors(self) -> list[Tensor]:
        return list(self._now().values())

    def changed(self) -> list[str]:
        """Names of those that are no longer the same, bit for bit."""
        now = self._now()
        return [name for name, kept in self._kept.items() if not _is_same(now.get(name), kept)]

    def _now(self) -> dict[str, Tensor]:
        buffers = {name: tensor for name, tensor in self._module.named_buffers() if name in self._given}
        return {**dict(self._module.named_parameters()), **buffers}


def _is_same(now: Tensor | None, kept: Tensor) -> bool:
    if now is None or now.shape != kept.shape or now.dtype != kept.dtype:
        return False
    return has_same_bytes(now.detach().contiguous(), kept.contiguous())
