"""Which model an operator asks: a bandit over models and operators that counts what a gain cost.

An arm is a model asked by an operator. It earns octaves (log2 of parent latency over child latency, 0 where the child
failed or was slower), and is worth what it earned per dollar; where one of the models to choose from is unpriced, per
second, because the two cannot be compared otherwise.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import Field, ValidationError

from db.errors import ConfigError
from db.frozen import Record
from islands.bandit import PRIOR

_LEAST_USD = 1e-6
_LEAST_S = 1e-3


class Arm(NamedTuple):
    """A model, by its id, asked by an operator."""

    model: str
    operator: str


class Earnings(Record):
    """What an arm came to. Older tries count for less, so these are no whole numbers."""

    model: str
    operator: str
    weight: float = Field(ge=0, allow_inf_nan=False)  # tries
    octaves: float = Field(ge=0, allow_inf_nan=False)
    usd: float = Field(ge=0, allow_inf_nan=False)
    seconds: float = Field(ge=0, allow_inf_nan=False)
    priced_weight: float = Field(ge=0, allow_inf_nan=False)  # tries that had a price


class BanditState(Record):
    """Everything that a bandit learnt, for a file or an archive. Calls under way are not in it: they are asked anew."""

    version: int = 1
    earnings: tuple[Earnings, ...]


@dataclass(slots=True)
class _Arm:
    weight: float = 0.0
    octaves: float = 0.0
    usd: float = 0.0
    seconds: float = 0.0
    priced_weight: float = 0.0
    n_pending: int = 0


class ModelBandit:
    """Probability matching: an arm is chosen in proportion to its gain per cost, above a floor of exploration.

    An arm that nobody knows is taken to earn the prior, and to cost what its model costs other operators, or what
    models cost on average. A call under way counts as a try that earned nothing yet. Outcomes may come late and in any
    order. What is known of a model that is not in the list now is kept for the day that it comes back.
    """

    def __init__(self, *, exploration: float = 0.15, discount: float = 0.98) -> None:
        """
        Args:
            exploration: the share that is given out evenly.
            discount: of what was learnt, with every outcome.
        """
        self._arms: dict[Arm, _Arm] = {}
        self._exploration, self._discount = exploration, discount

    def choose(self, allowed: Mapping[Arm, float] | Sequence[Arm], rng: random.Random) -> Arm:
        """One of the allowed arms, of which there is at least one; with a mapping, the weights that users gave."""
        shares = self.shares(allowed)
        return rng.choices(list(shares), weights=list(shares.values()))[0]

    def asked(self, arm: Arm) -> None:
        """A call of this arm is under way."""
        self._known(arm).n_pending += 1

    def told(self, arm: Arm, octaves: float, *, cost_usd: float | None, seconds: float) -> None:
        """What came of a call, or of several that one candidate took. `cost_usd` is None for an unpriced model."""
        for other in self._arms.values():
            other.weight *= self._discount
            other.octaves *= self._discount
            other.usd *= self._discount
            other.seconds *= self._discount
            other.priced_weight *= self._discount
        known = self._known(arm)
        known.n_pending = max(0, known.n_pending - 1)
        known.weight += 1
        known.octaves += max(0.0, octaves)
        known.seconds += seconds
        if cost_usd is not None:
            known.usd += cost_usd
            known.priced_weight += 1

    def dropped(self, arm: Arm) -> None:
        """A call under way came to nothing that the arm can be blamed for."""
        known = self._known(arm)
        known.n_pending = max(0, known.n_pending - 1)

    def shares(self, allowed: Mapping[Arm, float] | Sequence[Arm]) -> dict[Arm, float]:
        """The probability of each allowed arm; they sum to 1."""
        weights = allowed if isinstance(allowed, Mapping) else dict.fromkeys(allowed, 1.0)
        is_priced = all(self._is_priced(arm) for arm in weights)
        values = {arm: weight * self._value(arm, is_priced=is_priced) for arm, weight in weights.items()}
        total = sum(values.values())
        floor = self._exploration / len(values)
        return {arm: floor + (1 - self._exploration) * value / total for arm, value in values.items()}

    def dump(self) -> BanditState:
        """What was learnt, for `restore`."""
        earnings = tuple(
            Earnings(
                model=arm.model,
                operator=arm.operator,
                weight=known.weight,
                octaves=known.octaves,
                usd=known.usd,
                seconds=known.seconds,
                priced_weight=known.priced_weight,
            )
            for arm, known in sorted(self._arms.items())
        )
        return BanditState(earnings=earnings)

    def restore(self, state: BanditState | Mapping[str, Any]) -> None:
        """Goes on from what was dumped, in the place of what is known now. Models may have come and gone since.

        Raises:
            ConfigError: this was not dumped by a bandit of this version.
        """
        try:
            state = BanditState.model_validate(state)
        except ValidationError as error:
            place = ".".join(str(part) for part in error.errors()[0]["loc"])
            raise ConfigError(f"cannot read the state of the models' bandit: {place}", "leave it out") from None
        if state.version != 1:
            raise ConfigError(f"the models' bandit is of version {state.version}, not 1", "upgrade evolve")
        self._arms = {
            Arm(one.model, one.operator): _Arm(one.weight, one.octaves, one.usd, one.seconds, one.priced_weight)
            for one in state.earnings
        }

    # ---------------------------------------------------------------------------------------------------- private

    def _known(self, arm: Arm) -> _Arm:
        return self._arms.setdefault(arm, _Arm())

    def _is_priced(self, arm: Arm) -> bool:
        """Whether dollars say what an arm costs: nobody knows its model yet, or its calls had a price."""
        calls = self._of_model(arm.model)
        return not any(known.weight for known in calls) or any(known.priced_weight for known in calls)

    def _value(self, arm: Arm, *, is_priced: bool) -> float:
        known = self._arms.get(arm, _Arm())
        octaves = (PRIOR + known.octaves) / (1 + known.weight + known.n_pending)
        return octaves / self._cost(arm, is_priced=is_priced)

    def _cost(self, arm: Arm, *, is_priced: bool) -> float:
        """Dollars or seconds of a try on average: of the arm, else of its model, else of all, else 1."""
        own = [self._arms[arm]] if arm in self._arms else []
        for known in (own, self._of_model(arm.model), list(self._arms.values())):
            n_tries = sum(one.priced_weight if is_priced else one.weight for one in known)
            if n_tries > 0:
                total = sum(one.usd if is_priced else one.seconds for one in known)
                return max(total / n_tries, _LEAST_USD if is_priced else _LEAST_S)
        return 1.0

    def _of_model(self, model: str) -> list[_Arm]:
        return [known for arm, known in self._arms.items() if arm.model == model]
