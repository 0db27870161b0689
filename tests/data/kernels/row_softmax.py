# Softmax with three walks over a row; block and warps come out of a helper as a pair.
import torch
import triton
from triton import language as tl


def launch_settings(n):
    block = min(1024, triton.next_power_of_2(n))
    return block, 4 if block <= 512 else 8


@triton.jit
def softmax_rows(dst, src, stride_dst, stride_src, width, TILE: tl.constexpr):
    r = tl.program_id(axis=0)
    src += r * stride_src
    dst += r * stride_dst
    lane = tl.arange(0, TILE)
    top = float("-inf")
    for begin in range(0, width, TILE):
        at = begin + lane
        value = tl.load(src + at, at < width, float("-inf"))
        top = tl.maximum(top, tl.max(value, 0))
    norm = 0.0
    for begin in range(0, width, TILE):
        at = begin + lane
        value = tl.load(src + at, at < width, float("-inf"))
        norm += tl.sum(tl.exp(value - top), 0)
    for begin in range(0, width, TILE):
        at = begin + lane
        value = tl.load(src + at, at < width, float("-inf"))
        tl.store(dst + at, tl.exp(value - top) / norm, at < width)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        TILE, warps = launch_settings(x.shape[1])
        softmax_rows[(x.shape[0],)](y, x, y.stride(0), x.stride(0), x.shape[1], TILE, num_warps=warps)
        return y


def get_inputs(aligned):
    return [torch.randn(3, 2048 if aligned else 1100)]
