"""resident_rows: a program a multiprocessor walks its rows from the cache, and the answer stays what it was."""

from __future__ import annotations

import random
import re

from support.compiling import interpret_all
from support.parents import kernel_sources, parent_of

from islands.operators.structural.keep_for_walk import KeepForWalk
from islands.operators.structural.resident_rows import ResidentRows

WALKED_TWICE = {
    *(
        "exact_scale",
        "inductor_layer_norm",
        "inductor_log_softmax",
        "inductor_masked_softmax",
        "inductor_mean_magnitude",
    ),
    *("inductor_softmax", "inductor_two_norms", "log_softmax", "row_entropy", "row_l2", "row_norm", "row_softmax"),
}


def test_applies_where_rows_are_walked_twice() -> None:
    found = {n for n, s in kernel_sources().items() if ResidentRows().propose([parent_of(s)], random.Random(0))}
    assert found == WALKED_TWICE


def test_one_row_a_program_many_warps_and_large_tiles() -> None:
    source = kernel_sources()["inductor_layer_norm"]
    proposals = [ResidentRows().propose([parent_of(source)], random.Random(seed)) for seed in range(8)]
    for proposal in proposals:
        assert proposal is not None
        said = re.search(r"^(\d+) programs .* num_warps (\d+), XBLOCK 1, R0_BLOCK (\d+)$", proposal.detail)
        assert said and int(said[1]) in (132, 264) and int(said[2]) in (16, 32)
        assert f"num_warps={said[2]}" in proposal.source and f"R0_BLOCK = {said[3]}" in proposal.source
        assert f"= {said[1]}\n" in proposal.source and "triton.cdiv" in proposal.source


def test_what_every_row_needs_stays_and_what_was_walked_may_go() -> None:
    source = kernel_sources()["inductor_layer_norm"]
    proposal = KeepForWalk().propose([parent_of(source)], random.Random(0))
    assert proposal is not None
    loads = re.findall(r"tl\.load\((\w+) .*eviction_policy=\"(\w+)\"", proposal.source)
    assert loads[0] == ("in_ptr0", "evict_last") and ("in_ptr0", "evict_first") in loads
    assert {policy for tensor, policy in loads if tensor in ("in_ptr1", "in_ptr2")} == {"evict_last"}


def test_the_answer_stays() -> None:
    names = ("inductor_masked_softmax", "row_norm", "log_softmax")
    sources = [kernel_sources()[name] for name in names]
    rewritten = [ResidentRows().propose([parent_of(source)], random.Random(1)) for source in sources]
    before = interpret_all(sources)
    after = interpret_all([proposal.source for proposal in rewritten if proposal])
    assert len(after) == len(names)
    for expected, found in zip(before, after, strict=True):
        assert isinstance(found, list), found
        for a, b in zip(expected, found, strict=True):
            assert max(abs(x - y) for x, y in zip(a, b, strict=True)) < 1e-5
