"""Root-mean-square normalisation over channels: one program holds all channels of a strip of pixels."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x_ptr, out_ptr, channels, plane, eps, CHANNELS: tl.constexpr, BLOCK: tl.constexpr):
    start = tl.program_id(1).to(tl.int64) * channels * plane
    channel = tl.arange(0, CHANNELS)[:, None]
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    mask = (channel < channels) & (pixel < plane)
    offsets = channel * plane + pixel
    x = tl.load(x_ptr + start + offsets, mask=mask, other=0.0)
    mean_square = tl.sum(x * x, axis=0) / channels
    scale = 1.0 / tl.sqrt(mean_square + eps)
    tl.store(out_ptr + start + offsets, x * scale[None, :], mask=mask)


class ModelNew(nn.Module):
    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n_samples, channels, height, width = x.shape
        plane = height * width
        out = torch.empty_like(x)
        BLOCK = 64
        CHANNELS = triton.next_power_of_2(channels)
        rms_norm_kernel[(triton.cdiv(plane, BLOCK), n_samples)](
            x, out, channels, plane, self.eps, CHANNELS=CHANNELS, BLOCK=BLOCK, num_warps=4
        )
        return out
