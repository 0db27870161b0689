"""eviction_policy: what the caches should keep, and what they may drop first."""

from __future__ import annotations

from typing import NamedTuple

from islands.operators.structural.accesses import Access, accesses_of
from islands.operators.structural.analysis import Program, keyword
from islands.operators.structural.places import call_option
from islands.operators.structural.technique import Context, Rewrite, Technique
from islands.operators.structural.text import Edit

POLICIES = ("evict_first", "evict_last")


class AccessSite(NamedTuple):
    """Accesses that are given one hint."""

    kernel: str
    label: str
    accesses: tuple[Access, ...]


def access_sites(program: Program) -> list[AccessSite]:
    """Each access of each kernel, all its loads, and all its stores."""
    sites: list[AccessSite] = []
    for kernel in program.kernels.values():
        accesses = accesses_of(program, kernel)
        sites += [AccessSite(kernel.name, _label(program, a), (a,)) for a in accesses]
        for label, group in (("all loads", [a for a in accesses if a.is_load]), ("all stores", _stores(accesses))):
            if len(group) > 1:
                sites.append(AccessSite(kernel.name, label, tuple(group)))
    return sites


def set_hint(program: Program, access: Access, name: str, rival: str, value: str) -> tuple[Edit, ...]:
    """The edits that give an access one hint and take away another that PTX does not allow beside it."""
    rival_argument = keyword(access.call, rival)
    if rival_argument is not None and keyword(access.call, name) is None:
        return (Edit(*program.span(rival_argument), f'{name}="{value}"'),)
    text, place = call_option(program, access.call, name)
    return () if text == f'"{value}"' else place.set(f'"{value}"')


class EvictionPolicy(Technique[AccessSite]):
    """One policy for one access, for all loads or for all stores of a kernel."""

    name = "eviction_policy"
    prior = 0.02
    citation = (
        "ld.global.L1::evict_last, https://docs.nvidia.com/cuda/parallel-thread-execution/#cache-eviction-priority"
    )

    def sites(self, program: Program) -> list[AccessSite]:
        return access_sites(program)

    def rewrite(self, context: Context, site: AccessSite) -> Rewrite | None:
        policy = context.rng.choice(POLICIES)
        edits = [
            e for a in site.accesses for e in set_hint(context.program, a, "eviction_policy", "cache_modifier", policy)
        ]
        return Rewrite(tuple(edits), f"{policy} for {site.label} of {site.kernel}")


def _stores(accesses: list[Access]) -> list[Access]:
    return [a for a in accesses if not a.is_load]


def _label(program: Program, access: Access) -> str:
    kind = "load" if access.is_load else "store"
    return f"{kind} of {access.tensor or '?'} in line {program.line_of(program.span(access.call).start)}"
