"""What a zygote does once so that no child has to: the first steps of the interpreter and of the compiler.

Nothing here may create a CUDA context or start a thread: children are forked afterwards.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from torch._subclasses.fake_tensor import FakeTensorMode
from triton.backends.compiler import GPUTarget

_MADV_COLLAPSE = 25


@triton.jit  # type: ignore[untyped-decorator]
def _double(x, y, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y + offsets, 2 * tl.load(x + offsets, mask=mask), mask=mask)


def warm_up_interpreter() -> None:
    """Run one tiny kernel under the interpreter."""
    x = torch.ones(8)
    _double[(1,)](x, torch.empty_like(x), 8, BLOCK=8)


def warm_up_compiler() -> None:
    """Run one operation on fake tensors and compile one tiny kernel; needs no GPU."""
    with FakeTensorMode():
        torch.empty(4).add_(1)
    signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    source = triton.compiler.ASTSource(fn=_double, signature=signature, constexprs={"BLOCK": 8})
    triton.compile(source, target=GPUTarget("cuda", 90, 32))


def has_cuda() -> bool:
    """A GPU and a torch that can use it, asked without initialising CUDA."""
    return torch.version.cuda is not None and Path("/dev/nvidiactl").exists()


def check_no_cuda() -> None:
    """No child can use CUDA once its zygote has begun to.

    Raises:
        RuntimeError: something that was preloaded did.
    """
    if torch.cuda.is_initialized():
        raise RuntimeError("a preloaded module initialised CUDA before the first fork")


def launch_once() -> None:
    """Launch one kernel on the GPU, in a child that may have a context. Leaves Triton's host libraries (a driver
    module, launchers) in TRITON_CACHE_DIR, so that nobody builds them again."""
    x: Any = torch.ones(8, device="cuda")
    _double[(1,)](x, torch.empty_like(x), 8, BLOCK=8)
    torch.cuda.synchronize()


def set_single_threaded() -> None:
    """One thread for every pool, before any operation: a child forked after a parallel one hangs in its own first."""
    torch.set_num_threads(1)
    assert os.environ.get("OPENBLAS_NUM_THREADS") == "1"


def gather_memory() -> None:
    """Move the heap into huge pages, as far as the kernel can: a fork copies the page table, and with pages of 2 MiB
    that is five times as fast. (MADV_COLLAPSE, Linux 6.1; elsewhere nothing changes.)"""
    libc = ctypes.CDLL(None)
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, mode, _, _, inode, *name = line.split()
        if inode == "0" and mode == "rw-p" and (not name or name[0].startswith(("[heap", "[anon"))):
            start, end = (int(address, 16) for address in span.split("-"))
            libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_COLLAPSE)
