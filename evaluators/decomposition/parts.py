"""Which launches make a part, and what goes in and comes out of it.

Every launch is a part by itself. A run of launches with no library's call between, each of which has to do with those
before it, is one too: what its kernels hand to each other need not go through memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from db.records import Record, TensorSpec
from evaluators.decomposition.flow import AT_ENTRY, Content, Flow
from evaluators.decomposition.steps import Extern, Fill, Item, Launch


class Tensor(Record):
    """A tensor that goes in or out: the name of Inductor's buffer or argument, and its shape."""

    name: str
    spec: TensorSpec


class Part(Record):
    """Steps `first` to `last` of the output, and what they read from outside and leave for others."""

    name: str
    first: int
    last: int
    kernels: tuple[str, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


def single_parts(flow: Flow) -> list[Part]:
    """One part for each launch."""
    return [_part(flow, [index]) for index in _launches(flow)]


def group_parts(flow: Flow) -> list[Part]:
    """The longest runs of at least two launches that belong together."""
    return [_part(flow, run) for run in _runs(flow) if len(run) > 1]


def refusal(flow: Flow, part: Part) -> str:
    """Why a part cannot be searched by itself, or the empty string."""
    if not part.inputs:
        return "it takes no tensor"
    if not part.outputs:
        return "nothing reads what it writes"
    if unknown := [t.name for t in (*part.inputs, *part.outputs) if not t.spec.dtype]:
        return f"the dtype of {unknown[0]} is not known"
    return next(_refusals(flow, part), "")


def inputs_of(flow: Flow, part: Part) -> list[Content]:
    """What the steps of a part read and none of them has made, in order."""
    steps = range(part.first, part.last + 1)
    reads = [use.content for index in steps for use in flow.steps[index].reads]
    return list({c.name: c for c in reads if c.producer not in steps}.values())


def outputs_of(flow: Flow, part: Part) -> list[Content]:
    """What the steps of a part make and others read."""
    steps = range(part.first, part.last + 1)
    made = [use.content for index in steps for use in flow.steps[index].writes]
    others = [step for index, step in enumerate(flow.steps) if index not in steps]
    read = {use.content for step in others for use in step.reads}
    return [content for content in made if content in read]


def changed_inputs(flow: Flow) -> set[str]:
    """Arguments and constants of the graph that some step writes to."""
    entries = {*flow.output.arguments, *flow.output.constants}
    return {use.content.memory for step in flow.steps for use in step.writes} & entries


def _launches(flow: Flow) -> list[int]:
    return [index for index, step in enumerate(flow.output.steps) if isinstance(step, Launch)]


def _runs(flow: Flow) -> Iterator[list[int]]:
    """Indices of launches, cut where a library is called and where a launch has nothing to do with those before it."""
    run: list[int] = []
    for index, step in enumerate(flow.output.steps):
        if isinstance(step, Extern | Item):
            yield run
            run = []
        elif isinstance(step, Launch):
            if run and not _memories(flow, [index]) & _memories(flow, run):
                yield run
                run = []
            run.append(index)
    yield run


def _memories(flow: Flow, indices: list[int]) -> set[str]:
    uses = [use for index in indices for use in (*flow.steps[index].reads, *flow.steps[index].writes)]
    return {use.content.memory for use in uses}


def _part(flow: Flow, run: list[int]) -> Part:
    """A part from its launches. A workspace that is filled for the first of them belongs to it."""
    first = run[0]
    while first > 0 and isinstance(flow.output.steps[first - 1], Fill):
        first -= 1
    steps = [flow.output.steps[index] for index in run]
    kernels = tuple(step.kernel for step in steps if isinstance(step, Launch))
    part = Part(name=f"part_{run[0]}_{run[-1]}", first=first, last=run[-1], kernels=kernels, inputs=(), outputs=())
    tensors = {
        "inputs": tuple(Tensor(name=c.name, spec=c.spec) for c in inputs_of(flow, part)),
        "outputs": tuple(Tensor(name=c.name, spec=c.spec) for c in outputs_of(flow, part)),
    }
    return part.model_copy(update=tensors)


def _refusals(flow: Flow, part: Part) -> Iterator[str]:
    entries, steps = {*flow.output.arguments, *flow.output.constants}, range(part.first, part.last + 1)
    for index in steps:
        step = flow.output.steps[index]
        for use in flow.steps[index].writes:
            if use.content.memory in entries:
                yield f"it changes {use.content.memory}, an input of the graph, in place"
        if isinstance(step, Launch) and not flow.access[step.kernel].is_split:
            yield f"{step.kernel} adds to what its output held before"
        for use in flow.steps[index].reads:
            if not use.parameter and use.content.producer not in steps and use.content.producer != AT_ENTRY:
                yield f"it fills a part of {use.content.name}, another step the rest"
    for index, other in enumerate(flow.steps[:-1]):
        for use in other.reads:
            is_ours = use.content.producer in steps and index not in steps
            if is_ours and not use.parameter and isinstance(flow.output.steps[index], Launch):
                yield f"it fills a part of {use.content.name}, another step the rest"
