"""Parts as programs: legal by the static gate, compiled for a GPU that is not here, and free of Inductor."""

import ast
from pathlib import Path

import pytest

from db.records import EntryPoint
from evaluators.capture.capture import capture_candidate
from evaluators.decomposition.access import access_of, split_in_place
from evaluators.decomposition.configurations import configurations
from evaluators.decomposition.decompose import stitch
from evaluators.decomposition.errors import DecompositionError
from evaluators.decomposition.flow import Flow
from evaluators.decomposition.grids import grid_text
from evaluators.decomposition.output import read_output
from evaluators.decomposition.parts import Part, group_parts, refusal, single_parts
from evaluators.decomposition.plain import definitions_text, plain
from evaluators.decomposition.scans import with_loops
from evaluators.decomposition.steps import Kernel
from evaluators.decomposition.unwrap import unwrapped
from evaluators.gates.static import check_policy
from evaluators.hardware import load_hardware
from evaluators.sandbox import Zygote
from tests.support.decompositions import decomposition_of
from tests.support.inductor import FOLDER, MODELS, output_of

H200 = (FOLDER / "h200.py.txt").read_text()


def programs(name: str, entry: EntryPoint) -> list[tuple[Part, str]]:
    output = output_of(name)
    loops = with_loops(output)
    flow = Flow(loops.output)
    chosen = {kernel: configurations(its)[0] for kernel, its in output.kernels.items()} | loops.configurations
    parts = [p for p in [*single_parts(flow), *group_parts(flow)] if not refusal(flow, p)]
    return [(part, unwrapped(flow, part, chosen, entry)) for part in parts]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("entry", EntryPoint)
def test_every_part_is_a_legal_program_without_inductor(name: str, entry: EntryPoint) -> None:
    found = programs(name, entry)
    assert found
    for part, source in found:
        gate = check_policy(source, entry)
        assert gate.passed, f"{part.name}: {gate.reason}"
        assert "_inductor." not in source and "triton_helpers" not in source and "tl_math" not in source


@pytest.mark.parametrize("name", ["attention", "scan", "split_scan_2_13"])
def test_parts_compile_for_a_gpu_that_is_not_here(name: str, compiling: Zygote, tmp_path: Path) -> None:
    part, source = max(programs(name, EntryPoint.MODEL), key=lambda pair: len(pair[1]))
    capture = capture_candidate(
        compiling,
        source=source,
        entry_point=EntryPoint.MODEL,
        init_args=[],
        input_specs=[tensor.spec for tensor in part.inputs],
        weight_specs={},
        workload_name="full",
        hardware=load_hardware("h200"),
        deadline_s=60,
    )
    assert [launch.kernel for launch in capture.launches] == list(part.kernels)
    assert len(capture.outputs) == len(part.outputs) and all(launch.n_registers for launch in capture.launches)
    assert not any(launch.unwritten_reads for launch in capture.launches)


def test_what_is_changed_in_place_comes_in_and_goes_out_apart() -> None:
    (kernel,) = read_output(H200).kernels.values()
    source = split_in_place(kernel)
    assert "tl.load(before_ptr0 +" in source and "tl.store(after_ptr0 +" in source
    assert "(before_ptr0, after_ptr0, in_ptr0, in_ptr1, xnumel" in source
    assert access_of(kernel).reads == ("in_out_ptr0", "in_ptr0", "in_ptr1")


def test_a_load_below_the_store_reads_what_the_kernel_wrote() -> None:
    text = H200.replace(
        "tl.store(in_out_ptr0 + (r0_1 + 1024*x0), tmp37, xmask)",
        "tl.store(in_out_ptr0 + (r0_1 + 1024*x0), tmp37, xmask)\n    again = tl.load(in_out_ptr0 + (r0_1))",
    )
    (kernel,) = read_output(text).kernels.values()
    assert "again = tl.load(after_ptr0" in split_in_place(kernel)


def test_inductors_own_rules_give_the_block_sizes() -> None:
    (kernel,) = read_output(H200).kernels.values()
    first = configurations(kernel)[0]
    assert first.constants == {"XBLOCK": 1} and first.num_warps in (4, 8)
    wide = output_of("conv_pool").kernels
    assert any(len(configurations(k)) > 1 for k in wide.values())


def test_a_rule_that_fails_is_told_with_the_kernels_name() -> None:
    (kernel,) = read_output(H200).kernels.values()
    broken = kernel.model_copy(update={"source": kernel.source.replace("persistent_reduction(", "no_such_rule(")})
    with pytest.raises(DecompositionError, match=kernel.name):
        configurations(broken)


@pytest.mark.parametrize(
    ("rule", "grid"),
    [
        ("Grid1D", "(triton.cdiv(10, X),)"),
        ("Grid2D", "(triton.cdiv(10, X), triton.cdiv(20, Y))"),
        ("SplitScanGrid", "(triton.cdiv(40, R), 10)"),
        ("Grid2DWithYZOverflow", "(triton.cdiv(10, X), triton.cdiv(triton.cdiv(20, Y), triton.cdiv("),
    ],
)
def test_grids_are_written_out(rule: str, grid: str) -> None:
    kernel = Kernel(name="k", source="", parameters=(), constexprs=(), heuristics="pointwise", grid_type=rule)
    sizes = {"xnumel": 10, "ynumel": 20, "r0_numel": 40}
    assert grid_text(kernel, sizes, {"XBLOCK": "X", "YBLOCK": "Y", "R0_BLOCK": "R"}).startswith(grid)


def test_an_unknown_grid_is_refused() -> None:
    kernel = Kernel(name="k", source="", parameters=(), constexprs=(), heuristics="pointwise", grid_type="Grid9D")
    with pytest.raises(DecompositionError, match="Grid9D"):
        grid_text(kernel, {}, {})


def test_copied_functions_come_before_those_that_call_them() -> None:
    kernels = [plain(kernel, in_place=True) for kernel in output_of("sorted").kernels.values()]
    defined: set[str] = set()
    for statement in ast.parse(definitions_text(kernels)).body:
        assert isinstance(statement, ast.FunctionDef)
        called = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id.startswith("inductor_")}
        assert called <= defined
        defined.add(statement.name)
    assert "inductor_sort_with_index" in defined


def test_a_call_that_is_no_triton_function_is_refused() -> None:
    (kernel,) = read_output(H200).kernels.values()
    text = kernel.source.replace("libdevice.rsqrt(", "triton_helpers.set_driver_to_gpu(")
    with pytest.raises(DecompositionError, match="set_driver_to_gpu"):
        plain(kernel.model_copy(update={"source": text}), in_place=True)


def test_memory_that_a_part_uses_again_comes_out_in_the_shape_of_what_it_holds_last() -> None:
    """On an H200 a group answered (256, 1) for an output of (256,)."""
    decomposition = decomposition_of("softmax_pool")
    assert decomposition.graph is not None
    flow = Flow(decomposition.graph.output)
    (group,) = group_parts(flow)
    source = unwrapped(flow, group, decomposition.graph.chosen, EntryPoint.FUNCTION)
    assert [t.spec.shape for t in group.outputs] == [(256, 65536), (256,)]
    assert "buf7 = buf3.as_strided((256,), (1,))" in source and "return buf4, buf7" in source
    assert "buf5 = " not in source  # nobody outside sees it


def test_a_split_scan_is_legal_by_the_static_gate() -> None:
    """It calls a private name of Triton's, to take a number out of a constant."""
    source = stitch(decomposition_of("gated_scan"), {})
    assert "._unwrap_if_constexpr(" in source
    gate = check_policy(source, "ModelNew")
    assert gate.passed, gate.reason
