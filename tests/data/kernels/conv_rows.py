"""Convolution along rows with several input channels: a loop over channels around a loop over taps."""

import torch
import triton
import triton.language as tl


@triton.jit
def conv_kernel(x_ptr, w_ptr, y_ptr, channels, width, out_width, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    out_channel = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for c in range(0, channels):
        for t in range(0, TAPS):
            x = tl.load(x_ptr + c * width + at + t, mask=at < out_width, other=0.0)
            acc += x * tl.load(w_ptr + (out_channel * channels + c) * TAPS + t)
    tl.store(y_ptr + out_channel * out_width + at, acc, mask=at < out_width)


def kernel_function(x, w):
    channels, width = x.shape
    outs, _, TAPS = w.shape
    out_width = width - TAPS + 1
    y = torch.empty((outs, out_width), device=x.device, dtype=x.dtype)
    conv_kernel[(triton.cdiv(out_width, 128), outs)](x, w, y, channels, width, out_width, TAPS=TAPS, BLOCK=128)
    return y


def get_inputs(aligned):
    return [torch.randn(3, 514 if aligned else 300), torch.randn(2, 3, 3)]
