"""Models put together again do what they did, with Inductor's kernels, with every part and with groups replaced."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from db.records import EntryPoint
from evaluators.decomposition.binding import fixed_value
from evaluators.decomposition.embedding import embedded
from evaluators.decomposition.errors import DecompositionError
from evaluators.decomposition.flow import Flow
from evaluators.decomposition.libraries import as_torch
from evaluators.decomposition.modules import Weight, attribute, constructor_lines
from evaluators.decomposition.parts import Part, group_parts, refusal, single_parts
from evaluators.decomposition.records import Argument, Graph
from evaluators.decomposition.scans import with_loops
from evaluators.decomposition.stitch import stitched
from evaluators.decomposition.unwrap import unwrapped
from evaluators.gates.static import check_policy
from evaluators.problems.interpreted import InterpretedFunction
from evaluators.problems.module import load_module
from tests.support.inductor import called, graph_of, model_and_inputs

# runs any source in the one process that interprets
DRIVER = """
import torch
from evaluators.problems.module import load_module

def kernel_function(source, state, inputs):
    model = load_module(source, "problem_stitched").ModelNew()
    model.load_state_dict(state)
    with torch.no_grad():
        return model(*inputs)
"""

Run = Callable[[str, dict[str, Tensor], list[Any]], list[Tensor]]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    function = InterpretedFunction(DRIVER)
    yield function
    function.close()


def searched(graph: Graph, *, groups: bool) -> list[Part]:
    flow = Flow(with_loops(graph.output).output)
    return [p for p in (group_parts(flow) if groups else single_parts(flow)) if not refusal(flow, p)]


def twins(graph: Graph, parts: list[Part], entry: EntryPoint) -> dict[str, str]:
    loops = with_loops(graph.output)
    flow, chosen = Flow(loops.output), {**graph.chosen, **loops.configurations}
    return {part.name: unwrapped(flow, part, chosen, entry) for part in parts}


def check(run: Run, name: str, source: str) -> None:
    model, inputs = model_and_inputs(name)
    found = run(source, model.state_dict(), inputs)
    expected = called(model, *inputs)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["mlp", "attention"])
def test_the_compiled_model_in_plain_triton_does_what_the_model_does(name: str, run: Run) -> None:
    check(run, name, stitched(graph_of(name), [], {}))


PARTED = ["scan", "split_scan_2_13", "conv_pool", "concatenation", "sorted", "attention", "attention_2_13"]


@pytest.mark.parametrize("name", PARTED)
def test_every_part_can_be_replaced(name: str, run: Run) -> None:
    graph = graph_of(name)
    parts = searched(graph, groups=False)
    check(run, name, stitched(graph, parts, twins(graph, parts, EntryPoint.MODEL)))


@pytest.mark.parametrize("name", ["reuse", "conv_pool", "concatenation"])
def test_groups_can_be_replaced(name: str, run: Run) -> None:
    graph = graph_of(name)
    parts = searched(graph, groups=True)
    assert parts
    check(run, name, stitched(graph, parts, twins(graph, parts, EntryPoint.FUNCTION)))


def test_a_winner_that_computes_something_else_shows(run: Run) -> None:
    graph = graph_of("linear_layernorm_gelu")
    parts = searched(graph, groups=False)
    wrong = {name: source.replace("0.7071067811865476", "0.5") for name, source in _model_twins(graph, parts).items()}
    with pytest.raises(AssertionError):
        check(run, "linear_layernorm_gelu", stitched(graph, parts, wrong))


def test_a_winner_with_other_strides_is_told_not_copied(run: Run) -> None:
    graph = graph_of("linear_layernorm_gelu")
    parts = searched(graph, groups=False)
    turned = {
        name: source.replace("return buf5", "return buf5.t().t()[:, ::1].t()")
        for name, source in _model_twins(graph, parts).items()
    }
    with pytest.raises(RuntimeError, match="expected shape"):
        check(run, "linear_layernorm_gelu", stitched(graph, parts, turned))


def _model_twins(graph: Graph, parts: list[Part]) -> dict[str, str]:
    return twins(graph, parts, EntryPoint.MODEL)


def test_the_file_needs_torch_and_triton_alone() -> None:
    graph = graph_of("attention")
    source = stitched(graph, [], {}, "attention: no part replaced.")
    imports = [line for line in source.splitlines() if line.startswith(("import ", "from "))]
    assert all(line.split()[1].split(".")[0] in ("torch", "triton") for line in imports)
    assert "_inductor" not in source and source.startswith('"""attention')


def test_a_stitched_model_is_legal_by_the_static_gate() -> None:
    gate = check_policy(stitched(graph_of("attention"), [], {}), "ModelNew", ["aten.mm", "aten.addmm", "aten.bmm"])
    assert gate.passed, gate.reason


