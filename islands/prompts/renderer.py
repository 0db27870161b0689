"""Rendering: a template and facts become messages, within a budget of tokens. Pure.

When a prompt is too long, whole items are left out in this order, the least useful of each kind first, until it fits:
inspirations, memory items, advice on what to try next, steps of the lineage but the last, rules of the profiler, and
the notes on Triton. The reference, the parents, their figures and what is asked are never cut: a prompt may be longer
than its budget.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from islands.llm.exchange import Message, estimate_tokens, prompt_hash_of
from islands.prompts.facts import Facts, ProgramFacts
from islands.prompts.quoting import numbered, one_line, quoted

if TYPE_CHECKING:
    from jinja2 import Environment

AUTHOR, OBSERVER = "author.j2", "observer.j2"
SYSTEMS = {
    "mutate": AUTHOR,
    "crossover": AUTHOR,
    "plan": AUTHOR,
    "execute": AUTHOR,
    "synthesize": AUTHOR,
    "fuse": AUTHOR,
    "reflect": OBSERVER,
    "judge": OBSERVER,
    "repair": "",  # goes on with a conversation
    "refused": "",
}
"""Every prompt with the template of its system message."""

_NEEDS: dict[str, tuple[str, ...]] = {
    "execute": ("plan",),
    "repair": ("failure",),
    "refused": ("refusal",),
    "fuse": ("fusion",),
    "reflect": ("attempts",),
}
_KEPT = {"reflect": "memory items"}  # the answer names them by number
_N_PARENTS = {"mutate": 1, "crossover": 2, "plan": 1, "execute": 1, "fuse": 1, "judge": 1}


class Prompt(NamedTuple):
    """`cut` says what was left out to keep to the budget: "inspirations: 2". `hash` is over roles and contents."""

    messages: tuple[Message, ...]
    hash: str
    cut: tuple[str, ...]

    @property
    def n_tokens(self) -> int:
        """About how many tokens it is."""
        return sum(estimate_tokens(message.content) for message in self.messages)


def render(name: str, facts: Facts, budget_tokens: int) -> Prompt:
    """The prompt of a name for these facts. The same facts give the same prompt.

    Raises:
        ValueError: no prompt has this name, or the facts lack what it is about.
    """
    _check(name, facts)
    prompt = _rendered(name, facts, ())
    cut: Counter[str] = Counter()
    cuts = _cuts(facts, _KEPT.get(name, ""))
    while prompt.n_tokens > budget_tokens:
        what, facts = next(cuts, ("", facts))
        if not what:
            break
        before, cut[what] = prompt, cut[what] + 1
        prompt = _rendered(name, facts, tuple(f"{kind}: {n}" for kind, n in cut.items()))
        if prompt.messages == before.messages:  # this prompt does not show it
            cut[what] -= 1
            cut += Counter()
            prompt = before
    return prompt


def _check(name: str, facts: Facts) -> None:
    if name not in SYSTEMS:
        raise ValueError(f"no prompt is called {name!r}; there are {', '.join(sorted(SYSTEMS))}")
    for field in _NEEDS.get(name, ()):
        if not getattr(facts, field):
            raise ValueError(f"prompt {name!r} needs {field}")
    n_parents = _N_PARENTS.get(name)
    if n_parents is not None and len(facts.parents) != n_parents:
        raise ValueError(f"prompt {name!r} needs {n_parents} parents, got {len(facts.parents)}")


def _rendered(name: str, facts: Facts, cut: tuple[str, ...]) -> Prompt:
    turns = [("system", SYSTEMS[name]), ("user", f"{name}.j2")]
    messages = tuple(Message(role=role, content=_text(file, facts)) for role, file in turns if file)
    return Prompt(messages, prompt_hash_of(messages), cut)


def _text(file: str, facts: Facts) -> str:
    return _environment().get_template(file).render(facts._asdict()).strip() + "\n"


@cache
def _environment() -> Environment:
    """Templates may loop and choose; a name that facts lack is an error. Sources are values, never templates."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("islands.prompts"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(quoted=quoted, numbered=numbered, line=one_line)
    return environment


# --------------------------------------------------------------------------------------------------------------- cuts


def _cuts(facts: Facts, kept: str) -> Iterator[tuple[str, Facts]]:
    """Facts that are shorter and shorter, each with what was left out last; `kept` is left alone."""
    shortened: tuple[tuple[str, Callable[[Facts], Facts]], ...] = (
        ("inspirations", lambda f: f._replace(inspirations=f.inspirations[:-1])),
        ("memory items", lambda f: f._replace(memory=f.memory[1:])),
        ("advice", lambda f: f._replace(advice=f.advice[1:])),
        ("lineage steps", lambda f: f._replace(lineage=f.lineage[1:] if len(f.lineage) > 1 else f.lineage)),
        ("rules", _one_rule_fewer),
        ("notes", lambda f: f._replace(notes="")),
    )
    for what, shorten in shortened:
        while what != kept and (shorter := shorten(facts)) != facts:
            facts = shorter
            yield what, facts


def _one_rule_fewer(facts: Facts) -> Facts:
    """Without the smallest rule of the parent that has most."""
    most = max((len(parent.rules) for parent in facts.parents), default=0)
    at = next((k for k, parent in enumerate(facts.parents) if most and len(parent.rules) == most), None)
    if at is None:
        return facts
    parents: list[ProgramFacts] = list(facts.parents)
    parents[at] = parents[at]._replace(rules=parents[at].rules[:-1])
    return facts._replace(parents=tuple(parents))
