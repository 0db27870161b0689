"""What the PTX of a kernel says: how wide its loads are, whether they are asynchronous, and what it waits for."""

from __future__ import annotations

import re
from typing import NamedTuple

# ld.global.L1::evict_first.v4.b32 {...}: a vector of 1 (absent), 2, 4 or 8 times 8 to 128 bits
_GLOBAL_LOAD = re.compile(r"\bld\.(?:volatile\.)?global(?P<modifiers>[\w.:]*)\.[busf](?P<bits>\d+)\b")
_VECTOR = re.compile(r"\.v(\d)\b")
_ASYNC_WIDTH = re.compile(r"\bcp\.async\.c[ag]\.shared\.global[^;]*?\], *(?:0x)?(?P<bytes>[0-9a-f]+)\b")
_TMA = "cp.async.bulk.tensor"
TMA_BYTES = 16
_WAIT = "griddepcontrol.wait"  # for the launch before, where launches may overlap
_FIRST_USE = re.compile(r"\b(?:ld|st|atom|red)\.[\w.:]*global|\bcp\.|\bgriddepcontrol\.launch_dependents")


class GlobalLoads(NamedTuple):
    """`vector_bytes`: the widest load of one thread, 0 when there is none."""

    vector_bytes: int
    is_async: bool


def read_global_loads(ptx: str) -> GlobalLoads:
    """Reads the loads out of PTX text (PTX ISA, "ld", "cp.async", "cp.async.bulk.tensor")."""
    plain = [int(m["bits"]) // 8 * _vector_length(m["modifiers"]) for m in _GLOBAL_LOAD.finditer(ptx)]
    copies = [int(m["bytes"], 16) for m in _ASYNC_WIDTH.finditer(ptx)]
    tma = [TMA_BYTES] if _TMA in ptx else []
    return GlobalLoads(max(plain + copies + tma, default=0), bool(copies or tma))


def begins_with_wait(ptx: str) -> bool:
    """Whether a kernel waits for the launch before it, before it touches memory or lets the next one begin
    (PTX ISA, "griddepcontrol")."""
    wait, use = ptx.find(_WAIT), _FIRST_USE.search(ptx)
    return wait >= 0 and (use is None or wait < use.start())


def _vector_length(modifiers: str) -> int:
    found = _VECTOR.search(modifiers)
    return int(found[1]) if found else 1
