"""A part as a problem: a reference, inputs like those that the model gave it, and a first program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from db.records import Problem, Workload
from evaluators.decomposition.parts import Part, Tensor

_DRAW = '''def draw(shape, strides, dtype, mean, spread, low, high):
    """A tensor like one that the model made: the same mean, spread and range."""
    if dtype == torch.bool:
        values = torch.rand(shape) < mean
    elif dtype.is_floating_point:
        values = (torch.randn(shape) * spread + mean).clamp(low, high)
    else:
        values = torch.randint(int(low), int(high) + 1, shape)
    tensor = torch.empty_strided(shape, strides, dtype=dtype)
    tensor.copy_(values)
    return tensor
'''


class Sample(NamedTuple):
    """What the values of a tensor were like when the model ran. Infinite ones are left out."""

    mean: float
    spread: float
    low: float
    high: float


def part_problem(
    name: str,
    part: Part,
    *,
    code: str | None,
    seed: str,
    samples: Mapping[str, Sample],
    weights: Sequence[str] = (),
    weights_file: str = "",
) -> Problem:
    """The problem of a part.

    Args:
        name: of the problem: "my_model/part_3_3".
        code: `def forward(self, ...)` in ATen operations; without it, the seed is its own reference.
        seed: the first program; it defines `ModelNew` with `code`, else `kernel_function`.
        samples: of every input, by name.
        weights: inputs that are weights of the model: they are read from `weights_file`, the others are drawn.
        weights_file: a file of `torch.save` with a tensor for each of `weights`.
    """
    makers = [_maker(tensor, samples[tensor.name], tensor.name in weights) for tensor in part.inputs]
    lines = [f'"""{_title(part)}"""', "", "import torch"]
    if code is not None:
        lines += ["from math import inf, nan", "from torch import device, nn"]
    lines += ["", f"WEIGHTS = {weights_file!r}"] if weights else []
    lines += ["", "", _DRAW.strip("\n"), "", "", "def get_inputs():"]
    lines += ["    held = torch.load(WEIGHTS, weights_only=True)"] if weights else []
    lines += ["    return [", *(f"        {maker}," for maker in makers), "    ]"]
    if code is None:
        source = "\n".join(lines) + "\n\n\n" + seed
    else:
        source = "\n".join([*lines, "", "", "def get_init_inputs():", "    return []", "", "", _model(code)])
    return Problem(
        name=name,
        kind="triton" if code is None else "kernelbench",
        source=source,
        workloads=(Workload(name="full", role="full"), Workload(name="small", role="small")),
        seeds=(seed,),
    )


def _title(part: Part) -> str:
    """What the outputs must look like is part of what is asked."""
    layouts = [f"{t.name} {t.spec.shape} with strides {t.spec.strides}" for t in part.outputs]
    return f"{', '.join(dict.fromkeys(part.kernels))}\n\nReturns {'; '.join(layouts)}.\n"


def _model(code: str) -> str:
    body = "\n".join(f"    {line}" if line else "" for line in code.strip().splitlines())
    return f"class Model(nn.Module):\n{body}\n"


def _maker(tensor: Tensor, sample: Sample, is_weight: bool) -> str:
    if is_weight:
        return f"held[{tensor.name!r}]"
    spec = tensor.spec
    numbers = ", ".join(repr(float(value)) for value in sample)
    return f"draw({spec.shape}, {spec.strides}, torch.{spec.dtype}, {numbers})"
