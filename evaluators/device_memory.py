"""Device memory of our own that another process can open: CUDA IPC without pickles.

Torch's own sharing hands out whole segments of its caching allocator, so a reader of an input could read past its end
into the judge's expected values; and it needs pickled arguments and reference counters in /dev/shm. A `SharedRegion` is
one allocation that holds nothing but what is meant to be seen, named by the 64 bytes that the driver gives.

Source: CUDA driver API, "Memory management": cuMemAlloc, cuIpcGetMemHandle, cuIpcOpenMemHandle.
"""

from __future__ import annotations

import base64
import ctypes
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from db.errors import DeviceError

ALIGNMENT = 512  # bytes; what cudaMalloc itself guarantees is 256
BLOCK = 2 << 20  # bytes; smaller allocations may share a block of the driver, and sharing one would share the block
POISON_BYTE = 0xFF  # four of it are a NaN, in every floating type
_HANDLE_BYTES = 64
_LAZY_PEER_ACCESS = 1
_OUT_OF_MEMORY = 2


class _IpcHandle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * _HANDLE_BYTES)]


@lru_cache(maxsize=1)
def _driver() -> ctypes.CDLL:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DeviceError(
            "there is no CUDA driver on this machine", "use --device cpu, or install the driver"
        ) from error
    driver.cuMemAlloc_v2.argtypes = [ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t]
    driver.cuMemFree_v2.argtypes = [ctypes.c_uint64]
    driver.cuIpcGetMemHandle.argtypes = [ctypes.POINTER(_IpcHandle), ctypes.c_uint64]
    driver.cuIpcOpenMemHandle_v2.argtypes = [ctypes.POINTER(ctypes.c_uint64), _IpcHandle, ctypes.c_uint]
    return driver


def _check(code: int, what: str) -> None:
    if code == 0:
        return
    hint = (
        "use smaller sizes (--shape) or fewer concurrent sessions" if code == _OUT_OF_MEMORY else "see `evolve doctor`"
    )
    raise DeviceError(f"the CUDA driver refused to {what} (error {code})", hint)


class Region:
    """A flat piece of memory, in which tensors have places."""

    def __init__(self, memory: Tensor) -> None:
        """`memory`: bytes (uint8), of one dimension."""
        self.bytes = memory
        self.n_bytes = memory.numel()
        self.handle = ""
        self.device = memory.device.index or 0

    def tensor(self, place: dict[str, Any]) -> Tensor:
        """The tensor at a place that `lay_out` assigned; a view of this memory."""
        dtype = getattr(torch, place["dtype"])
        start = place["offset"]
        extent = place["extent"] * dtype.itemsize
        flat = self.bytes[start : start + extent].view(dtype)
        return flat.as_strided(place["shape"], place["strides"])

    def wait(self) -> None:
        """Waits until what was written to it is there, for every process."""
        if self.bytes.is_cuda:
            torch.cuda.synchronize()

    def close(self) -> None:
        """Gives the memory back; tensors of it must not be used any more."""


