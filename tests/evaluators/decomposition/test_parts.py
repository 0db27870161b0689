"""What goes in and out of a part, in the face of memory that is used again, and what cannot be a part."""

from evaluators.decomposition.flow import Flow
from evaluators.decomposition.output import read_output
from evaluators.decomposition.parts import Part, group_parts, refusal, single_parts
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
