"""The flags of a precision class, set alike for candidates and baselines."""

from __future__ import annotations

import torch

from db.records import PrecisionClass


def apply_precision(precision: PrecisionClass) -> None:
    """Allows TF32 in products and convolutions of this process for `relaxed`, forbids it for `reference`."""
    allowed = precision is PrecisionClass.RELAXED
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
