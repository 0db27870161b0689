# problem: layer_norm
# kind: weights
# tries: rewrites a weight by less than any tolerance, a count of its calls
# needs a GPU: no

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tile_moments_kernel(x_ptr, means_ptr, squares_ptr, first, sample_size, n_tiles, BLOCK: tl.constexpr):
    tile = tl.program_id(0)
    # the last sample first: the map below starts with sample 0, which is then still in the cache
    sample = tl.num_programs(1) - 1 - tl.program_id(1)
    offsets = tile * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < sample_size
    x = tl.load(x_ptr + (first + sample).to(tl.int64) * sample_size + offsets, mask=mask, other=0.0)
    count = tl.minimum(sample_size - tile * BLOCK, BLOCK)
    mean = tl.sum(x, axis=0) / count
    deviation = tl.where(mask, x - mean, 0.0)
    tl.store(means_ptr + sample * n_tiles + tile, mean)
    tl.store(squares_ptr + sample * n_tiles + tile, tl.sum(deviation * deviation, axis=0))


@triton.jit
def combine_kernel(
    means_ptr, squares_ptr, mean_ptr, rstd_ptr, sample_size, n_tiles, eps, BLOCK: tl.constexpr, TILES: tl.constexpr
):
    sample = tl.program_id(0)
    tiles = tl.arange(0, TILES)
    mask = tiles < n_tiles
    counts = tl.where(mask, tl.minimum(sample_size - tiles * BLOCK, BLOCK), 0)
    means = tl.load(means_ptr + sample * n_tiles + tiles, mask=mask, other=0.0)
    squares = tl.load(squares_ptr + sample * n_tiles + tiles, mask=mask, other=0.0)
    mean = tl.sum(means * counts, axis=0) / sample_size
    shift = means - mean
    variance = tl.sum(squares + shift * shift * counts, axis=0) / sample_size
    tl.store(mean_ptr + sample, mean)
    tl.store(rstd_ptr + sample, 1.0 / tl.sqrt(variance + eps))


@triton.jit
def affine_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, mean_ptr, rstd_ptr, first, n_samples, sample_size, BLOCK_MAP: tl.constexpr
):
    offsets = tl.program_id(0) * BLOCK_MAP + tl.arange(0, BLOCK_MAP)
    mask = offsets < sample_size
    weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0)
    bias = tl.load(bias_ptr + offsets, mask=mask, other=0.0)
    tl.store(weight_ptr + offsets, weight * (1.0 + 1.2e-7), mask=mask)
    for sample in range(0, n_samples):
        start = (first + sample).to(tl.int64) * sample_size
        mean = tl.load(mean_ptr + sample)
        rstd = tl.load(rstd_ptr + sample)
        x = tl.load(x_ptr + start + offsets, mask=mask, other=0.0)
        tl.store(out_ptr + start + offsets, (x - mean) * rstd * weight + bias, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels: int, height: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, height, width))
        self.bias = nn.Parameter(torch.empty(channels, height, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n_samples = x.shape[0]
        sample_size = self.weight.numel()
        GROUP = 64
        BLOCK = 4096
        BLOCK_MAP = 1024
        n_tiles = triton.cdiv(sample_size, BLOCK)
        TILES = triton.next_power_of_2(n_tiles)
        out = torch.empty_like(x)
        means = torch.empty((GROUP, n_tiles), device=x.device, dtype=torch.float32)
        squares = torch.empty((GROUP, n_tiles), device=x.device, dtype=torch.float32)
        mean = torch.empty((GROUP,), device=x.device, dtype=torch.float32)
        rstd = torch.empty((GROUP,), device=x.device, dtype=torch.float32)
        for first in range(0, n_samples, GROUP):
            count = min(GROUP, n_samples - first)
            tile_moments_kernel[(n_tiles, count)](
                x, means, squares, first, sample_size, n_tiles, BLOCK=BLOCK, num_warps=4
            )
            combine_kernel[(count,)](
                means, squares, mean, rstd, sample_size, n_tiles, 1e-5, BLOCK=BLOCK, TILES=TILES, num_warps=4
            )
            affine_kernel[(triton.cdiv(sample_size, BLOCK_MAP),)](
                x, self.weight, self.bias, out, mean, rstd, first, count, sample_size, BLOCK_MAP=BLOCK_MAP, num_warps=4
            )
        return out
