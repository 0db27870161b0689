"""Elementwise ratio that rounds exactly, in the programs of a flat grid."""

import torch
import triton
import triton.language as tl


@triton.jit
def ratio(a_ptr, b_ptr, out_ptr, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = at < n
    a = tl.load(a_ptr + at, mask=inside)
    b = tl.load(b_ptr + at, mask=inside, other=1.0)
    tl.store(out_ptr + at, tl.div_rn(a, tl.abs(b) + 0.5), mask=inside)


def kernel_function(a, b):
    out = torch.empty_like(a)
    ratio[(triton.cdiv(a.numel(), 256),)](a, b, out, a.numel(), SIZE=256)
    return out


def get_inputs(aligned):
    shape = (7, 256 if aligned else 131)
    return [torch.randn(shape), torch.randn(shape)]