def test_memory_that_a_winner_brings_is_not_allocated_again() -> None:
    graph = graph_of("sorted")
    parts = searched(graph, groups=False)
    source = stitched(graph, parts, twins(graph, parts, EntryPoint.MODEL))
    forward = source[source.index("class ModelNew") :]
    assert "empty_strided" not in forward


def test_two_winners_for_one_launch_are_refused() -> None:
    graph = graph_of("conv_pool")
    parts = [*searched(graph, groups=False), *searched(graph, groups=True)]
    with pytest.raises(DecompositionError, match="share a launch"):
        stitched(graph, parts, twins(graph, parts, EntryPoint.MODEL))


def test_names_of_two_programs_do_not_meet() -> None:
    source = (
        '"""Doc."""\nimport torch\nBLOCK = 4\n\ndef half(n, BLOCK=BLOCK):\n    return n // BLOCK\n\n'
        "class ModelNew:\n    size = BLOCK\n\n"
        "    def forward(self, x):\n        half = x\n        return half, BLOCK\n\n"
        "    def other(self):\n        return half(4, BLOCK=2)\n"
    )
    piece = embedded(source, "a_")
    space: dict[str, Any] = {}
    exec(piece.body, space)
    assert piece.imports == ("import torch",)
    model = space["a_ModelNew"]()
    assert model.forward(1) == (1, 4) and model.other() == 2 and model.size == 4
    assert {n for n in space if not n.startswith("__")} == {"a_BLOCK", "a_half", "a_ModelNew"}


def test_a_program_that_does_something_when_it_is_imported_is_refused() -> None:
    with pytest.raises(DecompositionError, match="line 1"):
        embedded("print(1)\n", "a_")


def test_libraries_are_called_by_their_names_in_torch() -> None:
    text = "extern_kernels.bias_addmm(reinterpret_tensor(a, (4, 8), (0, 1), 0), b, c, alpha=1, beta=1, out=d)"
    assert as_torch(text) == "torch.addmm(a.as_strided((4, 8), (0, 1))[0], b, c, alpha=1, beta=1, out=d)"
    shifted = as_torch("extern_kernels.mm(reinterpret_tensor(a, (4, 8), (8, 1), 32), b, out=c)")
    assert "a.as_strided((4, 8), (8, 1), a.storage_offset() + 32)" in shifted
    with pytest.raises(DecompositionError, match="mm_plus_mm"):
        as_torch("extern_kernels._mm_plus_mm(a, b, c, d, out=e)")


@pytest.mark.parametrize(
    "held",
    [
        torch.arange(6.0).reshape(2, 3).t(),
        torch.tensor([[0.0, -torch.inf], [torch.nan, torch.inf]]),
        torch.tensor([True, False])[1:],
        torch.tensor(3),
    ],
)
def test_a_value_beside_the_weights_is_written_with_its_layout(held: Tensor) -> None:
    """Kernels read it by the strides that it had when they were compiled."""
    argument = Argument.model_validate(json.loads(json.dumps(fixed_value(held).model_dump(mode="json"))))
    graph = graph_of("mlp")
    changed = graph.model_copy(update={"arguments": (argument, *graph.arguments[1:])})
    found = load_module(stitched(changed, [], {}), "stitched_with_value").ModelNew().value_0
    torch.testing.assert_close(found, held, rtol=0, atol=0, equal_nan=True)
    assert (found.dtype, found.stride()) == (held.dtype, held.stride())


def test_a_value_whose_elements_overlap_or_lie_apart_is_refused() -> None:
    for held in (torch.ones(3).expand(2, 3), torch.ones(4, 4)[:, :2]):
        with pytest.raises(DecompositionError, match="overlap or lie apart"):
            fixed_value(held)


def test_weights_have_the_names_of_the_state_dict() -> None:
    model, _ = model_and_inputs("mlp")
    spec = graph_of("mlp").weights[0].spec
    names = ["a.0.w", "a.1.w", "a.named.w", "b", "c.d.e"]
    lines = constructor_lines([Weight(name=n, spec=spec, kind="buffer") for n in names])
    space: dict[str, Any] = {"torch": torch, "nn": torch.nn, "self": torch.nn.Module()}
    for line in lines:
        exec(line, space)
    assert list(space["self"].state_dict()) == sorted(names, key=lambda n: n != "b")
    assert all(eval(attribute(n), space).shape == spec.shape for n in names)
    assert attribute("a.0.w") == "self.a['0'].w"
    assert list(model.state_dict()) == [w.name for w in graph_of("mlp").weights]
