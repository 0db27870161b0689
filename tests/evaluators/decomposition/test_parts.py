"""What goes in and out of a part, in the face of memory that is used again, and what cannot be a part."""

import pytest

from evaluators.decomposition.floors import efficiency_of
from evaluators.decomposition.flow import Flow
from evaluators.decomposition.output import read_output
from evaluators.decomposition.parts import MOST_SMALL_GROUPS, Part, group_parts, refusal, single_parts
from evaluators.decomposition.steps import Launch, Operand
from tests.support.decompositions import decomposition_of
from tests.support.inductor import FOLDER, output_of

H200 = (FOLDER / "h200.py.txt").read_text()


def names(part: Part) -> tuple[list[str], list[str]]:
    return [t.name for t in part.inputs], [t.name for t in part.outputs]


def test_a_tensor_that_is_changed_in_place_is_two_contents() -> None:
    (part,) = single_parts(Flow(read_output(H200)))
    assert names(part) == (["buf0", "arg3_1", "arg4_1"], ["buf5"])
    assert part.inputs[0].spec.shape == (512, 1024) and part.inputs[0].spec.dtype == "float32"


def test_contents_have_the_shape_that_they_were_written_with() -> None:
    """The scores of attention are written as (8, ...) by a product and read as (1, 2, ...) by softmax."""
    parts = single_parts(Flow(output_of("attention")))
    softmax = next(p for p in parts if len(p.inputs) == 2 and "arg6_1" in names(p)[0])
    assert softmax.inputs[0].spec.shape == (2, 8, 8) and softmax.outputs[0].spec.shape == (1, 2, 8, 8)


def test_libraries_cut_groups_and_what_stays_inside_is_no_output() -> None:
    flow = Flow(output_of("conv_pool"))
    (group,) = [p for p in group_parts(flow) if len(p.kernels) > 1 and "buf3" in names(p)[0]]
    assert len(group.kernels) == 2 and names(group)[1] == ["buf5"]
    singles = [p for p in single_parts(flow) if group.first <= p.first <= group.last]
    assert [names(p)[1] for p in singles] == [["buf4"], ["buf5"]]


def test_who_fills_a_part_of_a_tensor_is_searched_only_with_who_fills_the_rest() -> None:
    flow = Flow(output_of("concatenation"))
    refused = [refusal(flow, part) for part in single_parts(flow)]
    assert [bool(reason) for reason in refused[:2]] == [True, True] and "buf4" in refused[0]
    (group,) = group_parts(flow)
    assert refusal(flow, group) == "" and names(group)[0] == ["arg0_1", "arg1_1"] and "buf4" in names(group)[1]


def test_a_kernel_that_changes_an_input_of_the_model_is_left_alone() -> None:
    changed = H200.replace(".run(buf5, arg3_1", ".run(arg4_1, arg3_1").replace("del arg4_1", "del buf5")
    flow = Flow(read_output(changed.replace("return (buf5, )", "return (arg4_1, )")))
    (part,) = single_parts(flow)
    assert "arg4_1" in refusal(flow, part) and "in place" in refusal(flow, part)


def test_a_kernel_that_adds_to_its_output_is_left_alone() -> None:
    changed = H200.replace("tl.store(in_out_ptr0", "tl.atomic_add(in_out_ptr0")
    flow = Flow(read_output(changed))
    (part,) = single_parts(flow)
    assert "held before" in refusal(flow, part)


def chain(n: int, *, atomic: int = -1, in_place: int = -1) -> Flow:
    """The kernel of the H200 sample over and over: each launch changes what the one before it made.

    Args:
        n: launches.
        atomic: the launch whose kernel adds to what its output held.
        in_place: the launch that changes an argument of the graph.
    """
    output = read_output(H200)
    (index,) = [i for i, step in enumerate(output.steps) if isinstance(step, Launch)]
    launch, kernel = output.launches[0], output.kernels[output.launches[0].kernel]
    adding = kernel.model_copy(
        update={
            "name": "adding",
            "source": kernel.source.replace(kernel.name, "adding").replace("tl.store(in_out", "tl.atomic_add(in_out"),
        }
    )
    other = Operand(name="arg4_1")
    launches = [launch] * n
    if atomic >= 0:
        launches[atomic] = launch.model_copy(update={"kernel": "adding"})
    if in_place >= 0:
        launches[in_place] = launch.model_copy(update={"arguments": (other, *launch.arguments[1:])})
    steps = (*output.steps[:index], *launches, *output.steps[index + 1 :])
    kernels = {**output.kernels, "adding": adding}
    return Flow(output.model_copy(update={"steps": steps, "kernels": kernels}))


def launches_of(flow: Flow, parts: list[Part]) -> list[tuple[int, int]]:
    """The first and the last launch of each part, counted from the first of the graph."""
    places = [i for i, step in enumerate(flow.output.steps) if isinstance(step, Launch)]
    return [(places.index(part.first), places.index(part.last)) for part in parts]


@pytest.mark.parametrize("refused", [{"atomic": 3}, {"in_place": 3}])
def test_a_kernel_that_is_left_alone_keeps_none_of_its_neighbours_out_of_a_group(
    refused: dict[str, int],
) -> None:
    flow = chain(6, **refused)
    groups = group_parts(flow)
    assert launches_of(flow, groups) == [(0, 2), (4, 5)]
    assert [refusal(flow, group) for group in groups] == ["", ""]
    alone = single_parts(flow)
    assert [bool(refusal(flow, part)) for part in alone] == [False, False, False, True, False, False]


def test_a_short_run_is_one_group() -> None:
    flow = chain(8)
    assert launches_of(flow, group_parts(flow)) == [(0, 7)]


def test_of_a_long_run_the_neighbours_that_take_most_time_are_groups_as_well() -> None:
    flow = chain(12)
    places = [i for i, step in enumerate(flow.output.steps) if isinstance(step, Launch)]
    shares = dict.fromkeys(places, 0.01) | {places[4]: 0.2, places[5]: 0.2, places[6]: 0.1, places[11]: 0.05}
    groups = launches_of(flow, group_parts(flow, shares))
    assert groups[0] == (0, 11) and groups[1][0] <= 4 and groups[1][1] >= 6
    assert groups[1:3] == [(3, 6), (8, 11)] and groups[3] == (0, 2) and len(groups) == 4
    assert len(group_parts(chain(40))) == 1 + MOST_SMALL_GROUPS


def test_a_part_is_as_efficient_as_its_bytes_over_bandwidth_allow() -> None:
    parts = {p.part.name: p.part for p in decomposition_of("conv_epilogue").parts}
    n_bytes = 4 * (64 * 64 * 64 * 64 + 64 * 64 * 32 * 32)
    assert efficiency_of(parts["part_28_28"], 100.0, 4000.0) == pytest.approx(n_bytes / 4e6 / 100.0)
    assert efficiency_of(parts["part_28_28"], 1.0, 4000.0) == 1.0
    both, first = (efficiency_of(parts[name], 100.0, 4000.0) for name in ("part_20_28", "part_20_20"))
    assert both < first  # what goes from one kernel to the other need not be written
