"""keep_for_walk: a tensor that is walked over again stays in the cache until its last walk; nothing else does."""

from __future__ import annotations

from typing import NamedTuple

from islands.operators.structural.accesses import Access, accesses_of
from islands.operators.structural.analysis import Program, Scope
from islands.operators.structural.eviction_policy import set_hint
from islands.operators.structural.technique import Context, Rewrite, Technique
from islands.operators.structural.text import Edit


class Walks(NamedTuple):
    """All accesses of a kernel that reads a tensor more than once."""

    kernel: str
    accesses: tuple[Access, ...]


class KeepForWalk(Technique[Walks]):
    """Every access of a kernel gets the policy that suits it: `evict_last` for what is read again, else `evict_first`.

    Each hint alone is worth little: what is written would still drive out what is read again.
    """

    name = "keep_for_walk"
    prior = 0.1
    citation = (
        "ld.global.L1::evict_last, https://docs.nvidia.com/cuda/parallel-thread-execution/#cache-eviction-priority"
    )

    def sites(self, program: Program) -> list[Walks]:
        return [walks for kernel in program.kernels.values() if (walks := _walks(program, kernel)) is not None]

    def rewrite(self, context: Context, site: Walks) -> Rewrite | None:
        last = {access.tensor: i for i, access in enumerate(site.accesses) if access.is_load}
        edits: list[Edit] = []
        for i, access in enumerate(site.accesses):
            policy = "evict_last" if access.is_load and i < last[access.tensor] else "evict_first"
            edits += set_hint(context.program, access, "eviction_policy", "cache_modifier", policy)
        return Rewrite(tuple(edits), f"policies by walk for the accesses of {site.kernel}") if edits else None


def _walks(program: Program, kernel: Scope) -> Walks | None:
    accesses = accesses_of(program, kernel)
    read = [access.tensor for access in accesses if access.is_load and access.tensor]
    return Walks(kernel.name, tuple(accesses)) if len(read) > len(set(read)) else None
