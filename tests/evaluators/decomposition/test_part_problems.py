"""Parts as problems: references in ATen terms, inputs like those that the model gave, and what they refuse."""

from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from db.errors import ProblemError
from db.records import EntryPoint, TensorSpec
from evaluators.decomposition.binding import answer_text, argument_of, fixed_value
from evaluators.decomposition.capture import CapturedGraph
from evaluators.decomposition.convolutions import biasless, laid_out
from evaluators.decomposition.errors import DecompositionError
from evaluators.decomposition.flow import Flow
from evaluators.decomposition.job import nodes_of
from evaluators.decomposition.parts import Part, Tensor, single_parts
from evaluators.decomposition.problems import Sample, part_problem
from evaluators.decomposition.references import aten_code
from evaluators.decomposition.unwrap import unwrapped
from evaluators.problems.module import load_module
from evaluators.problems.reference import Reference
from tests.support.decompositions import decomposition_of
from tests.support.inductor import graph_of, model_and_inputs


def tensor(name: str, *shape: int) -> Tensor:
    return Tensor(name=name, spec=TensorSpec(shape=shape, dtype="float32", strides=torch.empty(shape).stride()))


def part(inputs: list[Tensor], outputs: list[Tensor]) -> Part:
    return Part(name="part_0_0", first=0, last=0, kernels=("k",), inputs=tuple(inputs), outputs=tuple(outputs))


