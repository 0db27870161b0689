"""Stored answers of a language model: which prompt asks for which, and what the prompt shows of its parents.

An answer is a file `llm_problems/answers/PROBLEM.OPERATOR.N.txt`, as a model would write it. The N-th question of an
operator about a problem gets the N-th; a question that there is no answer for gets one that proposes nothing.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from benchmarks.scripted_model import Said, Turn
from islands.llm.exchange import Message, prompt_hash_of

FOLDER = Path(__file__).resolve().parent / "llm_problems"
NOTHING = "I have nothing to add."
IDLE_S = 0.3  # of an answer that proposes nothing: a run has other things to do

NCU = "read by Nsight Compute"
_TASKS = {
    "mutate": "Make this program faster on this GPU.",
    "crossover": "Write one program that has what A is good at and what B is good at.",
    "plan": "different plans to make this program faster.",
    "execute": "Carry out this plan, completely, and nothing besides it:",
    "fuse": "which run one after the other, so that what lies between them stays on the chip.",
    "synthesize": "Write the first Triton program for this problem.",
}
"""What the templates ask of each operator, in words that no other prompt has."""

_REPAIR = "The program that your answer makes was refused by gate "
_PROBLEM = re.compile(r"^# Problem: (?P<name>\S+)$", re.MULTILINE)
_PROFILE = re.compile(r"^Profile:\n(?P<lines>(?:- .*\n)+)", re.MULTILINE)


class Case(NamedTuple):
    """A problem with stored answers, and the operator whose answer is the good one.

    `begins` is the operator that conversations about elites begin with. An answer waits for a prompt whose parents are
    such that it fits: each of `parents` stands in the source of another one. A case that is `only_named` needs a real
    GPU: what makes its answer good is nothing that the model of one knows.
    """

    problem: str
    operator: str
    begins: str
    parents: tuple[str, ...] = ("",)
    seeds: tuple[str, ...] = ()
    only_named: bool = False

    @property
    def source(self) -> str:
        """As `evolve run` takes it: a file, or a name of the suite."""
        path = FOLDER / f"{self.problem}.py"
        return str(path) if path.exists() else self.problem


CASES = (
    Case("scaled_transpose", "mutate", "mutate"),
    Case("double_l1", "crossover", "crossover", ("rows_at_once_kernel", "column_shares_kernel"), ("double_l1.py",)),
    Case("long_row_max", "execute", "plan"),
    Case("standardise", "repair", "mutate"),
    Case("returns_to_go", "synthesize", "mutate", ()),
    Case("layer_norm_gelu", "fuse", "fuse"),
    Case("group_norm", "mutate", "mutate", only_named=True),  # programs wait for each other
)


class Prompt(NamedTuple):
    """A question as it was sent. `figures` are the profiles that it shows, one for each parent."""

    problem: str
    operator: str  # that the question is of, as lineages name it
    is_again: bool  # an answer of ours could not be read, and is asked for again
    figures: tuple[tuple[str, ...], ...]
    text: str
    hash: str

    @property
    def n_counted(self) -> int:
        """Parents whose profile was read by Nsight Compute, not modelled."""
        return sum(NCU in lines[0] for lines in self.figures)


def read_prompt(turns: Sequence[Turn]) -> Prompt:
    """What a conversation asks.

    Raises:
        ValueError: its prompt is of no operator that there are answers of.
    """
    first = next(turn.content for turn in turns if turn.role == "user")
    last = turns[-1].content
    begun = next((name for name, words in _TASKS.items() if words in first), None)
    problem = _PROBLEM.search(first)
    if begun is None or problem is None:
        raise ValueError(f"no operator asks like this: {first[-400:]!r}")
    is_repaired = any(turn.role == "user" and turn.content.startswith(_REPAIR) for turn in turns)
    said = next((turn.content for turn in reversed(turns) if turn.role == "assistant"), NOTHING)
    messages = [Message(role=turn.role, content=turn.content) for turn in turns]
    return Prompt(
        problem=problem["name"],
        operator="repair" if is_repaired else begun,
        is_again=said != NOTHING and not last.startswith(_REPAIR),
        figures=tuple(tuple(_lines(found["lines"])) for found in _PROFILE.finditer(first)),
        text="\n\n".join(f"[{turn.role}]\n{turn.content}" for turn in turns),
        hash=prompt_hash_of(messages),
    )


def _lines(listed: str) -> list[str]:
    return [line.removeprefix("- ") for line in listed.splitlines()]


@dataclass
class StoredAnswers:
    """A script for `ScriptedModel`: answers every question of every problem, and keeps what was asked.

    Args:
        counters_within_s: how long an answer waits for a prompt in which every parent has counters, counted from the
            first question of its problem; 0 does not wait.
    """

    counters_within_s: float = 0.0
    prompts: dict[str, Prompt] = field(default_factory=dict)  # by hash
    n_given: Counter[tuple[str, str]] = field(default_factory=Counter)
    _began: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, turns: Sequence[Turn]) -> Said:
        prompt = read_prompt(turns)
        with self._lock:
            self.prompts[prompt.hash] = prompt
            began = self._began.setdefault(prompt.problem, time.monotonic())
            may_wait = time.monotonic() - began < self.counters_within_s
            case = next((one for one in CASES if one.problem == prompt.problem), None)
            if case is None or not _is_due(prompt, case, must_be_counted=may_wait):
                return Said(NOTHING, IDLE_S)
            return self._next(prompt)

    def _next(self, prompt: Prompt) -> Said:
        key = (prompt.problem, prompt.operator)
        path = FOLDER / "answers" / f"{'.'.join(key)}.{self.n_given[key] + 1}.txt"
        if not path.exists():
            return Said(NOTHING, IDLE_S)
        self.n_given[key] += 1
        return Said(path.read_text())


def _is_due(prompt: Prompt, case: Case, *, must_be_counted: bool) -> bool:
    """Whether the prompt's parents are those that an answer is for. What was begun is gone on with."""
    if prompt.is_again or prompt.operator in ("repair", "execute"):
        return True
    if must_be_counted and prompt.n_counted < len(case.parents):
        return False
    return all(words in prompt.text for words in case.parents)
