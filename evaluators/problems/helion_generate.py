"""What Helion generates for the kernels of a file. Needs Helion; the user's code is run here, in a process of its own.

Started by `aside.ask` as `python -P -m evaluators.problems.helion_generate`. On a machine without a GPU code is
generated for tensors of the CPU.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from db.errors import ProblemError
from evaluators.problems.aside import serve
from evaluators.problems.devices import on_device, seeded
from evaluators.problems.files import SourceFile
from evaluators.problems.helion_files import HelionFile
from evaluators.problems.interpreted import InterpretedFunction
from evaluators.problems.module import load_module, telling_faults
from evaluators.problems.sizes import Number, with_sizes
from evaluators.tolerances import tolerance_table

_SEED = 0
_GIVE_ONE = "define reference(*inputs) or Model in the file, in PyTorch"
Texts = dict[str, str]  # generated, by kernel


class _Recorded(Exception):  # noqa: N818
    """The kernel was called: nothing after it is needed."""


class _Recorder:
    """Stands for a kernel: keeps the arguments of its calls, and answers as Helion's eager mode does."""

    def __init__(self, kernel: Any, *, answers: bool) -> None:
        self.kernel, self._answers = kernel, answers
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        bound = inspect.signature(self.kernel.fn).bind(*arguments, **named)
        bound.apply_defaults()
        self.calls.append(bound.args)
        if not self._answers:
            raise _Recorded
        return _eager(self.kernel)(*bound.args)


def generated(question: dict[str, Any]) -> dict[str, Any]:
    """The texts for the timed sizes, a set for each configuration; `fits_small` says whether they serve the small ones.

    Raises:
        ProblemError: the file cannot be run, Helion refuses a kernel, or its eager mode answers something else.
    """
    wanted = HelionFile(SourceFile(question["source"], question["label"]), *question["form"])
    full, small, name = question["full"], question["small"], question["label"]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with telling_faults(name, "generating Triton with Helion"):
        programs = _programs(wanted, full, device, dynamic=full != small)
        fits_small = full == small or programs == _programs(wanted, small, device, dynamic=True, like=programs)
        if not fits_small:
            programs = _programs(wanted, full, device, dynamic=False)
        texts = [{kernel: text for kernel, (text, _) in program.items()} for program in programs]
        if wanted.kind == "triton":
            _check_against_eager(wanted, texts[0], small if fits_small else full, device)
    return {"programs": texts, "fits_small": fits_small}


def _programs(
    wanted: HelionFile,
    sizes: Mapping[str, Number],
    device: str,
    *,
    dynamic: bool,
    like: Sequence[Mapping[str, tuple[str, Any]]] = (),
) -> list[dict[str, tuple[str, Any]]]:
    """Text and configuration of each kernel, for one configuration after the other.

    Args:
        dynamic: whether one text is to serve several shapes, whatever the kernel says.
        like: programs whose configurations are used again.
    """
    module, inputs = _loaded(wanted, sizes, device)
    called = _called(wanted, module, inputs, device)
    texts: dict[str, list[tuple[str, Any]]] = {}
    for name, (kernel, arguments) in called.items():
        if dynamic:
            kernel.settings.static_shapes = False
        bound = kernel.bind(arguments[0])
        used = [program[name][1] for program in like] or kernel.configs or [bound.config_spec.default_config()]
        texts[name] = [(bound.to_triton_code(config), config) for config in used]
        others = [kernel.bind(more).to_triton_code(used[0]) for more in arguments[1:]]
        if any(other != texts[name][0][0] for other in others):
            message = f"{wanted.file.label}: {name} is called with arguments that need different code"
            raise ProblemError(message, "set static_shapes=False, or call it once")
    n_programs = max(map(len, texts.values()))
    return [{name: found[min(n, len(found) - 1)] for name, found in texts.items()} for n in range(n_programs)]


def _loaded(wanted: HelionFile, sizes: Mapping[str, Number], device: str) -> tuple[ModuleType, list[Any]]:
    with on_device(device, is_default=False):
        module = load_module(with_sizes(wanted.file.text, sizes), "problem_helion")
    with seeded(_SEED, device), on_device(device, is_default=True), torch.no_grad():
        inputs = list(module.get_inputs())
    return module, [value.to(device) if isinstance(value, Tensor) else value for value in inputs]


