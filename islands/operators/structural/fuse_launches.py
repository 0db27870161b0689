"""fuse_launches: a kernel does what the next one would do with each element that it stores.

The tensor between them need not be written and read again: a scan and the elementwise kernel behind it, which
torch.compile leaves apart where the second reads the rows in another order.
"""

from __future__ import annotations

from islands.operators.structural.analysis import Program
from islands.operators.structural.fusion.fused_kernel import fusion_edits
from islands.operators.structural.fusion.launch_pairs import LaunchPair, launch_pairs
from islands.operators.structural.technique import Context, Rewrite, Technique


class FuseLaunches(Technique[LaunchPair]):
    """An elementwise kernel moves behind the store of the kernel before it, and its launch goes; the tensor between
    them goes too unless host code uses it later. Only where both number its elements by the same digits."""

    name = "fuse_launches"
    prior = 0.2
    citation = "vertical fusion: Wahib and Maruyama 2014, Scalable kernel fusion, https://doi.org/10.1109/SC.2014.21"

    def sites(self, program: Program) -> list[LaunchPair]:
        if not program.alias("triton.language") or not program.alias("torch"):
            return []
        return [pair for pair in launch_pairs(program) if fusion_edits(program, pair) is not None]

    def rewrite(self, context: Context, site: LaunchPair) -> Rewrite | None:
        edits = fusion_edits(context.program, site)
        is_stored = any(handover.tensor.is_used_later for handover in site.handovers)
        kept = ", which still stores its tensor" if is_stored else ""
        detail = f"launch of {site.second.kernel_name} into {site.first.kernel_name}{kept}"
        return None if edits is None else Rewrite(tuple(edits), detail)

    def kernel_of(self, site: LaunchPair) -> str:
        return site.first.kernel_name
