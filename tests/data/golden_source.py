"""Module docstring."""
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """
    Doc   with  indentation
        deeper
    """
    pid = tl.program_id(0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)  # where
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=-float("inf"))
    tl.store(y_ptr + offsets, tl.exp(x - tl.max(x, 0)) * 1e-3, mask=mask)


class ModelNew(torch.nn.Module):
    """Only a docstring."""

    def forward(self, x, *, scale=1.0):
        y = torch.empty_like(x)
        assert x.is_contiguous(), f"needs {x.shape!r} to be contiguous, got {x.stride()} ({'a' if x.ndim else 'b'})"
        grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)
        kernel[grid](x, y, x.numel(), BLOCK=1024, **{"num_warps": 4})
        a, *rest = (1, 2, 3)
        return y if scale == 1.0 else [v for v in (y, "it's", 'a "quote"', """x\ny""", b"\x00", 0x10, 1_000, 1j)][0]
