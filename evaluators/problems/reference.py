"""The reference of a problem at one workload: its inputs, its weights and what it answers. Runs trusted code here.

Float64 answers are for the model gate. What a standalone Triton file computes without a GPU, the Triton interpreter
computes, in a process of its own unless this one already interprets.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from db.errors import ProblemError
from db.records import Problem, TensorSpec, Workload
from evaluators.problems.devices import on_device, seeded, strict_math
from evaluators.problems.interpreted import InterpretedFunction
from evaluators.problems.layouts import laid_out
from evaluators.problems.module import load_module, telling_faults
from evaluators.problems.sizes import with_sizes
from evaluators.problems.variants import Variant, varied
from evaluators.problems.widening import follows_inputs

InputSpec = TensorSpec | int | float | bool | str | None

CONSTRUCTION_SEED = 0  # candidates are built under the same seed


class Reference:
    """What a problem asks at one workload. Inputs depend on the seed alone, weights on nothing."""

    def __init__(self, problem: Problem, workload: Workload) -> None:
        """
        Raises:
            ProblemError: the file cannot be run as a module.
        """
        self.problem = problem
        self.workload = workload
        name = f"problem_{problem.problem_id}_{workload.name}".replace("-", "_")
        self._source = with_sizes(problem.source, workload.sizes)
        self._is_function = problem.kind == "triton"
        self._models: dict[tuple[str, torch.dtype | None], Callable[..., Any]] = {}
        with self._telling("reading the file"), on_device("cpu", is_default=False):
            self._module = load_module(self._source, name)

    # ------------------------------------------------------------------------------------------------------- inputs

    def init_args(self) -> list[Any]:
        """The arguments of `Model`; none for a standalone Triton file."""
        if self._is_function:
            return []
        with self._telling("get_init_inputs"), seeded(CONSTRUCTION_SEED), on_device("cpu", is_default=False):
            return list(self._module.get_init_inputs())

    def input_specs(self) -> list[InputSpec]:
        """Shapes, dtypes and strides of the tensors among the inputs, the other inputs as they are.

        Nothing is allocated, unless the file reads values of the tensors that it makes: then they are drawn.
        """
        with self._telling("get_inputs"):
            return [_spec(value) for value in self._fake_inputs()]

    def output_specs(self) -> list[TensorSpec]:
        """Shapes, dtypes and strides of the outputs; allocates as little as `input_specs` for a `Model`."""
        with self._telling("forward"):
            outputs = self._fake_outputs()
        return [_tensor_spec(output) for output in outputs]

    def watched_by(self, mode: TorchDispatchMode) -> list[Tensor]:
        """Runs the forward of a `Model` once on fake tensors, inside a mode that sees every operation.

        Raises:
            ProblemError: fake tensors cannot run it.
        """
        with self._telling("forward on fake tensors"):
            arguments = self.init_args()
            with FakeTensorMode(), seeded(CONSTRUCTION_SEED), on_device("cpu", is_default=True), torch.no_grad():
                model, inputs = self._module.Model(*arguments).eval(), self._module.get_inputs()
                with mode:
                    outputs = model(*inputs)
        return [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]

    def weight_specs(self) -> list[TensorSpec]:
        """Shapes, dtypes and strides of the weights of `Model`. Allocates nothing."""
        if self._is_function:
            return []
        with self._telling("Model(*get_init_inputs())"):
            arguments = self.init_args()
            with FakeTensorMode(), seeded(CONSTRUCTION_SEED), on_device("cpu", is_default=False):
                state = self._module.Model(*arguments).state_dict()
        return [_tensor_spec(weight) for weight in state.values()]

    def draw_inputs(self, seed: int, device: str, variant: Variant = "plain", *, is_any_free: bool = True) -> list[Any]:
        """Inputs as `get_inputs` makes them from a seed, on a device; the same bits every time on one device.

        Args:
            seed: of torch's, numpy's and Python's generators.
            device: "cpu", "cuda", "cuda:1".
            variant: what is made of floating tensors (see `variants.varied`); other inputs stay.
            is_any_free: whether every floating tensor counts as free; else those with both signs.
        """
        with self._telling("get_inputs"), torch.no_grad():
            with seeded(seed, device), on_device(device, is_default=True):
                inputs = list(self._module.get_inputs())
            inputs = [value.to(device) if isinstance(value, Tensor) else value for value in inputs]
            inputs = varied(inputs, variant, seed, is_any_free=is_any_free)
            return [laid_out(value, self.workload.layout) for value in inputs]

    # ---------------------------------------------------------------------------------------------------- reference

    def weights(self, device: str) -> dict[str, Tensor]:
        """The state of `Model`, as it makes it under a fixed seed: on every device the same values."""
        model = self.model(device)
        return dict(model.state_dict()) if isinstance(model, nn.Module) else {}

    def model(self, device: str) -> Callable[..., Any]:
        """What takes the inputs: the `Model` with its weights in evaluation mode, or `kernel_function`."""
        return self._model(device, None)

    def expected(self, inputs: Sequence[Any]) -> list[Tensor]:
        """What the reference answers: always a flat list of tensors.

        Raises:
            ProblemError: it raises, changes its inputs, or draws random numbers.
        """
        return self._run(inputs, None)

    def expected_float64(self, inputs: Sequence[Any]) -> list[Tensor]:
        """The same with floating inputs and weights in float64. An output that is not float64 was not computed so.

        Raises:
            ProblemError: it cannot run in float64, or is a Triton function that fixes types of its own.
        """
        if self._is_function and not follows_inputs(self._source):
            raise ProblemError(f"problem {self.problem.name!r}: its kernels compute in the types that they name")
        return self._run([_widened(value) for value in inputs], torch.float64)

    # ------------------------------------------------------------------------------------------------------ details

    def _telling(self, doing: str) -> Any:
        return telling_faults(self.problem.name, doing)

    def _model(self, device: str, dtype: torch.dtype | None) -> Callable[..., Any]:
        key = (str(torch.device(device)), dtype)
        if key not in self._models:
            with self._telling("Model(*get_init_inputs())"):
                self._models[key] = self._function(device) if self._is_function else self._module_on(device, dtype)
        return self._models[key]

    def _function(self, device: str) -> Callable[..., Any]:
        if torch.device(device).type == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
            return InterpretedFunction(self._source)
        function: Callable[..., Any] = self._module.kernel_function
        return function

    def _module_on(self, device: str, dtype: torch.dtype | None) -> nn.Module:
        if dtype is not None:
            return copy.deepcopy(self._models[str(torch.device(device)), None]).to(dtype)  # type: ignore[attr-defined]
        return self._new_model(device).to(device).eval().requires_grad_(False)

    def _new_model(self, device: str) -> nn.Module:
        """A model with its weights on the CPU, except those whose file says "cuda"."""
        arguments = self.init_args()
        with seeded(CONSTRUCTION_SEED, device), on_device(device, is_default=False):
            model = self._module.Model(*arguments)
        if not isinstance(model, nn.Module):
            raise TypeError(f"Model must be a torch.nn.Module, it makes a {type(model).__name__}")
        return model

    def _run(self, inputs: Sequence[Any], dtype: torch.dtype | None) -> list[Tensor]:
        device = next((str(v.device) for v in inputs if isinstance(v, Tensor)), "cpu")
        self._model(device, None)
        model = self._model(device, None if self._is_function else dtype)
        with self._telling("forward"), torch.no_grad(), strict_math(), on_device(device, is_default=False):
            outputs = self._watched(model, inputs, device)
        return [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]

    def _watched(self, model: Callable[..., Any], inputs: Sequence[Any], device: str) -> Any:
        """The model's answer; refuses one that no program could be held to."""
        before, versions = _random_state(device), _versions(inputs)
        outputs = model(*inputs)
        name = self.problem.name
        if _versions(inputs) != versions:
            raise ProblemError(f"problem {name!r}: its reference changes its inputs", "let forward work on a clone")
        if not torch.equal(_random_state(device), before):
            raise ProblemError(
                f"problem {name!r}: its reference draws random numbers", "make them in get_inputs instead"
            )
        return outputs

    def _fake_inputs(self) -> list[Any]:
        try:
            with FakeTensorMode(), seeded(CONSTRUCTION_SEED), on_device("cpu", is_default=True):
                return list(self._module.get_inputs())
        except (RuntimeError, NotImplementedError):  # it reads values: torch's fake tensors have none
            return self.draw_inputs(CONSTRUCTION_SEED, "cpu")

    def _fake_outputs(self) -> list[Tensor]:
        if self._is_function:
            return self.expected(self.draw_inputs(CONSTRUCTION_SEED, "cuda" if torch.cuda.is_available() else "cpu"))
        arguments = self.init_args()
        with FakeTensorMode(), seeded(CONSTRUCTION_SEED), on_device("cpu", is_default=True), torch.no_grad():
            outputs = self._module.Model(*arguments).eval()(*self._module.get_inputs())
        return [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]


def _tensor_spec(tensor: Tensor) -> TensorSpec:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return TensorSpec(shape=tuple(tensor.shape), dtype=dtype, strides=tuple(tensor.stride()))


def _spec(value: Any) -> InputSpec:
    if isinstance(value, Tensor):
        return _tensor_spec(value)
    if value is None or isinstance(value, int | float | bool | str):
        return value
    raise TypeError(f"get_inputs must return tensors, numbers, text or None, got {type(value).__name__}")


def _widened(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def _versions(inputs: Sequence[Any]) -> list[int]:
    return [value._version for value in inputs if isinstance(value, Tensor)]


def _random_state(device: str) -> Tensor:
    where = torch.device(device)
    return torch.cuda.get_rng_state(where) if where.type == "cuda" else torch.get_rng_state()
