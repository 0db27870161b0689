"""Which operators may still have something new for which parents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from islands.grid import Occupant
from islands.operators.base import Operator

Group = tuple[Occupant, ...]

STRIKES = 3
"""An operator whose draws came to nothing this often in a row is not asked again for these parents."""

MAX_MATES = 8
"""Partners that a parent is offered to: the fastest others. What is far slower has little to give."""


class Openings:
    """Counts the draws that came to nothing. An opening is an operator and a group of parents with strikes left."""

    def __init__(self, operators: Sequence[Operator]) -> None:
        self._alone = [operator.name for operator in operators if operator.n_parents == 1]
        self._crossing = [(operator.name, operator.n_parents) for operator in operators if operator.n_parents > 1]
        self._strikes: dict[tuple[str, tuple[str, ...]], int] = {}
        self._n_closed: Counter[str] = Counter()  # operators of one parent, by parent

    def strike(self, arm: str, parents: tuple[str, ...], n: int = 1) -> None:
        """`n` draws of this operator on these parents came to nothing."""
        before = self._strikes.get((arm, parents), 0)
        self._strikes[arm, parents] = before + n
        if before < STRIKES <= before + n and len(parents) == 1:
            self._n_closed[parents[0]] += 1

    def reopen(self, arm: str, parents: tuple[str, ...]) -> None:
        """Forgets the strikes of this operator on these parents."""
        if self._strikes.pop((arm, parents), 0) >= STRIKES and len(parents) == 1:
            self._n_closed[parents[0]] -= 1

    def has_any(self, parent: Occupant, mates: Sequence[Occupant]) -> bool:
        """Whether `of` would find any."""
        if self._n_closed.get(parent.program_id, 0) < len(self._alone):
            return True
        return any(self._groups(parent, mates, arm, n_parents) for arm, n_parents in self._crossing)

    def of(self, parent: Occupant, mates: Sequence[Occupant]) -> dict[str, list[Group]]:
        """By operator, the groups that `parent` leads and that are open. `mates`, fastest first, may include it."""
        alone: list[Group] = [(parent,)]
        own = program_ids(alone[0])
        found: dict[str, list[Group]] = {
            arm: alone for arm in self._alone if self._strikes.get((arm, own), 0) < STRIKES
        }
        for arm, n_parents in self._crossing:
            if groups := self._groups(parent, mates, arm, n_parents):
                found[arm] = groups
        return found

    def _groups(self, parent: Occupant, mates: Sequence[Occupant], arm: str, n_parents: int) -> list[Group]:
        others = [mate for mate in mates[: MAX_MATES + 1] if mate.program_id != parent.program_id]
        n_mates = n_parents - 1
        groups = [(parent, *others[k : k + n_mates]) for k in range(len(others) - n_mates + 1)]
        return [group for group in groups if self._strikes.get((arm, program_ids(group)), 0) < STRIKES]


def program_ids(group: Group) -> tuple[str, ...]:
    return tuple([member.program_id for member in group])
