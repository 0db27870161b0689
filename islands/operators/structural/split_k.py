"""split_k: the inner dimension of a matrix product in shares, for products with few tiles and a long inner dimension.

Every share keeps its float32 tile in a workspace; a second launch adds them and does what followed the loop. Attention
over few queries is such a loop too: keys and values in shares, as in flash decoding.
"""

from __future__ import annotations

from islands.operators.structural.analysis import Program
from islands.operators.structural.shares import ShareSite, share_sites
from islands.operators.structural.split_reduction import rewrite_in_shares
from islands.operators.structural.technique import Context, Rewrite, Technique

_PER_MULTIPROCESSOR = 4  # programs: a tile of a product takes half of a multiprocessor or all of it


class SplitK(Technique[ShareSite]):
    """Loops around `tl.dot`. What is stored is what float32 sums give, whatever the type of the result."""

    name = "split_k"
    prior = 0.02
    citation = "Split-K, https://docs.nvidia.com/cutlass/latest/media/docs/cpp/efficient_gemm.html; Flash-Decoding, https://pytorch.org/blog/flash-decoding/"
    cost = 2.0

    def sites(self, program: Program) -> list[ShareSite]:
        return [site for site in share_sites(program) if site.is_product]

    def rewrite(self, context: Context, site: ShareSite) -> Rewrite | None:
        return rewrite_in_shares(context, site, _PER_MULTIPROCESSOR)
