"""Reading Inductor's output: every statement becomes a step, and what is not known is refused by name."""

import pytest

from evaluators.decomposition.errors import DecompositionError
from evaluators.decomposition.kernels import dtype_of, pointers
from evaluators.decomposition.output import read_output
from evaluators.decomposition.steps import Allocation, Extern, Launch, Layout, Operand, View
from tests.support.inductor import FOLDER, MODELS, output_of

H200 = (FOLDER / "h200.py.txt").read_text()


def test_an_output_of_an_h200_is_read_whole() -> None:
    output = read_output(H200)
    assert output.arguments == ("arg0_1", "arg1_1", "arg2_1", "arg3_1", "arg4_1")
    assert output.argument_specs["arg2_1"].shape == (512, 1024)
    assert output.argument_specs["arg2_1"].strides == (1024, 1)
    (launch,) = output.launches
    kernel = output.kernels[launch.kernel]
    assert kernel.heuristics == "persistent_reduction" and kernel.grid_type == "Grid1D"
    assert kernel.size_hints == {"x": 512, "r0_": 1024}
    assert kernel.parameters == ("in_out_ptr0", "in_ptr0", "in_ptr1", "xnumel", "r0_numel")
    assert kernel.constexprs == ("XBLOCK",) and kernel.mutated == ("in_out_ptr0",)
    assert pointers(kernel) == ["in_out_ptr0", "in_ptr0", "in_ptr1"] and dtype_of(kernel, "in_ptr0") == "float32"
    assert output.bound(launch)["r0_numel"] == 1024 and output.bound(launch)["in_out_ptr0"] == Operand(name="buf5")
    assert output.returns == (Operand(name="buf5"),)


def test_library_calls_keep_what_they_read_and_write() -> None:
    (extern,) = read_output(H200).externs
    assert extern.target == "extern_kernels.addmm"
    assert extern.reads == ("arg1_1", "arg2_1", "arg0_1") and extern.writes == ("buf0",) and not extern.result
    (convolution,) = output_of("conv_pool").externs
    assert convolution.result and not convolution.writes


def test_memory_that_is_used_again_is_a_view_of_it() -> None:
    views = [(s.name, s.operand.name) for s in read_output(H200).steps if isinstance(s, View)]
    assert views == [("buf4", "buf0"), ("buf5", "buf4")]


def test_the_shape_that_a_library_answers_is_a_step() -> None:
    layouts = [s for s in output_of("conv_pool").steps if isinstance(s, Layout) and s.name.startswith("buf")]
    assert layouts and layouts[0].shape == (2, 32, 8, 8)


@pytest.mark.parametrize("name", MODELS)
def test_every_launch_binds_every_parameter(name: str) -> None:
    output = output_of(name)
    assert output.launches and set(output.argument_specs) == set(output.arguments)
    for launch in output.launches:
        assert len(launch.arguments) == len(output.kernels[launch.kernel].parameters)


def test_both_versions_of_torch_are_read_alike() -> None:
    old, new = output_of("attention"), output_of("attention_2_13")
    kinds = (Allocation, Extern, Launch)
    assert [s.kind for s in old.steps if isinstance(s, kinds)] == [s.kind for s in new.steps if isinstance(s, kinds)]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("buf0 = empty_strided_cuda((512, 1024)", "buf0 = empty_strided_cuda((s0, 1024)", "a size is not known"),
        ("buf4 = buf0; del buf0", "buf4 = surprise(buf0)", "not understood: buf4 = surprise"),
        ("torch.cuda._DeviceGuard(0)", "torch.cuda._DeviceGuard(1)", "one GPU"),
        ("arg4_1, 512, 1024, stream", "arg4_1, s0, 1024, stream", "a size is not known: s0"),
        ("def call(self, args)", "def other(self, args)", "no call"),
    ],
)
def test_what_is_not_known_is_refused_by_name(before: str, after: str, said: str) -> None:
    assert before in H200
    changed = H200.replace(before, after)
    with pytest.raises(DecompositionError, match=said):
        read_output(changed)


def test_a_kernel_of_another_kind_is_refused() -> None:
    source = H200 + "\ncpp_fused_0 = async_compile.cpp_pybinding(['float*'], '''int main() {}''')\n"
    with pytest.raises(DecompositionError, match="cpp_pybinding"):
        read_output(source)