class SharedRegion(Region):
    """A flat piece of device memory. Made by one process, opened by others through `handle`."""

    def __init__(self, address: int, n_bytes: int, device: int, *, is_owner: bool, handle: str) -> None:
        super().__init__(torch.as_tensor(_DeviceBytes(address, n_bytes), device=f"cuda:{device}"))
        self.handle = handle
        self.device = device
        self._address = address
        self._is_owner = is_owner

    @classmethod
    def allocate(cls, n_bytes: int, device: int = 0) -> SharedRegion:
        """New memory of the given size on the device. Raises `DeviceError` when it does not fit."""
        _make_current(device)
        address, handle = ctypes.c_uint64(), _IpcHandle()
        n_bytes = max(1, -(-n_bytes // BLOCK)) * BLOCK
        _check(_driver().cuMemAlloc_v2(ctypes.byref(address), n_bytes), f"allocate {n_bytes / 1e9:.2f} GB")
        _check(_driver().cuIpcGetMemHandle(ctypes.byref(handle), address.value), "share device memory")
        text = base64.b64encode(ctypes.string_at(ctypes.byref(handle), _HANDLE_BYTES)).decode()
        return cls(address.value, n_bytes, device, is_owner=True, handle=text)

    @classmethod
    def open(cls, handle: str, n_bytes: int, device: int = 0) -> SharedRegion:
        """Memory of another process. Raises `DeviceError` when the driver cannot map it."""
        _make_current(device)
        address, raw = ctypes.c_uint64(), _IpcHandle.from_buffer_copy(base64.b64decode(handle))
        code = _driver().cuIpcOpenMemHandle_v2(ctypes.byref(address), raw, _LAZY_PEER_ACCESS)
        _check(code, "open shared device memory")
        return cls(address.value, n_bytes, device, is_owner=False, handle=handle)

    def close(self) -> None:
        """Gives the memory back; tensors of it must not be used any more."""
        if self._is_owner and self._address:
            _make_current(self.device)
            _driver().cuMemFree_v2(self._address)
        self._address = 0


class _DeviceBytes:
    """A device address as torch can wrap it without a copy."""

    def __init__(self, address: int, n_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (n_bytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def _make_current(device: int) -> None:
    torch.cuda.set_device(device)
    torch.cuda.current_stream().synchronize()


def lay_out(values: Sequence[Any], start: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Places for the tensors among `values`, one after the other, aligned; and the offset behind the last.

    A tensor that covers its memory without gaps or overlaps keeps its strides; any other is placed contiguously.
    It lies as far behind an aligned address as it does in its own storage. A value that is no tensor is carried in its
    place as it is: `{"value": 3}`.
    """
    places: list[dict[str, Any]] = []
    offset = start
    for value in values:
        if not isinstance(value, Tensor):
            places.append({"value": value})
            continue
        strides = value.stride() if _is_dense(value) else _contiguous_strides(value.shape)
        behind = value.storage_offset() * value.element_size() % ALIGNMENT
        places.append(
            {
                "offset": offset + behind,
                "extent": value.numel(),
                "shape": list(value.shape),
                "strides": list(strides),
                "dtype": str(value.dtype).removeprefix("torch."),
            }
        )
        offset += -(-(behind + value.numel() * value.element_size()) // ALIGNMENT) * ALIGNMENT
    return places, offset


def moved(places: Sequence[dict[str, Any]], n_bytes: int) -> list[dict[str, Any]]:
    """The same places so many bytes further on."""
    return [p if "value" in p else {**p, "offset": p["offset"] + n_bytes} for p in places]


def gaps_between(places: Sequence[dict[str, Any]], n_bytes: int) -> list[tuple[int, int]]:
    """The pieces (begin, end) of a region of so many bytes where no tensor lies, in order. Places may overlap."""
    tensors = [p for p in places if "offset" in p]
    taken = sorted((p["offset"], p["offset"] + p["extent"] * getattr(torch, p["dtype"]).itemsize) for p in tensors)
    gaps, end = [], 0
    for start, stop in [*taken, (n_bytes, n_bytes)]:
        if start > end:
            gaps.append((end, start))
        end = max(end, stop)
    return gaps


class Canary:
    """Poison in the bytes of a region that belong to no tensor. Whoever writes past the end of one changes it."""

    def __init__(self, region: Region, places: Sequence[dict[str, Any]]) -> None:
        self._region = region
        gaps = gaps_between(places, region.n_bytes)
        self._rest = gaps.pop()[0] if gaps and gaps[-1][1] == region.n_bytes else region.n_bytes
        spread = [torch.arange(a, b) for a, b in gaps]  # a few hundred bytes each
        self._between = torch.cat([torch.arange(0), *spread]).to(region.bytes.device)

    def set(self) -> None:
        """Poison everywhere: tensors are written afterwards."""
        self._region.bytes.fill_(POISON_BYTE)

    def is_whole(self) -> bool:
        """Whether nobody has written there."""
        found = self._region.bytes.index_select(0, self._between), self._region.bytes[self._rest :]
        return not any(bool((piece != POISON_BYTE).any().item()) for piece in found)


def place_value(region: Region, place: dict[str, Any]) -> Any:
    """What stands at a place: a tensor of the region, or the value that the place carries."""
    return place["value"] if "value" in place else region.tensor(place)


def _is_dense(tensor: Tensor) -> bool:
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def _contiguous_strides(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]
