"""Which launches make a part, and what goes in and comes out of it.

Every launch is a part by itself. A run of launches with no library's call between, each of which has to do with those
before it, is one too: what its kernels hand to each other need not go through memory. Of a long run, groups of a few
neighbours are parts as well, because few kernels become one more easily than many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from db.records import Record, TensorSpec
from evaluators.decomposition.flow import AT_ENTRY, Content, Flow
from evaluators.decomposition.steps import Extern, Fill, Item, Launch

LONG_RUN = 8  # launches: of a longer run smaller groups are offered, too
SMALL_GROUP = 4  # launches, at most
MOST_SMALL_GROUPS = 4  # of one run: parts share a budget


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


def group_parts(flow: Flow, shares: Mapping[int, float] | None = None) -> list[Part]:
    """The longest runs of at least two launches that belong together, and small groups of those that are long.

    Args:
        shares: of device time, by step: the small groups are those that take most of it.
    """
    runs = [run for run in _runs(flow) if len(run) > 1]
    small = [group for run in runs if len(run) > LONG_RUN for group in _small_groups(flow, run, shares or {})]
    return [_part(flow, run) for run in (*runs, *small)]


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
    """Indices of launches, cut where a library is called, where a launch has nothing to do with those before it, and
    around one that no part may hold."""
    run: list[int] = []
    for index, step in enumerate(flow.output.steps):
        if isinstance(step, Extern | Item) or (isinstance(step, Launch) and any(_refusals_of(flow, index))):
            yield run
            run = []
        elif isinstance(step, Launch):
            if run and not _memories(flow, [index]) & _memories(flow, run):
                yield run
                run = []
            run.append(index)
    yield run


def _small_groups(flow: Flow, run: list[int], shares: Mapping[int, float]) -> list[list[int]]:
    """Neighbours in a run that belong together, those first that take most time; no launch is in two of them."""
    groups: list[list[int]] = []
    pieces = [run]
    while len(groups) < MOST_SMALL_GROUPS:
        windows = [w for piece in pieces for w in _windows(piece) if _belong_together(flow, w)]
        if not windows:
            break
        best = max(windows, key=lambda window: (sum(shares.get(i, 0.0) for i in window), len(window)))
        groups.append(best)
        pieces = [side for piece in pieces for side in _around(best, piece)]
    return groups


def _around(group: list[int], piece: list[int]) -> list[list[int]]:
    """What is left of a piece on both sides of a group, if it holds the group."""
    if group[0] not in piece:
        return [piece]
    return [[i for i in piece if i < group[0]], [i for i in piece if i > group[-1]]]


def _windows(piece: list[int]) -> Iterator[list[int]]:
    for size in range(2, SMALL_GROUP + 1):
        yield from (piece[start : start + size] for start in range(len(piece) - size + 1))


def _belong_together(flow: Flow, indices: list[int]) -> bool:
    """Whether each launch has to do with those before it."""
    return all(_memories(flow, [index]) & _memories(flow, indices[:n]) for n, index in enumerate(indices) if n)


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
    steps = range(part.first, part.last + 1)
    for index in steps:
        yield from _refusals_of(flow, index)
        for use in flow.steps[index].reads:
            if not use.parameter and use.content.producer not in steps and use.content.producer != AT_ENTRY:
                yield f"it fills a part of {use.content.name}, another step the rest"
    for index, other in enumerate(flow.steps[:-1]):
        for use in other.reads:
            is_ours = use.content.producer in steps and index not in steps
            if is_ours and not use.parameter and isinstance(flow.output.steps[index], Launch):
                yield f"it fills a part of {use.content.name}, another step the rest"


def _refusals_of(flow: Flow, index: int) -> Iterator[str]:
    """Why no part may hold a step."""
    step, entries = flow.output.steps[index], {*flow.output.arguments, *flow.output.constants}
    for use in flow.steps[index].writes:
        if use.content.memory in entries:
            yield f"it changes {use.content.memory}, an input of the graph, in place"
    if isinstance(step, Launch) and not flow.access[step.kernel].is_split:
        yield f"{step.kernel} adds to what its output held before"
