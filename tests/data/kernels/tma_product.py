"""A half-precision product whose tiles come in by descriptors that the host makes."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def product_kernel(a_desc, b_desc, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([row, k])
        b = b_desc.load([k, column])
        total = tl.dot(a, b, total)
    rows = row + tl.arange(0, BM)
    columns = column + tl.arange(0, BN)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total, mask=(rows < M)[:, None] & (columns < N)[None, :])


def kernel_function(a, b):
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=torch.float32)
    BM, BN, BK = 64, 64, 32
    a_desc = TensorDescriptor.from_tensor(a, [BM, BK])
    b_desc = TensorDescriptor.from_tensor(b, [BK, BN])
    product_kernel[(triton.cdiv(M, BM), triton.cdiv(N, BN))](a_desc, b_desc, c, M, N, K, BM=BM, BN=BN, BK=BK)
    return c


def get_inputs(aligned):
    m, n, k = (128, 64, 64) if aligned else (70, 40, 72)
    return [torch.randn(m, k).half(), torch.randn(k, n).half()]
