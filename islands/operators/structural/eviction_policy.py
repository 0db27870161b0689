"""eviction_policy: what the caches should keep, and what they may drop first."""

from __future__ import annotations

from typing import NamedTuple

from islands.operators.structural.accesses import Access, accesses_of
from islands.operators.structural.analysis import Program, Scope, keyword
from islands.operators.structural.places import call_option
from islands.operators.structural.technique import Context, Rewrite, Technique
from islands.operators.structural.text import Edit

_POLICIES = ("evict_first", "evict_last")


class AccessSite(NamedTuple):
    """Accesses that are given one hint, or, for `walks`, the hint that suits each."""

    kernel: str
    label: str
    accesses: tuple[Access, ...]
    by_walk: bool = False


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
    """One policy for one access or for all of a kernel; or by walk: a tensor that is read again is kept until its last
    reading, everything else may go first."""

    name = "eviction_policy"
    citation = (
        "ld.global.L1::evict_last, https://docs.nvidia.com/cuda/parallel-thread-execution/#cache-eviction-priority"
    )

    def sites(self, program: Program) -> list[AccessSite]:
        walks = [s for kernel in program.kernels.values() if (s := _walks(program, kernel)) is not None]
        return access_sites(program) + walks * 3

    def rewrite(self, context: Context, site: AccessSite) -> Rewrite | None:
        program, _, rng = context
        policies = _by_walk(site.accesses) if site.by_walk else [rng.choice(_POLICIES)] * len(site.accesses)
        pairs = list(zip(site.accesses, policies, strict=True))
        edits = [e for a, p in pairs for e in set_hint(program, a, self.name, "cache_modifier", p)]
        said = "by walk" if site.by_walk else policies[0]
        return Rewrite(tuple(edits), f"{said} for {site.label} of {site.kernel}")


def _walks(program: Program, kernel: Scope) -> AccessSite | None:
    accesses = accesses_of(program, kernel)
    read = [a.tensor for a in accesses if a.is_load and a.tensor]
    again = {t for t in read if read.count(t) > 1}
    return AccessSite(kernel.name, "accesses", tuple(accesses), by_walk=True) if again else None


def _by_walk(accesses: tuple[Access, ...]) -> list[str]:
    last = {a.tensor: i for i, a in enumerate(accesses) if a.is_load}
    return ["evict_last" if a.is_load and i < last[a.tensor] else "evict_first" for i, a in enumerate(accesses)]


def _stores(accesses: list[Access]) -> list[Access]:
    return [a for a in accesses if not a.is_load]


def _label(program: Program, access: Access) -> str:
    kind = "load" if access.is_load else "store"
    return f"{kind} of {access.tensor or '?'} in line {program.line_of(program.span(access.call).start)}"
