"""Who is asked next: the operator of a conversation and its model, by what earlier ones earned for their cost."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from db.frozen import Record
from db.records import Lineage
from islands.llm.bandit import Arm, BanditState, Earnings, ModelBandit
from islands.llm.exchange import Outcome
from islands.llm.models import ModelSpec, of_role
from islands.operators.llm.base import DialogueOperator
from islands.operators.llm.dialogue import REPAIR, ArmSpend, DialogueState

PLAN, EXECUTE = "plan", "execute"
MOST_TRIES = 50.0
"""As many tries as a bandit remembers; of what earlier sittings learnt no more counts."""


class PlanAccount(Record):
    """What the plans of one conversation came to so far. It is settled when the last of them has been judged."""

    dialogue_id: str
    arm: Arm
    n_open: int
    octaves: float = 0.0
    cost_usd: float | None = 0.0
    seconds: float = 0.0

    def plus(self, octaves: float, dialogue: DialogueState) -> PlanAccount:
        """With one plan more that was carried out."""
        return self.model_copy(
            update={
                "n_open": self.n_open - 1,
                "octaves": self.octaves + max(0.0, octaves),
                "cost_usd": _sum(self.cost_usd, dialogue.cost_usd),
                "seconds": self.seconds + dialogue.seconds,
            }
        )


class Choice:
    """Chooses among the models of an operator's role, and among the operators that apply.

    A conversation earns what its program gained, for all that its answers cost, repairs included. Planning earns what
    its plans gained, for what planning and carrying them out cost together.
    """

    def __init__(self, models: Sequence[ModelSpec]) -> None:
        """Without models there is nobody to tell apart: any model of a role is asked."""
        self._models = tuple(models)
        self._bandit = ModelBandit()
        self._plans: dict[str, PlanAccount] = {}
        self._gained: dict[Arm, float] = {}  # octaves, in earlier sittings

    def choose(self, operators: Sequence[DialogueOperator], rng: random.Random) -> tuple[DialogueOperator, str] | None:
        """One of the operators and the id of a model, empty where any will do; None where no model serves any."""
        arms = {arm: weight for operator in operators for arm, weight in self._arms(operator).items()}
        if not arms:
            return None
        arm = self._bandit.choose(arms, rng)
        return next(one for one in operators if one.name == arm.operator), arm.model

    def asked(self, dialogue: DialogueState) -> None:
        """A conversation began."""
        self._bandit.asked(Arm(dialogue.model, dialogue.operator))

    def ended(self, dialogue: DialogueState, octaves: float, n_plans: int = 0) -> None:
        """A conversation is over; `n_plans` came of it that wait to be carried out."""
        meant, arm = Arm(dialogue.model, dialogue.operator), self._arm_of(dialogue)
        if arm != meant:
            self._bandit.dropped(meant)
        if n_plans:
            self._plans[dialogue.dialogue_id] = PlanAccount(
                dialogue_id=dialogue.dialogue_id,
                arm=arm,
                n_open=n_plans,
                cost_usd=dialogue.cost_usd,
                seconds=dialogue.seconds,
            )
        elif dialogue.answered_by:
            self._bandit.told(arm, octaves, cost_usd=dialogue.cost_usd, seconds=dialogue.seconds)
        else:  # nobody was asked
            self._bandit.dropped(arm)
        if dialogue.planned_in:
            self._settle(dialogue, octaves)

    def _settle(self, dialogue: DialogueState, octaves: float) -> None:
        account = self._plans.pop(dialogue.planned_in, None)
        if account is None:
            return
        account = account.plus(octaves, dialogue)
        if account.n_open > 0:
            self._plans[dialogue.planned_in] = account
        else:
            self._bandit.told(account.arm, account.octaves, cost_usd=account.cost_usd, seconds=account.seconds)

    def recall(self, lineage: Lineage, octaves: float) -> None:
        """A program of an earlier sitting earned this."""
        arm = Arm(lineage.model, lineage.operator)
        self._gained[arm] = self._gained.get(arm, 0.0) + octaves

    def resume(self, spent: Iterable[ArmSpend]) -> None:
        """Takes up what earlier sittings spent, beside what was recalled of them."""
        self._bandit.restore(BanditState(earnings=_earnings(spent, self._gained)))

    def dump(self) -> tuple[BanditState, tuple[PlanAccount, ...]]:
        return self._bandit.dump(), tuple(self._plans.values())

    def restore(self, bandit: BanditState, plans: Sequence[PlanAccount]) -> None:
        """Goes on from what was dumped. Models may have come and gone since."""
        self._bandit.restore(bandit)
        self._plans = {account.dialogue_id: account for account in plans}

    def _arms(self, operator: DialogueOperator) -> dict[Arm, float]:
        arms: dict[Arm, float] = {}
        for spec in of_role(self._models, operator.role):
            arm = Arm(spec.model_id, operator.name)
            arms[arm] = arms.get(arm, 0.0) + spec.weight
        return arms if self._models else {Arm("", operator.name): 1.0}

    def _arm_of(self, dialogue: DialogueState) -> Arm:
        """Who is to be credited: the model that answered, where another one had been preferred."""
        known = {spec.model_id for spec in self._models}
        return Arm(dialogue.answered_by if dialogue.answered_by in known else dialogue.model, dialogue.operator)


def paid(dialogue: DialogueState, outcome: Outcome) -> dict[str, object]:
    """What an answer, or its failure, adds to the cost of a conversation: fields of its record."""
    return {
        "cost_usd": _sum(dialogue.cost_usd, outcome.cost_usd),
        "seconds": dialogue.seconds + outcome.seconds,
        "answered_by": outcome.model or dialogue.answered_by,
    }


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


# ------------------------------------------------------------------------------------------------------------- resume


@dataclass(slots=True)
class _Row:
    """What one arm came to in earlier sittings."""

    n_calls: float = 0.0
    usd: float | None = 0.0
    seconds: float = 0.0
    octaves: float = 0.0

    def add(self, other: _Row, share: float = 1.0) -> None:
        self.usd = None if self.usd is None or other.usd is None else self.usd + share * other.usd
        self.seconds += share * other.seconds
        self.octaves += share * other.octaves


def _earnings(spent: Iterable[ArmSpend], gained: Mapping[Arm, float]) -> tuple[Earnings, ...]:
    """Every call is taken for a try. Repairs count for what their model was asked, executing for planning as well."""
    rows = {Arm(one.model, one.operator): _Row(one.n_calls, one.usd, one.seconds) for one in spent}
    for arm, octaves in gained.items():
        rows.setdefault(arm, _Row()).octaves += octaves
    for repair in [arm for arm in rows if arm.operator == REPAIR]:
        _share(rows, rows.pop(repair), [arm for arm in rows if arm.model == repair.model])
    executed = [row for arm, row in rows.items() if arm.operator == EXECUTE]
    for row in executed:
        _share(rows, row, [arm for arm in rows if arm.operator == PLAN])
    return tuple(_earned(arm, row) for arm, row in sorted(rows.items()) if row.n_calls)


def _share(rows: Mapping[Arm, _Row], what: _Row, among: Sequence[Arm]) -> None:
    n_calls = sum(rows[arm].n_calls for arm in among)
    for arm in among:
        if n_calls:
            rows[arm].add(what, rows[arm].n_calls / n_calls)


def _earned(arm: Arm, row: _Row) -> Earnings:
    scale = min(1.0, MOST_TRIES / row.n_calls)
    return Earnings(
        model=arm.model,
        operator=arm.operator,
        weight=scale * row.n_calls,
        octaves=scale * row.octaves,
        usd=scale * (row.usd or 0.0),
        seconds=scale * row.seconds,
        priced_weight=0.0 if row.usd is None else scale * row.n_calls,
    )
