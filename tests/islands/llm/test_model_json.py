"""JSON answers: plans, reflections, opinions, and what a model claims of its edit."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest

from db.profile import Bottleneck, KernelKind
from islands.llm.claims import Claim, read_claim
from islands.llm.opinions import SHAPE as OPINION_SHAPE
from islands.llm.opinions import ConcernKind, Opinion, read_opinion
from islands.llm.plans import SHAPE as PLAN_SHAPE
from islands.llm.plans import Plan, read_plans
from islands.llm.reflections import SHAPE as REFLECTION_SHAPE
from islands.llm.reflections import Action, MemoryEdit, Reflection, read_reflection, remembered
from islands.llm.refusals import Refusal, RefusalKind


def plan(**changes: Any) -> dict[str, Any]:
    made = {"technique": "loop_pipeline", "construct": "loop", "change": "stages", "why": "loads", "effect_pct": 12}
    return {**made, **changes}


def plans_of(text: str, n: int = 4) -> list[Plan]:
    got = read_plans(text, n)
    assert isinstance(got, list), got
    return got


def kind_of(got: object) -> RefusalKind:
    assert isinstance(got, Refusal), got
    assert len(got.reason) > 20
    return got.kind


# -------------------------------------------------------------------------------------------------------------- plans


@pytest.mark.parametrize(
    "around",
    [
        "%s",
        "```json\n%s\n```",
        "I think [see above] that {this} helps:\n```\n%s\n```\nDone [1].",
        "<think>[{}]</think>%s",
        "\ufeff%s",
    ],
)
def test_plans_are_found_in_an_answer(around: str) -> None:
    text = around % json.dumps([plan(), plan(change="warps")], indent=2)
    assert [one.change for one in plans_of(text)] == ["stages", "warps"]


def test_commas_that_were_left_behind() -> None:
    assert len(plans_of(json.dumps([plan()]).replace("12}", "12,},"))) == 1


def test_equal_plans_count_once_and_more_than_asked_are_dropped() -> None:
    listed = [plan(), plan(change="Stages!", effect_pct=3), plan(change="a"), plan(change="b"), plan(change="c")]
    assert [one.change for one in plans_of(json.dumps(listed), 3)] == ["stages", "a", "b"]


@pytest.mark.parametrize(
    ("effect", "read"), [(12, 12), ("12%", 12), ("5-10 %", 5), (-3.5, -3.5), (400, 95), (-400, -50)]
)
def test_effects_are_percent_of_latency(effect: Any, read: float) -> None:
    (one,) = plans_of(json.dumps([plan(effect_pct=effect)]))
    assert one.effect_pct == read
    assert one.octaves == pytest.approx(-math.log2(1 - read / 100))


def test_names_are_written_as_the_catalogue_writes_them() -> None:
    names = ["Loop Pipelining", "loop-pipelining ", None, 7, "3d tiles"]
    read = [plans_of(json.dumps([plan(technique=name)]))[0].technique for name in names]
    assert read == ["loop_pipelining", "loop_pipelining", "", "", ""]


@pytest.mark.parametrize(
    ("text", "finish_reason", "kind"),
    [
        ("", "stop", RefusalKind.EMPTY),
        ("Raise num_warps.", "stop", RefusalKind.MALFORMED_JSON),
        ('[{"technique": "a", "constr', "length", RefusalKind.CUT_OFF),
        ('{"plans": 3}', "stop", RefusalKind.NOT_AS_ASKED),
        ('"plans"', "stop", RefusalKind.MALFORMED_JSON),
        ("[1, 2]", "stop", RefusalKind.NOT_AS_ASKED),
        (json.dumps([plan(why="")]), "stop", RefusalKind.NOT_AS_ASKED),
        (json.dumps([plan(effect_pct="much")]), "stop", RefusalKind.NOT_AS_ASKED),
        (json.dumps([plan(effect_pct=True)]), "stop", RefusalKind.NOT_AS_ASKED),
        ('[{"construct": "a", "change": "b", "why": "c", "effect_pct": NaN}]', "stop", RefusalKind.NOT_AS_ASKED),
        ('[{"construct": "a", "change": "b", "why": "c", "effect_pct": 1e999}]', "stop", RefusalKind.NOT_AS_ASKED),
    ],
)
def test_what_is_no_plan_is_refused(text: str, finish_reason: str, kind: RefusalKind) -> None:
    assert kind_of(read_plans(text, 4, finish_reason)) is kind


def test_one_plan_may_stand_alone_and_so_may_the_first_of_an_answer_that_was_cut_off() -> None:
    assert len(plans_of(json.dumps(plan()))) == 1
    cut = json.dumps([plan(), plan(change="warps")])[:-20]
    assert [one.change for one in plans_of(cut)] == ["stages"]


def test_a_list_of_plans_inside_an_object_is_found() -> None:
    assert len(plans_of(json.dumps({"plans": [plan()]}))) == 1


# -------------------------------------------------------------------------------------------------------- reflections


def reflection_of(value: dict[str, Any], **limits: Any) -> Reflection:
    got = read_reflection(json.dumps(value), **{"n_attempts": 2, "n_items": 2, **limits})
    assert isinstance(got, Reflection), got
    return got


def test_memory_edits() -> None:
    listed = [
        {"action": "append", "text": "Warps help  \ud800\x1brows.\x00"},
        {"action": "replace", "item": 2, "text": "Better."},
        {"action": "replace", "item": 3, "text": "There is no third."},
        {"action": "skip"},
        {"action": "append", "text": ""},
        {"action": "burn", "text": "x"},
        "append",
    ]
    assert reflection_of({"memory": listed}).memory == (
        MemoryEdit(Action.APPEND, "Warps help rows."),
        MemoryEdit(Action.REPLACE, "Better.", 2),
        MemoryEdit(Action.SKIP, ""),
    )


def test_a_memory_does_not_grow_beyond_its_capacity() -> None:
    edits = [MemoryEdit(Action.REPLACE, "b2", 2), MemoryEdit(Action.SKIP, ""), MemoryEdit(Action.APPEND, "d")]
    assert remembered(["a", "b", "c"], edits, 4) == ("a", "b2", "c", "d")
    assert remembered(["a", "b", "c"], edits, 3) == ("b2", "c", "d")
    assert remembered(["a", "b"], [MemoryEdit(Action.APPEND, "a")], 8) == ("b", "a")


def test_explanations_name_attempts_that_were_shown() -> None:
    explanations = [
        {"attempt": 2, "cause": "spills", "diagnosis_was_right": True, "fix_worked": "maybe", "avoid": "tiles > 64"},
        {"attempt": 2, "cause": "another"},
        {"attempt": 3, "cause": "not shown"},
        {"attempt": 1, "cause": ""},
    ]
    (one,) = reflection_of({"explanations": explanations}).explanations
    assert (one.attempt, one.cause, one.diagnosis_was_right, one.fix_worked) == (2, "spills", True, None)


def test_new_techniques_are_few_new_and_whole() -> None:
    whole = {"changes": "c", "instruction": "i", "addresses": ["spills", "luck"], "kinds": ["row"], "risks": "slow"}
    named = [{"name": name, **whole} for name in ("Known", "One", "One", "Two", "Three")]
    broken = [{**whole, "name": "four", "addresses": ["luck"]}, {**whole, "name": ""}]
    got = reflection_of({"techniques": broken + named}, known=["known"]).techniques
    assert [new.name for new in got] == ["one", "two"]
    assert got[0].addresses == (Bottleneck.SPILLS,) and got[0].kinds == (KernelKind.ROW,) and got[0].risks == ("slow",)


@pytest.mark.parametrize("value", ["{}", '{"memory": 3, "explanations": null, "techniques": {}}'])
def test_a_reflection_that_says_nothing_is_refused(value: str) -> None:
    assert kind_of(read_reflection(value, n_attempts=1, n_items=0)) is RefusalKind.NOT_AS_ASKED


# ----------------------------------------------------------------------------------------------------------- opinions


def test_opinions() -> None:
    concerns = [
        {"kind": "left_out", "line": "12", "what": "the bias"},
        {"kind": "faked", "line": -1, "what": "a constant"},
        {"kind": "fragile", "line": 1e30, "what": "a size"},
        {"kind": "ugly", "what": "no"},
    ]
    got = read_opinion(json.dumps({"concerns": concerns, "advice": "add it"}))
    assert isinstance(got, Opinion)
    said = [(one.kind, one.line) for one in got.concerns]
    assert said == [(ConcernKind.LEFT_OUT, 12), (ConcernKind.FAKED, 0), (ConcernKind.FRAGILE, 0)]
    assert read_opinion('{"concerns": [], "advice": "fine"}') == Opinion((), "fine")


@pytest.mark.parametrize("text", ['{"advice": "x"}', '{"concerns": [{"kind": "ugly"}]}', '{"concerns": "none"}'])
def test_opinions_of_another_shape_are_refused(text: str) -> None:
    assert kind_of(read_opinion(text)) is RefusalKind.NOT_AS_ASKED


# ------------------------------------------------------------------------------------------------------------- claims


@pytest.mark.parametrize(
    "text",
    [
        "TECHNIQUE: loop_pipeline\nCHANGE: loads in flight\nEXPECT: 12%\n<<<<<<< SEARCH",
        "**TECHNIQUE**: Loop Pipeline\r\n- CHANGE: loads in flight\n\n> EXPECT: about 12 percent\nCHANGE: again",
    ],
)
def test_claims(text: str) -> None:
    claim = read_claim(text)
    assert claim == Claim("loop_pipeline", "loads in flight", 12.0)
    assert claim.octaves == pytest.approx(0.184, abs=1e-3)


def test_a_claim_is_nothing_where_nothing_was_claimed() -> None:
    assert read_claim("```python\nx = 1\n```") == Claim()
    assert Claim().octaves is None


# -------------------------------------------------------------------------------------------------------------- noise


def test_the_shapes_that_refusals_show_are_read() -> None:
    assert plans_of(PLAN_SHAPE)
    assert isinstance(read_reflection(REFLECTION_SHAPE, n_attempts=1, n_items=0), Reflection)
    assert isinstance(read_opinion(OPINION_SHAPE), Opinion)


def test_noise_never_raises() -> None:
    rng = random.Random(5)
    pieces = ["[", "]", "{", "}", '"', ":", ",", "null", "1e999", "NaN", "\\u", "\ud800", "memory", "\n", "[" * 3000]
    pieces += [json.dumps([plan()]), REFLECTION_SHAPE, OPINION_SHAPE, "9" * 5000, "TECHNIQUE:", "EXPECT: 9e9%"]
    for _ in range(1000):
        text = "".join(rng.choices(pieces, k=rng.randrange(12)))
        assert isinstance(read_plans(text, 4), list | Refusal)
        assert isinstance(read_reflection(text, n_attempts=1, n_items=1), Reflection | Refusal)
        assert isinstance(read_opinion(text), Opinion | Refusal)
        assert isinstance(read_claim(text), Claim)
