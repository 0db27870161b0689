"""Taking a model apart, in a process that has the GPU. Trusted code: the model is the user's own.

Started as `python -P -m evaluators.decomposition.job REQUEST ANSWER`, two files of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves

from db.errors import DeviceError, EvolveError
from db.hashing import content_hash
from db.records import EntryPoint, PrecisionClass, Problem
from evaluators.decomposition.algebra import NotExported, Simplified, simplified
from evaluators.decomposition.binding import answer_text, argument_of, constants_of, is_cuda, weights_of
from evaluators.decomposition.capture import Captured, CapturedGraph, capture
from evaluators.decomposition.classify import SMALL_SHARE
from evaluators.decomposition.configurations import configuration_of, configurations
from evaluators.decomposition.convolutions import biasless, laid_out
from evaluators.decomposition.errors import DecompositionError
from evaluators.decomposition.floors import efficiency_of
from evaluators.decomposition.flow import Flow
from evaluators.decomposition.output import read_output
from evaluators.decomposition.parts import Part, group_parts, refusal, single_parts
from evaluators.decomposition.problems import Sample, part_problem
from evaluators.decomposition.records import Decomposition, Graph, LeftAlone, PartProblem, Share
from evaluators.decomposition.references import aten_code
from evaluators.decomposition.replay import Replay
from evaluators.decomposition.scans import with_loops
from evaluators.decomposition.steps import Configuration, Output
from evaluators.decomposition.unwrap import unwrapped
from evaluators.hardware import detect_hardware
from evaluators.precision import apply_precision
from evaluators.problems.degenerate import degeneracy_of
from evaluators.problems.module import load_module
from evaluators.problems.reference import Reference
from evaluators.versions import software_versions

Seen = TypeVar("Seen")

INPUTS_SEED = 0
OUT_OF_MEMORY = "the GPU ran out of memory"
RTOL = ATOL = 1e-3  # of a part's first program and its reference against Inductor's kernels

NOTES = (
    "the model is in evaluation mode and only its forward is taken apart",
    "shapes are fixed to those of the full workload",
)


def decompose_here(problem: Problem, way: str, precision: PrecisionClass, folder: Path) -> Decomposition:
    """Takes a model apart in this process.

    Args:
        problem: a KernelBench-style one.
        way: of compiling: "compile" or "max-autotune".
        folder: where weights that part problems read are kept.
    """
    apply_precision(precision)
    reference = Reference(problem, problem.full)
    model = reference.model("cuda")
    assert isinstance(model, nn.Module)
    inputs = reference.draw_inputs(INPUTS_SEED, "cuda")
    known: dict[str, Any] = {"problem": problem, "versions": software_versions(), "degenerate": _degeneracy(reference)}
    known["notes"], lean = NOTES, None
    try:
        lean = without_needless_work(model, inputs)
    except NotExported as error:
        known["notes"] = (*NOTES, f"needless work was not looked for: {error}")
    if lean is not None:
        found = made_of(problem, lean.model, model, inputs, way, folder)
        if "graph" in found:
            return Decomposition(**known, **found, left_out=lean.left_out)
    return Decomposition(**known, **made_of(problem, model, model, inputs, way, folder))


def without_needless_work(model: nn.Module, inputs: Sequence[Any]) -> Simplified | None:
    """The module with less to do, where it answers the same to these inputs, and both answers fit in memory.

    Raises:
        NotExported: nobody can say what it does.
    """
    try:
        with torch.no_grad():  # first: what a module keeps from its first call must be no tensor of torch.export
            expected = model(*inputs)
        found = simplified(model, inputs)
        return found if found is not None and _answers(found.model, inputs, expected) else None
    except torch.OutOfMemoryError:
        return None
    finally:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _answers(model: nn.Module, inputs: Sequence[Any], expected: Any) -> bool:
    """Whether a model answers what is expected, in the same containers and with the same values between its tensors."""
    answers: list[Any] = []

    def answering(*given: Any) -> Any:
        answers.append(model(*given))
        return answers[0]

    tensors = [leaf for leaf in tree_leaves(expected) if isinstance(leaf, Tensor)]
    return not disagreement(answering, inputs, tensors) and _beside_tensors(answers[0]) == _beside_tensors(expected)


def _beside_tensors(answer: Any) -> Any:
    leaves, containers = tree_flatten(answer)
    return [Tensor if isinstance(leaf, Tensor) else leaf for leaf in leaves], containers


def made_of(
    problem: Problem, asked: nn.Module, model: nn.Module, inputs: Sequence[Any], way: str, folder: Path
) -> dict[str, Any]:
    """What a module that answers as the model does is made of, or why that is not known."""
    start = time.perf_counter()
    try:
        captured = capture(asked, inputs, way)
    except Exception as error:  # compilers fail in their own ways; the module runs without
        why = (str(error).strip().splitlines() or [""])[0][:300]
        return {"reason": f"torch.compile fails: {type(error).__name__}: {why}"}
    compiled = time.perf_counter()
    found: dict[str, Any] = {"n_graphs": len(captured.graphs)}
    try:
        found |= _taken_apart(problem, captured, model, inputs, folder)
    except DecompositionError as error:
        found["reason"] = error.message
    except torch.OutOfMemoryError:
        found["reason"] = f"{OUT_OF_MEMORY} while the model was taken apart"
    return found | {"seconds": {"compile": compiled - start, "decompose": time.perf_counter() - compiled}}


def _degeneracy(reference: Reference) -> str | None:
    """None where two answers side by side do not fit: that is no reason not to take the model apart."""
    try:
        return degeneracy_of(reference, "cuda")
    except (DeviceError, torch.OutOfMemoryError):
        return None
    finally:
        torch.cuda.empty_cache()


def _taken_apart(
    problem: Problem, captured: Captured, model: nn.Module, inputs: Sequence[Any], folder: Path
) -> dict[str, Any]:
    one = _only_graph(captured)
    output = read_output(one.source)
    if not is_cuda(one.arguments):
        raise DecompositionError("the graph takes tensors of the CPU")
    namespace = one.namespace
    graph = Graph(
        output=output,
        arguments=tuple(argument_of(value, model, inputs) for value in one.arguments),
        constants=constants_of(one, output.constants),
        weights=weights_of(model),
        n_inputs=len(inputs),
        answer=answer_text(captured.answer, one.returns),
        chosen=chosen_configurations(output, namespace),
    )
    taking = Taking(problem, graph, one, namespace, folder)
    shares = taking.replay.shares()
    parts, left_alone = taking.parts(shares)
    return {
        "graph": graph,
        "shares": tuple(shares),
        "device_us": sum(share.device_us for share in shares),
        "parts": tuple(parts),
        "left_alone": tuple(left_alone),
    }


def _only_graph(captured: Captured) -> CapturedGraph:
    """The graph of a model that is one graph, with nothing of it run outside.

    Raises:
        DecompositionError: it is not, and why as far as the compiler says.
    """
    why = f": {captured.break_reasons[0].splitlines()[0][:200]}" if captured.break_reasons else ""
    if not captured.graphs:
        raise DecompositionError(f"nothing of the model was compiled{why}")
    if len(captured.graphs) > 1 or why:
        pieces = "one graph and more" if len(captured.graphs) == 1 else f"{len(captured.graphs)} graphs"
        raise DecompositionError(f"the model falls into {pieces}{why}")
    return captured.graphs[0]


def chosen_configurations(output: Output, namespace: Mapping[str, Any]) -> dict[str, Configuration]:
    """What Inductor launches: the configuration that its tuning chose, else the first that it would try."""
    chosen = {}
    for name, kernel in output.kernels.items():
        launchers = getattr(namespace.get(name), "launchers", None)
        config = getattr(launchers[0], "config", None) if launchers else None
        chosen[name] = configurations(kernel)[0] if config is None else configuration_of(config, kernel)
    return chosen


def nodes_of(output: Output, captured: CapturedGraph) -> tuple[dict[str, str], dict[str, str]]:
    """The nodes of the ATen graph whose values buffers hold, and the convolutions of which they do but for the bias."""
    if captured.aten is None:
        return captured.buffers, {}
    lacking = biasless(output, captured.aten, captured.origins)
    taken = laid_out(output, captured.aten, {**captured.buffers, **lacking})
    return {**taken, **captured.buffers}, lacking


class Taking:
    """The parts of one captured graph, each held against what Inductor's own kernels answer."""

    def __init__(
        self, problem: Problem, graph: Graph, captured: CapturedGraph, namespace: Mapping[str, Any], folder: Path
    ) -> None:
        self._problem = problem
        self._graph = graph
        self._captured = captured
        self._folder = folder
        self._weights = {
            name
            for name, argument in zip(graph.output.arguments, graph.arguments, strict=True)
            if argument.kind != "input"
        }
        loops = with_loops(graph.output)
        self.flow = Flow(loops.output)
        self._chosen = {**graph.chosen, **loops.configurations}
        self._rewritten = loops.configurations.keys()
        self._buffers, self._biasless = nodes_of(graph.output, captured)
        self.replay = Replay(Flow(graph.output), namespace, captured.arguments)

    def parts(self, shares: Sequence[Share]) -> tuple[list[PartProblem], list[LeftAlone]]:
        """Parts that are worth a search, most time first, and the others with the reason."""
        candidates = [*single_parts(self.flow), *group_parts(self.flow, {share.step: share.share for share in shares})]
        share_of = {part.name: sum(s.share for s in shares if part.first <= s.step <= part.last) for part in candidates}
        left, worth = [], []
        for part in candidates:
            reason = _too_small(share_of[part.name]) or refusal(self.flow, part)
            if reason:
                left.append(LeftAlone(name=part.name, share=share_of[part.name], reason=reason))
            else:
                worth.append(part)
        found: list[PartProblem] = []
        total_us, dram_gb_s = sum(share.device_us for share in shares), detect_hardware().dram_gb_s
        for part, answer in self._examined(worth):
            share = share_of[part.name]
            if isinstance(answer, str):
                left.append(LeftAlone(name=part.name, share=share, reason=answer))
            else:
                its = PartProblem(
                    part=part,
                    problem=answer,
                    share=share,
                    reference="aten" if answer.kind == "kernelbench" else "kernel",
                    efficiency=efficiency_of(part, share * total_us, dram_gb_s),
                    is_rewritten=not self._rewritten.isdisjoint(part.kernels),
                )
                found.append(its)
        return sorted(found, key=lambda p: -p.share), left

    def _examined(self, parts: Sequence[Part]) -> list[tuple[Part, Problem | str]]:
        """Every part's problem, or why there is none; all in one replay."""
        given: dict[str, list[Tensor] | None] = {}
        answers: list[tuple[Part, Problem | str]] = []

        def before(index: int, scope: dict[str, Any]) -> None:
            for part in (p for p in parts if p.first == index):
                given[part.name] = _if_it_fits(partial(self.replay.inputs, part, scope))

        def after(index: int, scope: dict[str, Any]) -> None:
            for part in (p for p in parts if p.last == index):
                inputs = given.pop(part.name)
                answer = None if inputs is None else _if_it_fits(partial(self._answer, part, inputs, scope))
                answers.append((part, answer or f"{OUT_OF_MEMORY} when it was looked at"))

        self.replay.run(before, after)
        return answers

    def _answer(self, part: Part, inputs: list[Tensor], scope: Mapping[str, Any]) -> Problem | str:
        return self._problem_of(part, inputs, self.replay.outputs(part, scope))

    def _problem_of(self, part: Part, inputs: list[Tensor], outputs: list[Tensor]) -> Problem | str:
        """A part's problem with the strongest reference that agrees with Inductor's kernels on the real inputs."""
        code = self._aten_code(part)
        if code is not None and disagreement(_reference(code), inputs, outputs):
            code = None
        entry = EntryPoint.MODEL if code is not None else EntryPoint.FUNCTION
        try:
            seed = unwrapped(self.flow, part, self._chosen, entry)
        except DecompositionError as error:
            return error.message
        if wrong := disagreement(_program(seed, entry), inputs, outputs):
            return f"as plain Triton it does not do the same: {wrong}"
        names = [tensor.name for tensor in part.inputs]
        weights = [name for name in names if name in self._weights]
        held = dict(zip(names, inputs, strict=True))
        return part_problem(
            f"{self._problem.name}/{part.name}",
            part,
            code=code,
            seed=seed,
            samples={name: sample_of(tensor) for name, tensor in held.items()},
            weights=weights,
            weights_file=self._kept({name: held[name] for name in weights}) if weights else "",
        )

    def _aten_code(self, part: Part) -> str | None:
        aten = self._captured.aten
        return None if aten is None else aten_code(aten, self._buffers, part, self._biasless)

    def _kept(self, weights: dict[str, Tensor]) -> str:
        """A file with the weights that a part reads. Its name follows from the model and the part's weights."""
        name = content_hash(self._problem.problem_id, *sorted(weights))
        self._folder.mkdir(parents=True, exist_ok=True)
        path = (self._folder / f"{name}.pt").resolve()
        torch.save({key: value.cpu() for key, value in weights.items()}, path)
        return str(path)


