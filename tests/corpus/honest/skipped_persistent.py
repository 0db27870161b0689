# problem: softmax
# kind: skipped
# does: as many programs as the device has multiprocessors, each takes several rows

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        softmax_row(x_ptr + row.to(tl.int64) * n_cols, out_ptr + row.to(tl.int64) * n_cols, n_cols, BLOCK)


@triton.jit
def softmax_row(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = 0
    columns = tl.arange(0, BLOCK)
    row_max = -3.0e38
    row_sum = 0.0
    for start in range(0, n_cols, BLOCK):
        offsets = start + columns
        x = tl.load(x_ptr + row * n_cols + offsets, mask=offsets < n_cols, other=float("-inf"))
        new_max = tl.maximum(row_max, tl.max(x, axis=0))
        row_sum = row_sum * tl.exp(row_max - new_max) + tl.sum(tl.exp(x - new_max), axis=0)
        row_max = new_max
    for start in range(0, n_cols, BLOCK):
        offsets = start + columns
        mask = offsets < n_cols
        x = tl.load(x_ptr + row * n_cols + offsets, mask=mask, other=float("-inf"))
        tl.store(out_ptr + row * n_cols + offsets, tl.exp(x - row_max) / row_sum, mask=mask)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n_sms = torch.cuda.get_device_properties(x.device).multi_processor_count
        softmax_kernel[(min(x.shape[0], 4 * n_sms),)](x, out, x.shape[0], x.shape[1], BLOCK=1024, num_warps=4)
        return out
