"""Reflections: what a model makes of attempts that were judged. Memory items, explanations, new techniques."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from db.profile import Bottleneck, KernelKind
from islands.llm.jsons import number_of, read_json, text_of, texts_of
from islands.llm.plans import name_of
from islands.llm.refusals import Refusal, RefusalKind

MOST_NEW_TECHNIQUES = 2  # of one reflection
LONGEST_ITEM = 300

SHAPE = (
    '{"memory": [{"action": "append", "text": "..."}], "explanations": [{"attempt": 1, "diagnosis_was_right": true, '
    '"fix_worked": false, "cause": "...", "avoid": "...", "try_next": "..."}], "techniques": []}'
)


class Action(StrEnum):
    APPEND = "append"
    REPLACE = "replace"
    SKIP = "skip"


class MemoryEdit(NamedTuple):
    """What becomes of one lesson. `item` is the number of the item it replaces, from 1; 0 for one that is appended."""

    action: Action
    text: str
    item: int = 0


class Explanation(NamedTuple):
    """Why an attempt gained what it did. `attempt` counts from 1, as the prompt does."""

    attempt: int
    diagnosis_was_right: bool | None
    fix_worked: bool | None
    cause: str
    avoid: str = ""
    try_next: str = ""


class NewTechnique(NamedTuple):
    """A technique that the catalogue lacks, described so that it can be tried again."""

    name: str
    changes: str
    instruction: str
    addresses: tuple[Bottleneck, ...]
    kinds: tuple[KernelKind, ...] = ()
    preconditions: tuple[str, ...] = ()
    risks: tuple[str, ...] = ()


class Reflection(NamedTuple):
    memory: tuple[MemoryEdit, ...]
    explanations: tuple[Explanation, ...] = ()
    techniques: tuple[NewTechnique, ...] = ()


def read_reflection(
    text: str, *, n_attempts: int, n_items: int, known: Sequence[str] = (), finish_reason: str = ""
) -> Reflection | Refusal:
    """What an answer teaches.

    Args:
        text: the answer.
        n_attempts, n_items: how many attempts and memory items the prompt showed; other numbers are left out.
        known: names of techniques that are not new.
        finish_reason: why the model stopped.
    """
    value = read_json(text, dict, finish_reason)
    if isinstance(value, Refusal):
        return value
    memory = [edit for item in _dicts(value.get("memory")) if (edit := _edit(item, n_items))]
    explained = [why for item in _dicts(value.get("explanations")) if (why := _explanation(item, n_attempts))]
    proposed = [new for item in _dicts(value.get("techniques")) if (new := _technique(item))]
    if not (memory or explained or proposed):
        return Refusal(RefusalKind.NOT_AS_ASKED, f"Nothing in the answer can be used. Answer like {SHAPE}")
    first = {one.attempt: one for one in reversed(explained)}
    by_name = {one.name: one for one in reversed(proposed) if one.name not in known}
    techniques = list(reversed(by_name.values()))[:MOST_NEW_TECHNIQUES]
    return Reflection(tuple(memory), tuple(first[k] for k in sorted(first)), tuple(techniques))


def remembered(items: Sequence[str], edits: Sequence[MemoryEdit], capacity: int) -> tuple[str, ...]:
    """The memory after edits: at most `capacity` items, the oldest forgotten first, none twice."""
    held = list(items)
    for edit in edits:
        if edit.action is Action.REPLACE:
            held[edit.item - 1] = edit.text
    held += [edit.text for edit in edits if edit.action is Action.APPEND]
    newest_first = dict.fromkeys(reversed(held))
    return tuple(reversed(list(newest_first)[:capacity]))


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _edit(item: dict[str, Any], n_items: int) -> MemoryEdit | None:
    action, text = text_of(item.get("action")).lower(), text_of(item.get("text"), LONGEST_ITEM)
    number = number_of(item.get("item"))
    if action == Action.SKIP:
        return MemoryEdit(Action.SKIP, text)
    if action == Action.APPEND and text:
        return MemoryEdit(Action.APPEND, text)
    if action == Action.REPLACE and text and number is not None and 1 <= number <= n_items:
        return MemoryEdit(Action.REPLACE, text, int(number))
    return None


def _explanation(item: dict[str, Any], n_attempts: int) -> Explanation | None:
    number, cause = number_of(item.get("attempt")), text_of(item.get("cause"), LONGEST_ITEM)
    if number is None or not 1 <= number <= n_attempts or not cause:
        return None
    return Explanation(
        attempt=int(number),
        diagnosis_was_right=_yes_or_no(item.get("diagnosis_was_right")),
        fix_worked=_yes_or_no(item.get("fix_worked")),
        cause=cause,
        avoid=text_of(item.get("avoid"), LONGEST_ITEM),
        try_next=text_of(item.get("try_next"), LONGEST_ITEM),
    )


def _technique(item: dict[str, Any]) -> NewTechnique | None:
    """None for what lacks a name, words or a bottleneck that there is."""
    name, changes = name_of(item.get("name")), text_of(item.get("changes"))
    instruction = text_of(item.get("instruction"))
    addresses = tuple(Bottleneck(one) for one in texts_of(item.get("addresses")) if one in set(Bottleneck))
    if not (name and changes and instruction and addresses):
        return None
    kinds = tuple(KernelKind(one) for one in texts_of(item.get("kinds")) if one in set(KernelKind))
    return NewTechnique(
        name, changes, instruction, addresses, kinds, texts_of(item.get("preconditions")), texts_of(item.get("risks"))
    )


def _yes_or_no(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None
