"""The technique catalogue: `configs/techniques.yaml` as records, and what it advises for a performance state.

A *technique* is a named optimisation. An entry says what it changes, what it is good for and who can apply it: a
structural operator of the same name, a language model by the entry's instruction, or either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Annotated, Any, Self

import yaml
from pydantic import Field, StringConstraints, ValidationError, field_validator, model_validator

from db.errors import ConfigError
from db.frozen import Record
from db.profile import Bottleneck, KernelKind
from db.records import PrecisionClass

# why warps wait, as Nsight Compute names it without prefix (Profiling Guide, "Warp Scheduler States")
STALLS = (
    "barrier",
    "branch_resolving",
    "dispatch_stall",
    "drain",
    "gmma",
    "imc_miss",
    "lg_throttle",
    "long_scoreboard",
    "math_pipe_throttle",
    "membar",
    "mio_throttle",
    "misc",
    "no_instruction",
    "not_selected",
    "selected",
    "short_scoreboard",
    "sleeping",
    "tex_throttle",
    "wait",
)
OCCUPANCY_LIMITERS = ("registers", "shared", "threads", "blocks", "barriers", "grid")  # of `Counters`
LIMITERS = frozenset((*STALLS, *OCCUPANCY_LIMITERS))

# What counts how much. What addresses the primary bottleneck stands before all that does not. A technique is the more
# for a kind the fewer it is for.
PRIMARY, LIMITER, SECONDARY, MAINLY, NAMED_KIND, EVIDENCE = 16.0, 4.0, 2.0, 2.0, 1.0, 1.0

EXAMPLE = (
    "a right entry: num_warps: {changes: How many warps share a tile., addresses: [memory_latency], "
    "limiters: [long_scoreboard], kinds: [row], preconditions: [a launch], risks: [barriers take longer], "
    "source: Triton documentation, "
    "applied_by: {structural: num_warps, instruction: Draw another number of warps. Verify the launch.}}"
)

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class Seen(Record):
    """How often a technique won and lost in a published evaluation, on kernels of these kinds (empty: it says no kind
    of ours)."""

    successes: int = Field(ge=0)
    failures: int = Field(ge=0)
    kinds: tuple[KernelKind, ...] = ()
    source: Text


class AppliedBy(Record):
    """Who can apply a technique: a structural operator by its name, a language model by an instruction."""

    structural: str = ""
    instruction: str = ""  # imperative; says how to verify

    @model_validator(mode="after")
    def _somebody(self) -> Self:
        if not self.structural and not self.instruction.strip():
            raise ValueError("needs `structural`, `instruction`, or both")
        return self


class CatalogueEntry(Record):
    """One technique. What it `addresses` is in order: first what it is mainly for."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
    changes: Text
    addresses: tuple[Bottleneck, ...] = Field(min_length=1)
    limiters: tuple[str, ...] = ()  # stalls and limiters of occupancy that it relieves: of `LIMITERS`
    kinds: tuple[KernelKind, ...] = ()  # empty: every kind
    precision: PrecisionClass = PrecisionClass.REFERENCE  # relaxed: errors beyond float32's are to be expected
    preconditions: tuple[Text, ...] = ()
    risks: tuple[Text, ...] = ()
    source: Text
    applied_by: AppliedBy
    seen: tuple[Seen, ...] = ()
    reported: tuple[Text, ...] = ()  # single figures that publications give, in words
    learnt_by: str = ""  # the run that came upon it; empty for what ships with the package

    @field_validator("limiters")
    @classmethod
    def _known(cls, limiters: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in limiters if name not in LIMITERS]
        if unknown:
            raise ValueError(f"unknown limiter {unknown[0]!r}; known are {', '.join(sorted(LIMITERS))}")
        return limiters

    @property
    def successes(self) -> int:
        """Over all published evaluations."""
        return sum(seen.successes for seen in self.seen)

    @property
    def failures(self) -> int:
        """Over all published evaluations."""
        return sum(seen.failures for seen in self.seen)

    def suits(self, kind: KernelKind, precision: PrecisionClass) -> bool:
        """Whether it makes sense for kernels of this kind in a search of this precision class."""
        return (not self.kinds or kind in self.kinds) and precision in (self.precision, PrecisionClass.RELAXED)


@cache
def load_catalogue() -> Mapping[str, CatalogueEntry]:
    """The catalogue that ships with the package, by name, in the order of its file. Read once; read-only.

    Raises:
        ConfigError: the file is broken; says which entry, at which line, and what a right one looks like.
    """
    text = resources.files("configs").joinpath("techniques.yaml").read_text(encoding="utf-8")
    return MappingProxyType(read_catalogue(text, "configs/techniques.yaml"))


