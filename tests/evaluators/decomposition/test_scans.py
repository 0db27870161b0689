"""Scans that Inductor splits over programs, written as loops. What they compute: test_stitch."""

from __future__ import annotations

import pytest

from evaluators.decomposition.flow import Flow
from evaluators.decomposition.parts import group_parts, refusal, single_parts
from evaluators.decomposition.scans import MIN_LINES, first_configuration, looped, with_loops
from evaluators.decomposition.steps import Fill, Kernel, Launch
from evaluators.decomposition.unwrap import unwrapped
from tests.support.decompositions import decomposition_of
from tests.support.inductor import output_of


@pytest.fixture
def kernel() -> Kernel:
    return output_of("split_scan_2_13").kernels["triton_spl_fused_0"]


def test_a_loop_needs_no_memory_to_talk_through(kernel: Kernel) -> None:
    loop = looped(kernel)
    assert loop is not None and "ws_ptr" not in loop.source and "lookback" not in loop.source
    assert loop.parameters == ("in_ptr0", "in_ptr1", "out_ptr0", "out_ptr1", "xnumel", "r0_numel")
    assert loop.constexprs == ("XBLOCK", "R0_BLOCK") and loop.grid_type == "Grid1D" and not loop.mutated


def test_what_does_not_change_along_a_line_stands_before_the_loop(kernel: Kernel) -> None:
    loop = looped(kernel)
    assert loop is not None
    before, inside = loop.source.split("for r0_offset in ")
    assert "x1 = xindex // 12" in before and "tl.full([1, 1], 2.0" in before
    assert inside.count("tl.load(") == 2 and inside.count("r0_mask & xmask") == 4


def test_more_elements_than_32_bits_count_are_counted_in_64(kernel: Kernel) -> None:
    for source, is_wide in ((kernel.source, False), (_in_64_bits(kernel.source), True)):
        loop = looped(kernel.model_copy(update={"source": source}))
        assert loop is not None
        bound = dict(line.strip().split(" = ", 1) for line in loop.source.splitlines() if " = " in line)
        assert all((".to(tl.int64)" in bound[name]) == is_wide for name in ("xoffset", "xindex", "r0_base"))


def _in_64_bits(source: str) -> str:
    """As Inductor writes it for a tensor of 2.3 * 10^9 elements."""
    changed = source.replace("tl.program_id(1) * XBLOCK", "tl.program_id(1).to(tl.int64) * XBLOCK")
    changed = changed.replace("tl.program_id(0) * R0_BLOCK", "tl.program_id(0).to(tl.int64) * R0_BLOCK")
    assert changed.count(".to(tl.int64) *") == 2
    return changed


def test_tiles_go_across_lines_where_these_are_neighbours(kernel: Kernel) -> None:
    across = first_configuration(kernel).constants
    along = first_configuration(kernel.model_copy(update={"source": kernel.source.replace("OUTER", "INNER")})).constants
    assert across == {"XBLOCK": 16, "R0_BLOCK": 128} and along == {"XBLOCK": 1, "R0_BLOCK": 2048}


@pytest.mark.parametrize(
    "change",
    [
        {"heuristics": "reduction"},
        {"size_hints": {"x": MIN_LINES // 2, "r0_": 4096}},
        {"source": "tmp4 = tmp3.to(tl.float32)", "by": "tmp4 = tmp3 + 0"},  # nobody knows what the carry holds
        {"source": "tl.sigmoid(tmp1)", "by": "tl.atomic_add(in_ptr1, tmp1)"},
        {"source": "exclusive_scan_decoupled_lookback", "by": "another_function"},
    ],
    ids=["no split scan", "few lines", "no dtype", "atomics", "no look-back"],
)
def test_what_is_not_known_stays_as_it_is(kernel: Kernel, change: dict[str, object]) -> None:
    if "by" in change:
        change = {"source": kernel.source.replace(str(change["source"]), str(change["by"]))}
        assert change["source"] != kernel.source
    assert looped(kernel.model_copy(update=change)) is None


def test_a_scan_and_what_follows_it_can_be_searched_with_loops_only() -> None:
    graph = decomposition_of("gated_scan").graph
    assert graph is not None
    as_it_is, with_a_loop = Flow(graph.output), Flow(with_loops(graph.output).output)
    assert "adds to what its output held" in refusal(as_it_is, single_parts(as_it_is)[0])
    assert [part.name for part in single_parts(as_it_is)] == [part.name for part in single_parts(with_a_loop)]
    assert group_parts(as_it_is) == [] and group_parts(with_a_loop) != []
    for parts in (single_parts, group_parts):
        assert not any(refusal(with_a_loop, part) for part in parts(with_a_loop))


def test_memory_that_nobody_reads_is_not_filled() -> None:
    loops = with_loops(output_of("split_scan_2_13"))
    flow = Flow(loops.output)
    part = single_parts(flow)[0]
    steps = loops.output.steps[part.first : part.last + 1]
    assert any(isinstance(step, Fill) for step in steps) and any(isinstance(step, Launch) for step in steps)
    assert "torch.zeros" not in unwrapped(flow, part, loops.configurations, "ModelNew")
