"""keep_for_walk: what is read again stays in the cache until its last walk; what every program reads stays for good."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from islands.operators.structural.accesses import Access, accesses_of
from islands.operators.structural.analysis import Program, Scope, argument, descendants, names_in
from islands.operators.structural.eviction_policy import set_hint
from islands.operators.structural.kernels import program_names
from islands.operators.structural.technique import Context, Rewrite, Technique
from islands.operators.structural.text import Edit


class Walks(NamedTuple):
    """All accesses of a kernel that reads a tensor more than once."""

    kernel: str
    accesses: tuple[Access, ...]


class KeepForWalk(Technique[Walks]):
    """Every access of a kernel gets the policy that suits it: `evict_last` for what is read again, by this program or
    by the next (weights that all rows share), else `evict_first`.

    Each hint alone is worth little: what is written would still drive out what is read again.
    """

    name = "keep_for_walk"
    prior = 0.1
    citation = (
        "ld.global.L1::evict_last, https://docs.nvidia.com/cuda/parallel-thread-execution/#cache-eviction-priority"
    )

    def sites(self, program: Program) -> list[Walks]:
        return [walks for kernel in program.kernels.values() if (walks := walks_of(program, kernel)) is not None]

    def rewrite(self, context: Context, site: Walks) -> Rewrite | None:
        edits = policies_by_walk(context.program, site)
        return Rewrite(tuple(edits), f"policies by walk for the accesses of {site.kernel}") if edits else None


def policies_by_walk(program: Program, walks: Walks) -> list[Edit]:
    """The edits that give every access its policy; none where all have it."""
    last = {access.tensor: i for i, access in enumerate(walks.accesses) if access.is_load}
    edits: list[Edit] = []
    for i, access in enumerate(walks.accesses):
        is_kept = access.is_load and (i < last[access.tensor] or _is_shared(program, walks.kernel, access))
        policy = "evict_last" if is_kept else "evict_first"
        edits += set_hint(program, access, "eviction_policy", "cache_modifier", policy)
    return edits


def _is_shared(program: Program, kernel: str, access: Access) -> bool:
    """Whether all programs read the same addresses."""
    pointer = argument(access.call, 0, "pointer")
    own = program_names(program, program.kernels[kernel])
    return bool(own) and pointer is not None and not names_in(pointer) & own and not _asks_program_id(program, pointer)


def _asks_program_id(program: Program, node: cst.CSTNode) -> bool:
    return any(program.device_call(n) == "program_id" for n in descendants(node) if isinstance(n, cst.Call))


def walks_of(program: Program, kernel: Scope) -> Walks | None:
    """The accesses of a kernel, if it reads a tensor more than once."""
    accesses = accesses_of(program, kernel)
    read = [access.tensor for access in accesses if access.is_load and access.tensor]
    return Walks(kernel.name, tuple(accesses)) if len(read) > len(set(read)) else None