def _called(
    wanted: HelionFile, module: ModuleType, inputs: Sequence[Any], device: str
) -> dict[str, tuple[Any, list[tuple[Any, ...]]]]:
    """The kernels that the entry point calls, with the arguments of each call."""
    recorders = {name: _Recorder(getattr(module, name), answers=not wanted.is_called_alone) for name in wanted.kernels}
    vars(module).update(recorders)
    function = _entry_of(wanted, module, device)
    with torch.no_grad(), on_device(device, is_default=False), contextlib.suppress(_Recorded):
        function(*inputs)
    called = {name: (recorder.kernel, recorder.calls) for name, recorder in recorders.items() if recorder.calls}
    if not called:
        raise ProblemError(f"{wanted.file.label}: {wanted.entry_point} calls no Helion kernel", "let it call one")
    return called


def _entry_of(wanted: HelionFile, module: ModuleType, device: str) -> Callable[..., Any]:
    if wanted.kind == "triton":
        function: Callable[..., Any] = module.kernel_function
        return function
    arguments = list(module.get_init_inputs())
    if wanted.is_called_alone:
        with FakeTensorMode():
            weights = list(module.Model(*arguments).state_dict())
        if weights:
            hint = "add a ModelNew that has them and passes them to the kernel"
            raise ProblemError(f"{wanted.file.label}: Model has weights ({weights[0]}), the kernel gets none", hint)
    with seeded(_SEED, device), on_device(device, is_default=False):
        model = module.ModelNew(*arguments)
    return model.to(device).eval() if isinstance(model, nn.Module) else partial(model)


def _eager(kernel: Any) -> Callable[..., Any]:
    """The kernel in Helion's eager mode: tiles are whole tensors, and torch computes."""
    helion = importlib.import_module("helion")
    answer: Callable[..., Any] = helion.kernel(kernel.fn, ref_mode=helion.RefMode.EAGER)
    return answer


def _check_against_eager(wanted: HelionFile, texts: Texts, sizes: Mapping[str, Number], device: str) -> None:
    """Holds the program that is to be its own reference to what its kernels say.

    Raises:
        ProblemError: they differ by more than the table of tolerances, or the eager mode cannot run a kernel.
    """
    module, inputs = _loaded(wanted, sizes, device)
    for name in wanted.kernels:
        setattr(module, name, _eager(getattr(module, name)))
    with torch.no_grad(), on_device(device, is_default=False):
        try:
            expected = _tensors(module.kernel_function(*_copies(inputs)))
        except Exception as cause:  # whatever Helion's eager mode cannot do
            said = (str(cause).strip().splitlines() or [""])[0][:200]
            message = f"{wanted.file.label}: Helion's eager mode cannot run it: {type(cause).__name__}: {said}"
            raise ProblemError(message, _GIVE_ONE) from cause
        answers = _tensors(_runnable(wanted.program(texts), device)(*_copies(inputs)))
    if len(answers) != len(expected) or not all(map(_is_near, answers, expected)):
        raise ProblemError(f"{wanted.file.label}: the generated Triton differs from Helion's eager mode", _GIVE_ONE)


def _runnable(program: str, device: str) -> Callable[..., Any]:
    if device == "cpu":
        return InterpretedFunction(program)
    function: Callable[..., Any] = load_module(program, "problem_generated").kernel_function
    return function


def _copies(values: Sequence[Any]) -> list[Any]:
    return [value.clone() if isinstance(value, Tensor) else value for value in values]


def _tensors(outputs: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]


def _is_near(answer: Tensor, expected: Tensor) -> bool:
    bound = tolerance_table().get(str(expected.dtype).removeprefix("torch."))
    if answer.shape != expected.shape or answer.dtype != expected.dtype:
        return False
    if bound is None:
        return bool(answer.equal(expected))
    return bool(torch.allclose(answer, expected, rtol=bound.rtol, atol=bound.atol, equal_nan=True))


if __name__ == "__main__":
    serve(generated)
