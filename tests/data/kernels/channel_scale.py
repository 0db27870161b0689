"""Scale and shift of channels of an image batch: a loop over samples around a loop over tiles of a plane."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def channel_scale_kernel(x_ptr, s_ptr, y_ptr, n_samples, n_channels, plane, BLOCK: tl.constexpr):
    channel = tl.program_id(0)
    scale = tl.load(s_ptr + channel)
    for sample in range(0, n_samples):
        base = (sample * n_channels + channel) * plane
        for start in range(0, plane, BLOCK):
            at = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + base + at, mask=at < plane, other=0.0)
            tl.store(y_ptr + base + at, tl.exp(-x) / scale, mask=at < plane)


class ModelNew(nn.Module):
    def forward(self, x, scale):
        n, c, h, w = x.shape
        y = torch.empty_like(x)
        SAMPLES = 2
        for first in range(0, n, SAMPLES):
            some = min(SAMPLES, n - first)
            channel_scale_kernel[(c,)](x[first:], scale, y[first:], some, c, h * w, BLOCK=256, num_warps=2)
        return y


def get_inputs(aligned):
    n = 32 if aligned else 22
    return [torch.randn(4, 3, n, n), torch.rand(3) + 0.5]
