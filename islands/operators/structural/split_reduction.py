"""split_reduction: several programs share the loop of one, and a second launch joins what they leave.

It pays where the grid has fewer programs than the GPU can hold: matrix times vector with few rows, sums over columns,
reductions to a single loss.
"""

from __future__ import annotations

from islands.operators.structural.analysis import Program
from islands.operators.structural.gpus import n_multiprocessors
from islands.operators.structural.share_edits import share_edits
from islands.operators.structural.shares import ShareSite, share_sites
from islands.operators.structural.technique import Context, Rewrite, Technique

N_SHARES = (2, 4, 8, 16)
_PER_MULTIPROCESSOR = 32  # programs beyond which more of them only add launches: two waves of sixteen


class SplitReduction(Technique[ShareSite]):
    """Sums, maxima, minima, and sums below a running maximum as in softmax; the number of shares becomes a constant of
    the module, a knob from then on."""

    name = "split_reduction"
    prior = 0.02
    citation = "two-pass reductions: Harris 2007, https://developer.download.nvidia.com/assets/cuda/files/reduction.pdf"
    cost = 2.0

    def sites(self, program: Program) -> list[ShareSite]:
        return [site for site in share_sites(program) if not site.is_product]

    def rewrite(self, context: Context, site: ShareSite) -> Rewrite | None:
        return rewrite_in_shares(context, site, _PER_MULTIPROCESSOR)


def rewrite_in_shares(context: Context, site: ShareSite, most_per_multiprocessor: int) -> Rewrite | None:
    """The loop in a number of shares that leaves at most so many programs a multiprocessor."""
    program, observed, rng = context
    n_programs = observed.n_programs(site.kernel)
    most = most_per_multiprocessor * n_multiprocessors(observed)
    fitting = [n for n in N_SHARES if n_programs is None or n * n_programs <= most]
    if not fitting:
        return None
    n_shares = rng.choice(fitting)
    line = program.line_of(program.span(site.loop.node).start)
    edits = program.derived(("in shares", id(site.loop.node), n_shares), lambda: share_edits(program, site, n_shares))
    return Rewrite(edits, f"loop in line {line} of {site.kernel} in {n_shares} shares")