def _if_it_fits(look: Callable[[], Seen]) -> Seen | None:
    """What a look at tensors finds; None where they leave no memory for it."""
    try:
        return look()
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return None


def _too_small(share: float) -> str:
    return f"it takes {share:.1%} of device time" if share < SMALL_SHARE else ""


def sample_of(tensor: Tensor) -> Sample:
    """Mean, spread and range of a tensor's finite values."""
    values = tensor.double()
    values = values[values.isfinite()]
    if not values.numel():
        return Sample(0.0, 0.0, 0.0, 0.0)
    spread = float(values.std(correction=0))
    return Sample(float(values.mean()), spread, float(values.min()), float(values.max()))


def _reference(code: str) -> Any:
    module = load_module("import torch\nfrom torch import device\nfrom math import inf, nan\n" + code, "part_reference")
    return lambda *inputs: module.forward(None, *inputs)


def _program(source: str, entry: EntryPoint) -> Any:
    """A program's function; a program that does not even load says so when it is called."""

    def call(*inputs: Any) -> Any:
        module = load_module(source, "part_program")
        return module.ModelNew()(*inputs) if entry is EntryPoint.MODEL else module.kernel_function(*inputs)

    return call


def disagreement(function: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> str:
    """How a function's answers differ from what is expected, or the empty string."""
    try:
        with torch.no_grad():
            found = [leaf for leaf in tree_leaves(function(*inputs)) if isinstance(leaf, Tensor)]
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    except Exception as error:  # generated code fails in its own ways; the part is left alone
        return f"{type(error).__name__}: {str(error).strip()[:300]}"
    if len(found) != len(outputs):
        return f"{len(found)} outputs, {len(outputs)} are expected"
    for index, (one, other) in enumerate(zip(found, outputs, strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"output {index} is {one.dtype} of {tuple(one.shape)}, not {other.dtype} of {tuple(other.shape)}"
        if not torch.allclose(one.double(), other.double(), rtol=RTOL, atol=ATOL, equal_nan=True):
            return f"output {index} differs by up to {float((one.double() - other.double()).abs().max()):.3g}"
    return ""


def main() -> None:
    """Reads a request, writes the decomposition or the error that the user can mend."""
    request = json.loads(Path(sys.argv[1]).read_text())
    problem = Problem.model_validate(request["problem"])
    try:
        decomposition = decompose_here(
            problem, request["way"], PrecisionClass(request["precision"]), Path(request["folder"])
        )
        answer: dict[str, Any] = {"decomposition": decomposition.model_dump(mode="json")}
    except EvolveError as error:
        answer = {"error": type(error).__name__, "message": error.message, "hint": error.hint}
    Path(sys.argv[2]).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
