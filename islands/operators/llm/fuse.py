"""Fuse: two kernels that run one after the other become one, and what lay between them stays on the chip."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from db.records import Capture, Profile, Verdict
from islands.grid import Occupant
from islands.operators.llm.base import Author, Opening
from islands.operators.llm.stage import Stage
from islands.prompts import FusionFacts, render
from islands.prompts.facts import buffer_in_words
from islands.prompts.figures import resources_of
from islands.selection import SpeedWeightedSelector

_TENSOR = re.compile(r"(?P<storage>t\d+)\+\d+:(?P<dtype>\w+)\((?P<shape>[\d, ]*)\)")
"""How a capture writes a tensor that was allocated on the way: "t2+0:float32(4096, 1024)(1024, 1)"."""

_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}
MOST_BUFFERS = 4


class Fuse(Author):
    """Among the fastest elites that launch several kernels in a row."""

    name = "fuse"
    n_parents = 1

    def applies(self, stage: Stage) -> bool:
        return any(_may_be_fused(elite.verdict) for elite in stage.elites)

    def begin(self, stage: Stage, rng: random.Random) -> Opening | None:
        fusible = [elite for elite in stage.elites if _may_be_fused(elite.verdict)]
        parent = SpeedWeightedSelector().select(fusible, rng)
        about = stage.about(parent)._replace(fusion=_draw(parent, rng))
        prompt = render(self.name, about, stage.settings.prompt_tokens)
        return Opening(prompt.messages, (parent,), parent.candidate.source)


class Buffer(NamedTuple):
    """A tensor that one launch leaves for the next."""

    text: str
    n_bytes: int


def fusions_of(capture: Capture) -> list[tuple[FusionFacts, int]]:
    """Neighbouring launches with no operation of torch between them, and the bytes of what lies between them.

    What lies between are tensors that both are given and that are neither inputs, nor weights, nor outputs.
    """
    interrupted = {op.binding.split(" ", 1)[0].removeprefix("@") for op in capture.torch_ops}
    found = []
    for k, (first, second) in enumerate(zip(capture.launches, capture.launches[1:], strict=False), start=1):
        if str(k) not in interrupted:
            buffers = list(_between(first.tensors, second.tensors, capture.outputs))
            words = tuple(buffer.text for buffer in buffers[:MOST_BUFFERS])
            found.append((FusionFacts(first.kernel, second.kernel, words), sum(buffer.n_bytes for buffer in buffers)))
    return found


def _may_be_fused(verdict: Verdict) -> bool:
    return bool(verdict.captures) and bool(fusions_of(verdict.captures[0]))


def _draw(parent: Occupant, rng: random.Random) -> FusionFacts:
    """Mostly the pair with most between them."""
    found = fusions_of(parent.verdict.captures[0])
    drawn = rng.choices([facts for facts, _ in found], weights=[1 + n_bytes for _, n_bytes in found])[0]
    return drawn._replace(resources=_resources(parent.verdict.profile, drawn))


def _resources(profile: Profile | None, pair: FusionFacts) -> tuple[str, ...]:
    """Of the two kernels, where counters were read: those of the profile itself are the dominant kernel's alone."""
    kernels = {kernel.kernel: kernel for kernel in profile.kernels} if profile else {}
    said = (resources_of(kernels[name]) for name in dict.fromkeys((pair.first, pair.second)) if name in kernels)
    return tuple(text for text in said if text)


def _between(first: Sequence[str], second: Sequence[str], outputs: Sequence[str]) -> Iterator[Buffer]:
    returned = {_storage(text) for text in outputs}
    taken = {_storage(text) for text in second}
    seen: set[str] = set()
    for text in first:
        tensor = _TENSOR.match(text)
        if tensor and tensor["storage"] in taken - returned - seen:
            seen.add(tensor["storage"])
            shape = [int(size) for size in tensor["shape"].split(",") if size.strip()]
            n_bytes = math.prod(shape) * _BYTES.get(tensor["dtype"], 1)
            yield Buffer(buffer_in_words(tensor["storage"], tensor["dtype"], shape, n_bytes), n_bytes)


def _storage(text: str) -> str:
    return text.split("+", 1)[0]
