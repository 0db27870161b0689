"""One outcome for every model, and a cause for every fallback."""

import pytest

from db.records import Problem, Workload
from evaluators.decomposition.classify import (
    ModelOutcome,
    RootCause,
    dominant_library,
    is_product,
    outcome_of,
    whole_only,
)
from evaluators.decomposition.decompose import decompose, stitch
from evaluators.decomposition.errors import DecompositionError
from evaluators.decomposition.flow import Flow
from evaluators.decomposition.parts import single_parts
from evaluators.decomposition.records import Decomposition, Graph, PartProblem, Share
from tests.support.inductor import graph_of

PROBLEM = Problem(
    name="model",
    kind="kernelbench",
    source="class Model: pass",
    workloads=(Workload(name="full", role="full"), Workload(name="small", role="small")),
)


def taken_apart(graph: Graph | None, libraries: dict[str, float], kernels: float = 0.0) -> Decomposition:
    shares = [
        Share(step=i, name=n, device_us=1.0, share=s, is_extern=True) for i, (n, s) in enumerate(libraries.items())
    ]
    shares.append(Share(step=99, name="triton_k", device_us=1.0, share=kernels, is_extern=False))
    parts = ()
    if graph is not None and graph.output.launches:
        part = single_parts(Flow(graph.output))[0]
        parts = (PartProblem(part=part, problem=PROBLEM, share=kernels, reference="aten"),)
    return Decomposition(problem=PROBLEM, graph=graph, shares=tuple(shares), parts=parts)


def test_a_model_of_products_alone_is_tried_as_a_whole() -> None:
    found = whole_only(taken_apart(graph_of("mlp"), {"extern_kernels.addmm": 0.9, "extern_kernels.mm": 0.06}, 0.04))
    assert found is not None and found[0] is RootCause.GEMM and "96.0%" in found[1]


def test_a_model_of_convolutions_says_so() -> None:
    decomposition = taken_apart(graph_of("conv_pool"), {"extern_kernels.convolution": 0.9, "aten.mm": 0.07}, 0.03)
    assert dominant_library(decomposition) is RootCause.CONVOLUTION
    assert whole_only(decomposition) is not None


def test_a_model_with_kernels_is_searched_in_parts() -> None:
    assert whole_only(taken_apart(graph_of("mlp"), {"extern_kernels.mm": 0.94}, 0.06)) is None


def test_a_model_without_kernels() -> None:
    graph = graph_of("mlp")
    bare = graph.model_copy(update={"output": graph.output.model_copy(update={"steps": graph.output.externs})})
    found = whole_only(taken_apart(bare, {"aten._cudnn_rnn": 1.0}))
    assert found == (RootCause.NO_KERNELS, "all of the time goes to aten._cudnn_rnn")


def test_a_model_that_was_not_taken_apart_keeps_its_reason() -> None:
    whole = Decomposition(problem=PROBLEM, n_graphs=3, reason="the model falls into 3 graphs")
    assert whole_only(whole) == (RootCause.NOT_DECOMPOSED, "the model falls into 3 graphs")
    with pytest.raises(DecompositionError, match="3 graphs"):
        stitch(whole, {})


def test_a_model_of_which_nothing_is_compiled_has_no_kernels() -> None:
    whole = Decomposition(problem=PROBLEM, reason="nothing of the model was compiled: LSTM")
    assert whole_only(whole) == (RootCause.NO_KERNELS, "nothing of the model was compiled: LSTM")


@pytest.mark.parametrize(
    ("speedup", "outcome"),
    [(1.031, ModelOutcome.OPTIMIZED), (1.03, ModelOutcome.MATCHED), (0.98, ModelOutcome.MATCHED)],
)
def test_three_percent_tell_optimized_from_matched(speedup: float, outcome: ModelOutcome) -> None:
    assert outcome_of(speedup).outcome is outcome


def test_fallbacks_have_a_cause() -> None:
    slow = outcome_of(0.9)
    assert (slow.outcome, slow.cause, slow.speedup) == (ModelOutcome.FALLBACK, RootCause.SPEED, 1.0)
    assert outcome_of(None, refused_by="model").cause is RootCause.CORRECTNESS
    assert outcome_of(None, refused_by="speed").cause is RootCause.SPEED
    assert outcome_of(None, was_synthesised=False).outcome is ModelOutcome.SYNTHESIS_FAILED
    assert outcome_of(1.0, alone=(RootCause.GEMM, "why")).cause is RootCause.GEMM
    assert outcome_of(1.2, alone=(RootCause.GEMM, "why")).outcome is ModelOutcome.OPTIMIZED


def test_products_are_known_by_their_names() -> None:
    assert is_product("extern_kernels.addmm") and is_product("torch.ops.aten.bmm.default")
    assert not is_product("extern_kernels.convolution")


def test_a_decomposition_survives_the_way_between_processes() -> None:
    decomposition = taken_apart(graph_of("attention"), {"extern_kernels.mm": 0.5}, 0.5)
    again = Decomposition.model_validate_json(decomposition.model_dump_json())
    assert again == decomposition and stitch(again, {}) == stitch(decomposition, {})


def test_a_winner_for_a_part_that_is_none_is_refused() -> None:
    with pytest.raises(DecompositionError, match="part_7_7"):
        stitch(taken_apart(graph_of("mlp"), {}), {"part_7_7": "class ModelNew: pass"})


def test_a_triton_file_has_no_parts(tmp_path: object) -> None:
    from pathlib import Path

    from db.errors import ProblemError

    with pytest.raises(ProblemError, match="kernel already"):
        decompose(PROBLEM.model_copy(update={"kind": "triton"}), folder=Path(str(tmp_path)))