def traced() -> tuple[torch.fx.GraphModule, dict[str, str]]:
    """`(x @ w).softmax(-1) * b`, and which node each buffer of an imaginary output holds."""

    def forward(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.mul.Tensor(torch.ops.aten._softmax.default(torch.ops.aten.mm.default(x, w), 1, False), b)

    graph = make_fx(forward)(torch.randn(4, 8), torch.randn(8, 6), torch.randn(6))
    made = [node.name for node in graph.graph.nodes if node.op == "call_function"]
    for node, shape in zip(graph.graph.nodes, [(4, 8), (8, 6), (6,), (4, 6), (4, 6), (4, 6)], strict=False):
        node.meta["val"] = torch.empty(shape)
    given = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
    return graph, {"buf0": made[0], "buf1": made[1], "buf2": made[2], "x": given[0], "w": given[1], "b": given[2]}


def test_a_reference_is_the_piece_of_the_graph_between_inputs_and_outputs() -> None:
    graph, buffers = traced()
    code = aten_code(graph, buffers, part([tensor("buf0", 4, 6), tensor("b", 6)], [tensor("buf2", 4, 6)]))
    assert code is not None and "_softmax" in code and "mm.default" not in code
    forward = load_module("import torch\nfrom torch import device\n" + code, "problem_piece").forward
    scores, b = torch.randn(4, 6), torch.randn(6)
    torch.testing.assert_close(forward(None, scores, b), torch.softmax(scores, 1) * b)


def test_a_piece_that_needs_more_than_its_inputs_is_none() -> None:
    graph, buffers = traced()
    assert aten_code(graph, buffers, part([tensor("buf0", 4, 6)], [tensor("buf2", 4, 6)])) is None


def test_a_step_on_the_way_to_a_node_has_no_reference() -> None:
    graph, buffers = traced()
    half_sum = part([tensor("buf0", 4, 6), tensor("b", 6)], [tensor("buf9", 4, 2)])
    other_shape = part([tensor("buf0", 24), tensor("b", 6)], [tensor("buf2", 4, 6)])
    assert aten_code(graph, buffers, half_sum) is None and aten_code(graph, buffers, other_shape) is None


def conv_graph(*, bias: bool = True) -> torch.fx.GraphModule:
    """What `conv_epilogue` asks for, in ATen terms and under the names that Inductor gave its arguments."""
    aten = torch.ops.aten

    def forward(arg0_1, arg1_1, arg2_1, arg3_1, arg4_1, arg5_1, arg6_1, arg7_1):  # type: ignore[no-untyped-def]
        last = (1, 1), (1, 1), (1, 1), False, (0, 0), 1
        inside = aten.convolution.default(arg2_1, arg0_1, arg1_1 if bias else None, *last)
        tall = [t.reshape(-1, 1, 1) for t in (arg3_1, arg4_1, arg5_1, arg6_1)]
        normal = (inside - tall[0]) * torch.rsqrt(tall[1] + 1e-5) * tall[2] + tall[3]
        return aten.max_pool2d.default(aten.add.Tensor(normal.tanh() * 1.5, arg7_1), (2, 2), (2, 2))

    arguments = [torch.empty(64, 32, 3, 3), torch.empty(64), torch.empty(64, 32, 64, 64)]
    arguments += [*(torch.empty(64) for _ in range(4)), torch.empty(64, 1, 1)]
    with FakeTensorMode(allow_non_fake_inputs=True):
        return make_fx(forward, tracing_mode="fake")(*arguments)


def test_a_convolution_without_its_bias_is_given_the_bias_in_the_reference() -> None:
    """On the H200 the library was called with `bias=None`, and the kernel after it adds the bias."""
    taken = decomposition_of("conv_epilogue")
    assert taken.graph is not None
    graph = conv_graph()
    adds = [node.name for node in graph.graph.nodes if node.name.startswith("add")]
    pooled = graph.graph.output_node().args[0].name  # type: ignore[union-attr]
    renamed = {f"arg{i}_1": node.name for i, node in enumerate(graph.graph.find_nodes(op="placeholder"))}
    buffers = {**renamed, "buf3": adds[-1], "buf4": pooled}
    origins = {"buf0": ("convolution",), "buf2": (renamed["arg2_1"], "convolution")}  # buf0 is no answer of a library
    without = biasless(taken.graph.output, graph, origins)
    assert without == {"buf2": "convolution"}
    parts = {p.part.name: p.part for p in taken.parts}
    codes = {name: aten_code(graph, buffers, parts[name], without) for name in ("part_20_28", "part_20_20")}
    assert all(code is not None and "convolution" not in code for code in codes.values())
    assert aten_code(graph, buffers, parts["part_20_28"]) is None
    module = conv_epilogue()
    x = torch.randn(2, 32, 8, 8)
    convolution, norm = module.net[0], module.net[1]
    less_bias = convolution(x) - convolution.bias.reshape(-1, 1, 1)
    given = [less_bias, convolution.bias, norm.running_mean, norm.running_var, norm.weight, norm.bias, module.bias]
    forward = load_module("import torch\n" + str(codes["part_20_28"]), "problem_piece").forward
    with torch.no_grad():
        torch.testing.assert_close(forward(None, *given), module(x), rtol=1e-4, atol=1e-5)


def test_what_is_laid_out_anew_for_a_convolution_holds_the_value_that_the_graph_gives_it() -> None:
    taken = decomposition_of("conv_epilogue")
    assert taken.graph is not None
    graph = conv_graph()
    given = [node.name for node in graph.graph.find_nodes(op="placeholder")]
    assert laid_out(taken.graph.output, graph, {"buf2": "convolution"}) == {"buf0": given[2], "buf1": given[0]}
    assert laid_out(taken.graph.output, graph, {}) == {}
    captured = CapturedGraph("", {}, graph, {"buf4": "somewhere", "buf0": "known"}, {"buf2": ("convolution",)})
    buffers = {"buf4": "somewhere", "buf0": "known", "buf1": given[0]}  # what the compiler says itself counts more
    assert nodes_of(taken.graph.output, captured) == (buffers, {"buf2": "convolution"})


def test_only_a_bias_that_was_peeled_off_is_added_in_a_reference() -> None:
    taken = decomposition_of("conv_epilogue")
    assert taken.graph is not None
    output, origins = taken.graph.output, {"buf2": ("convolution",)}
    assert biasless(output, conv_graph(bias=False), origins) == {}
    with_bias = [s.model_copy(update={"text": s.text.replace("bias=None", "bias=arg1_1")}) for s in output.steps]
    assert biasless(output.model_copy(update={"steps": tuple(with_bias)}), conv_graph(), origins) == {}


def conv_epilogue() -> torch.nn.Module:
    path = Path(__file__).parents[3] / "benchmarks" / "models" / "conv_epilogue.py"
    module: torch.nn.Module = load_module(path.read_text(), "problem_conv_epilogue").Model(32).eval()
    module.net[1].running_mean.normal_()  # type: ignore[union-attr,operator,index]
    return module


def norm_part() -> tuple[Part, str, str]:
    graph = graph_of("linear_layernorm_gelu")
    flow = Flow(graph.output)
    (one,) = single_parts(flow)
    return (
        one,
        unwrapped(flow, one, graph.chosen, EntryPoint.MODEL),
        unwrapped(flow, one, graph.chosen, EntryPoint.FUNCTION),
    )


CODE = """\
def forward(self, buf0, weight, bias):
    return torch.nn.functional.gelu(torch.nn.functional.layer_norm(buf0, (64,), weight, bias)) * 2
"""
SAMPLE = Sample(mean=0.5, spread=2.0, low=-1.0, high=3.0)


def test_a_problem_draws_activations_and_keeps_weights(tmp_path: Path) -> None:
    one, seed, _ = norm_part()
    weights = [t.name for t in one.inputs if t.name.startswith("arg")]
    held = {name: torch.randn(64) for name in weights}
    torch.save(held, tmp_path / "weights.pt")
    code = CODE.replace("weight,", f"{weights[0]},", 1).replace("bias)", f"{weights[1]})", 1)
    code = code.replace("weight, bias)", ", ".join(weights) + ")")
    problem = part_problem(
        "model/part",
        one,
        code=code,
        seed=seed,
        samples={t.name: SAMPLE for t in one.inputs},
        weights=weights,
        weights_file=str(tmp_path / "weights.pt"),
    )
    reference = Reference(problem, problem.full)
    first, second = (reference.draw_inputs(seed, "cpu") for seed in (0, 42))
    assert not torch.equal(first[0], second[0]) and first[0].min() >= -1.0 and first[0].max() <= 3.0
    assert first[0].mean().item() == pytest.approx(0.7, abs=0.3)
    assert all(torch.equal(one_input, held[name]) for one_input, name in zip(first[1:], weights, strict=True))
    assert [spec.shape for spec in reference.input_specs()] == [t.spec.shape for t in one.inputs]
    assert reference.expected_float64(first)[0].dtype == torch.float64
    assert problem.entry_point is EntryPoint.MODEL and problem.seeds == (seed,)


def test_without_a_reference_the_kernel_is_its_own() -> None:
    one, _, seed = norm_part()
    problem = part_problem("model/part", one, code=None, seed=seed, samples={t.name: SAMPLE for t in one.inputs})
    assert problem.kind == "triton" and problem.entry_point is EntryPoint.FUNCTION
    reference = Reference(problem, problem.full)
    inputs = reference.draw_inputs(0, "cpu")
    expected = torch.nn.functional.gelu(torch.nn.functional.layer_norm(inputs[0], (64,), inputs[1], inputs[2])) * 2
    torch.testing.assert_close(reference.expected(inputs)[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "check"),
    [
        ("int64", lambda t: t.min() >= -1 and t.max() <= 3 and t.unique().numel() > 1),
        ("bool", lambda t: 0 < t.float().mean() < 1),
        ("bfloat16", lambda t: t.float().std() > 0.5),
    ],
)
def test_inputs_of_every_kind_are_drawn_in_their_range_and_layout(dtype: str, check: object) -> None:
    spec = TensorSpec(shape=(8, 16), dtype=dtype, strides=(1, 8))
    one = part([Tensor(name="x", spec=spec)], [tensor("y", 8, 16)])
    code = "def forward(self, x):\n    return x.float()\n"
    problem = part_problem("p", one, code=code, seed="class ModelNew: pass", samples={"x": SAMPLE})
    (drawn,) = Reference(problem, problem.full).draw_inputs(0, "cpu")
    assert str(drawn.dtype) == f"torch.{dtype}" and drawn.stride() == (1, 8) and check(drawn)  # type: ignore[operator]


def test_weights_that_are_gone_are_an_error_of_the_problem() -> None:
    one, seed, _ = norm_part()
    samples = {t.name: SAMPLE for t in one.inputs}
    name = one.inputs[1].name
    problem = part_problem("p", one, code=CODE, seed=seed, samples=samples, weights=[name], weights_file="/gone.pt")
    with pytest.raises(ProblemError, match=r"gone\.pt"):
        Reference(problem, problem.full).draw_inputs(0, "cpu")


def test_arguments_are_found_by_their_memory() -> None:
    model, inputs = model_and_inputs("mlp")
    state = model.state_dict()
    assert argument_of(state["net.2.bias"].detach(), model, inputs).name == "net.2.bias"
    assert argument_of(inputs[0], model, inputs).kind == "input"
    model.plain = torch.tensor([1.0, 2.0])
    assert argument_of(model.plain.detach(), model, inputs).values == (1.0, 2.0)
    with pytest.raises(DecompositionError, match="neither an input nor held"):
        argument_of(torch.tensor([1.0, 2.0]), model, inputs)
    with pytest.raises(DecompositionError, match="outside of its state dict"):
        fixed_value(torch.zeros(5000))


def test_answers_keep_their_structure() -> None:
    one, two = torch.randn(3), torch.randn(4)
    text = answer_text({"a": one, "b": [two, 3, None]}, [two, one])
    assert eval(text.format("x", "y"), {"x": "X", "y": "Y"}) == {"a": "Y", "b": ["X", 3, None]}
    with pytest.raises(DecompositionError, match="does not return"):
        answer_text(torch.randn(3), [one, two])
