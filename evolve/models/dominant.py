"""What a model spends its time on: the kind of operation with the largest share of its device time.

Told by names: libraries' calls are named after their operation, and Inductor names a kernel after the ATen operations
that are fused in it (`triton_red_fused__softmax_mul_2`; torch/_inductor/codegen/wrapper.py, `descriptive_names`).
"""

from __future__ import annotations

import re
from enum import StrEnum

from evaluators.decomposition.classify import is_convolution, is_product
from evaluators.decomposition.records import Decomposition, Share


class Operation(StrEnum):
    """Kinds of operations, as the table groups models."""

    GEMM = "gemm"
    CONVOLUTION = "convolution"
    ATTENTION = "attention"
    RNN = "rnn"
    SCAN = "scan"
    SOFTMAX = "softmax"
    LOSS = "loss"
    NORMALISATION = "normalisation"
    REDUCTION = "reduction"
    ELEMENTWISE = "elementwise"
    OTHER = "other"


# the first that a kernel's name holds; what only a kernel that reduces does is behind _REDUCING
_NAMED = (
    (Operation.ATTENTION, re.compile(r"attention|flash|sdpa")),
    (Operation.RNN, re.compile(r"lstm|gru|rnn")),
    (Operation.SCAN, re.compile(r"cumsum|cumprod|cummax|cummin|logcumsumexp|associative_scan|^triton_spl_")),
    (Operation.LOSS, re.compile(r"nll_loss|_loss|kl_div|cross_entropy|xlogy")),
    (Operation.SOFTMAX, re.compile(r"softmax|logsumexp")),
    (
        Operation.NORMALISATION,
        re.compile(r"layer_norm|group_norm|instance_norm|rms_norm|var_mean|batch_norm(?!.*no_tra)"),
    ),
)
_REDUCING = (
    (Operation.NORMALISATION, re.compile(r"rsqrt|linalg_vector_norm")),
    (Operation.REDUCTION, re.compile(r"^triton_(red|per|mix)_")),
)
_RECURRENT = re.compile(r"\bnn\.(LSTM|GRU|RNN)\b")


def dominant_operation(decomposition: Decomposition) -> tuple[Operation | None, float]:
    """The kind with the largest share of device time, and that share; None and 0 where nothing is known of it.

    A model of which nothing was compiled has no shares: that it is a recurrent one, its source says.
    """
    shares: dict[Operation, float] = {}
    for share in decomposition.shares:
        operation = operation_of(share)
        shares[operation] = shares.get(operation, 0.0) + share.share
    if not shares:
        is_recurrent = _RECURRENT.search(decomposition.problem.source) is not None
        return (Operation.RNN if is_recurrent else None), 0.0
    largest = max(shares, key=lambda operation: shares[operation])
    return largest, shares[largest]


def operation_of(share: Share) -> Operation:
    """The kind of one step of a compiled graph."""
    name = share.name
    if share.is_extern:
        return _of_library(name)
    if name.startswith("triton_tem_"):  # a template: of products and convolutions, or flexible attention
        return Operation.ATTENTION if "attention" in name else _of_template(name)
    is_reducing = not name.startswith("triton_poi_")
    rules = (*_NAMED, *_REDUCING) if is_reducing else _NAMED
    return next((operation for operation, words in rules if words.search(name)), Operation.ELEMENTWISE)


def _of_library(name: str) -> Operation:
    if is_product(name):
        return Operation.GEMM
    if is_convolution(name):
        return Operation.CONVOLUTION
    return next((operation for operation, words in _NAMED if words.search(name)), Operation.OTHER)


def _of_template(name: str) -> Operation:
    return Operation.CONVOLUTION if is_convolution(name) else Operation.GEMM
