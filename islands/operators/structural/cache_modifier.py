"""cache_modifier: at which level of the caches a load or a store is kept."""

from __future__ import annotations

from islands.operators.structural.analysis import Program
from islands.operators.structural.eviction_policy import AccessSite, access_sites, set_hint
from islands.operators.structural.technique import Context, Rewrite, Technique

_LOADS = (".ca", ".cg")
_STORES = (".cg", ".cs", ".wt")


class CacheModifier(Technique[AccessSite]):
    """Loads: every level or L2 only. Stores: L2 only, streamed, or written through."""

    name = "cache_modifier"
    prior = 0.02
    citation = "ld.global.cg, st.global.cs, https://docs.nvidia.com/cuda/parallel-thread-execution/#cache-operators"

    def sites(self, program: Program) -> list[AccessSite]:
        return access_sites(program)

    def rewrite(self, context: Context, site: AccessSite) -> Rewrite | None:
        program, _, rng = context
        value = rng.choice(_LOADS if site.accesses[0].is_load else _STORES)
        edits = [e for a in site.accesses for e in set_hint(program, a, self.name, "eviction_policy", value)]
        return Rewrite(tuple(edits), f"{value} for {site.label} of {site.kernel}")
