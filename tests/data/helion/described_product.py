from __future__ import annotations

import torch
import helion
import triton
import triton.language as tl
from helion.runtime import default_launcher as _default_launcher

_BLOCK_SIZE_0 = tl.constexpr(16)
_BLOCK_SIZE_1 = tl.constexpr(16)
_BLOCK_SIZE_2 = tl.constexpr(32)
# src[ours.py:51]: def described_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
# src[ours.py:52]:     m, k = a.size()
# src[ours.py:53]:     _k, n = b.size()
# src[ours.py:51-60]: ...
helion.runtime.set_triton_allocator()

@triton.jit
def _helion_described_product(a, b, out):
    # src[ours.py:58]: acc = torch.addmm(acc, a[tile_m, tile_k], b[tile_k, tile_n])
    a_desc = tl.make_tensor_descriptor(a, [32, 64], [64, 1], [_BLOCK_SIZE_0, _BLOCK_SIZE_2])
    b_desc = tl.make_tensor_descriptor(b, [64, 48], [48, 1], [_BLOCK_SIZE_2, _BLOCK_SIZE_1])
    # src[ours.py:59]: out[tile_m, tile_n] = acc.to(a.dtype)
    out_desc = tl.make_tensor_descriptor(out, [32, 48], [48, 1], [_BLOCK_SIZE_0, _BLOCK_SIZE_1])
    # src[ours.py:55]: for tile_m, tile_n in hl.tile([m, n]):
    num_blocks_0 = tl.cdiv(32, _BLOCK_SIZE_0)
    pid_0 = tl.program_id(0) % num_blocks_0
    pid_1 = tl.program_id(0) // num_blocks_0
    offset_0 = pid_0 * _BLOCK_SIZE_0
    offset_1 = pid_1 * _BLOCK_SIZE_1
    # src[ours.py:56]: acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
    acc = tl.full([_BLOCK_SIZE_0, _BLOCK_SIZE_1], 0.0, tl.float32)
    # src[ours.py:57]: for tile_k in hl.tile(k):
    # src[ours.py:58]:     acc = torch.addmm(acc, a[tile_m, tile_k], b[tile_k, tile_n])
    for offset_2 in tl.range(0, 64, _BLOCK_SIZE_2):
        acc_copy = acc
        acc_copy_0 = acc_copy
        # src[ours.py:58]: acc = torch.addmm(acc, a[tile_m, tile_k], b[tile_k, tile_n])
        load = a_desc.load([offset_0, offset_2])
        load_1 = b_desc.load([offset_2, offset_1])
        acc = tl.dot(tl.cast(load, tl.float32), tl.cast(load_1, tl.float32), acc=acc_copy_0, input_precision='tf32', out_dtype=tl.float32)
    # src[ours.py:59]: out[tile_m, tile_n] = acc.to(a.dtype)
    out_desc.store([offset_0, offset_1], tl.cast(acc, tl.float32))

def described_product(a: torch.Tensor, b: torch.Tensor, *, _launcher=_default_launcher):
    # src[ours.py:52]: m, k = a.size()
    m, k = a.size()
    # src[ours.py:53]: _k, n = b.size()
    _k, n = b.size()
    # src[ours.py:54]: out = torch.empty([m, n], dtype=a.dtype, device=a.device)
    out = torch.empty([m, n], dtype=a.dtype, device=a.device)
    # src[ours.py:55]: for tile_m, tile_n in hl.tile([m, n]):
    # src[ours.py:56]:     acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
    # src[ours.py:57]:     for tile_k in hl.tile(k):
    # src[ours.py:55-59]: ...
    _launcher(_helion_described_product, (6,), a, b, out, num_warps=4, num_stages=2)
    # src[ours.py:60]: return out
    return out