def read_catalogue(text: str, origin: str) -> dict[str, CatalogueEntry]:
    """The entries of a YAML text, by name.

    Args:
        text: a mapping of names to entries.
        origin: what errors call the text.

    Raises:
        ConfigError: no YAML, no mapping, a name twice, or an entry that is not right.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{origin}, line {line}: no YAML: {error.problem}", EXAMPLE) from None
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"{origin}, line 1: expected a mapping of names to entries", EXAMPLE)
    entries: dict[str, CatalogueEntry] = {}
    for key, value in root.value:
        entry = _entry(str(key.value), key, value, origin)
        if entry.name in entries:
            raise ConfigError(f"{origin}, line {_line(key)}: technique {entry.name!r} stands there twice", EXAMPLE)
        entries[entry.name] = entry
    return entries


def _entry(name: str, key: yaml.Node, value: yaml.Node, origin: str) -> CatalogueEntry:
    if not isinstance(value, yaml.MappingNode):
        raise ConfigError(f"{origin}, line {_line(key)}: technique {name!r}: expected a mapping", EXAMPLE)
    fields: dict[str, Any] = yaml.SafeLoader("").construct_document(value)
    try:
        return CatalogueEntry.model_validate({"name": name, **fields})
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        reason = first["msg"].removeprefix("Value error, ")
        line = _line(_node_at(key, value, first["loc"]))
        raise ConfigError(f"{origin}, line {line}: technique {name!r}: {path}: {reason}", EXAMPLE) from None


def _node_at(node: yaml.Node, inside: yaml.Node, path: tuple[int | str, ...]) -> yaml.Node:
    """The nearest node to `path` in `inside` that the text has, `node` itself at worst."""
    for part in path:
        found = next((pair for label, *pair in _children(inside) if label == part), None)
        if found is None:
            break
        node, inside = found
    return node


def _children(node: yaml.Node) -> Iterator[tuple[int | str, yaml.Node, yaml.Node]]:
    """What stands in a mapping or a list: its label, where it begins, and its value."""
    if isinstance(node, yaml.MappingNode):
        yield from ((str(key.value), key, value) for key, value in node.value)
    elif isinstance(node, yaml.SequenceNode):
        yield from ((k, value, value) for k, value in enumerate(node.value))


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1


def techniques_for(
    primary: Bottleneck,
    secondary: Bottleneck | None = None,
    limiter: str = "",
    kind: KernelKind = KernelKind.OTHER,
    *,
    precision: PrecisionClass = PrecisionClass.REFERENCE,
) -> list[str]:
    """Names of what the catalogue advises in a performance state, best first; always the same for the same state.

    What addresses the primary bottleneck comes first; among equals, what relieves the limiter and the secondary
    bottleneck, what is made for this kind of kernel, what won more often in published evaluations, and then what the
    file has first. What addresses neither bottleneck nor the limiter is left out.
    """
    found = [entry for entry in load_catalogue().values() if entry.suits(kind, precision)]
    scored = [(_score(entry, primary, secondary, limiter, kind), entry.name) for entry in found]
    relevant = [pair for pair in scored if pair[0] is not None]
    return [name for _, name in sorted(relevant, key=lambda pair: -(pair[0] or 0.0))]  # a stable sort


def _score(
    entry: CatalogueEntry, primary: Bottleneck, secondary: Bottleneck | None, limiter: str, kind: KernelKind
) -> float | None:
    """None where an entry has nothing to do with a state."""
    matters = primary in entry.addresses, limiter in entry.limiters, secondary in entry.addresses
    if not any(matters):
        return None
    points = sum(weight for weight, holds in zip((PRIMARY, LIMITER, SECONDARY), matters, strict=True) if holds)
    points += MAINLY * (entry.addresses[0] == primary)
    points += NAMED_KIND / len(entry.kinds) if kind in entry.kinds else 0.0
    return points + EVIDENCE * _evidence(entry, kind)


def _evidence(entry: CatalogueEntry, kind: KernelKind) -> float:
    """From -1 (always lost) to 1 (always won), 0 without counts: the mean of a uniform prior's posterior, rescaled."""
    counted = [seen for seen in entry.seen if not seen.kinds or kind in seen.kinds]
    won, lost = sum(seen.successes for seen in counted), sum(seen.failures for seen in counted)
    return 2 * (won + 1) / (won + lost + 2) - 1
