"""The ledger: tallies of everything that was tried, here and before, and what they make one believe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from db.knowledge import TechniqueEvidence
from db.records import LatencyKind
from islands.bandit import PRIOR
from islands.knowledge.situation import Attempt, PriorKnowledge, levels_of
from islands.knowledge.tally import PSEUDO_TRIES, Belief, Counts, Tally, counts_of
from islands.settings import KnowledgeSettings

DAY_S = 86400.0

OPERATOR_TRIES = 2.0
"""How many tries the operators' own priors are worth."""

PAIR_TRIES = 8.0
PAIR_LIMITS = (0.5, 2.0)
"""What the technique before may change about the next one: at most a factor of two."""

Key = tuple[str, ...]


class Ledger:
    """Keeps two books: of earlier runs, weighed and capped once, and of this run, which fades.

    A tally is that of a technique in a group of states, (technique, level); of one of its moves there, (technique,
    level, move); or of a technique right after another, (technique, "", "", previous).
    """

    def __init__(self, priors: Mapping[str, float], settings: KnowledgeSettings) -> None:
        """`priors` has the octaves that each operator takes its tries to gain."""
        self._priors = priors
        self._settings = settings
        self._before: dict[Key, Tally] = {}
        self._here: dict[Key, Tally] = {}
        self._n_told = 0
        self._beliefs: dict[Key, Belief] = {}  # until the next verdict
        self._moved: set[tuple[str, str]] = set()  # techniques and levels of which any move is known
        self.states: set[str] = set()

    # ------------------------------------------------------------------------------------------------------- writing

    def open(self, prior: PriorKnowledge, hardware_id: str, latency_kind: LatencyKind | None) -> list[Counted]:
        """Takes in what is known of this kind of latency, for this GPU; says what each piece of evidence counts."""
        counted = []
        for evidence in prior.evidence:
            if evidence.latency_kind == latency_kind:
                counts = _weighed(evidence, self._weight_of(evidence, hardware_id, prior.at_s))
                self._enter(self._before, evidence.technique, evidence.state, evidence.move, evidence.previous, counts)
                counted.append((evidence, counts))
        for tally in self._before.values():
            tally.cap(self._settings.most_tries)
        return counted

    def enter(self, attempt: Attempt) -> None:
        """Books an attempt of this run."""
        self._n_told += 1
        self._beliefs.clear()
        state, previous = attempt.situation.state, attempt.situation.previous
        self._enter(self._here, attempt.technique, state, attempt.move, previous, counts_of(attempt.octaves))

    def _enter(
        self, book: dict[Key, Tally], technique: str, state: str, move: str, previous: str, counts: Counts
    ) -> None:
        self.states.update((state,) if state else ())
        for key in self._keys(technique, state, move, previous):
            if key not in book:
                book[key] = Tally()
            book[key].fade(self._n_told, self._settings.fading)
            book[key].add(counts)

    def _keys(self, technique: str, state: str, move: str, previous: str) -> Iterator[Key]:
        for level in levels_of(state):
            yield technique, level
        if move:
            for level in _move_levels(state):
                self._moved.add((technique, level))
                yield technique, level, move
        if previous:
            yield technique, "", "", previous

    def _weight_of(self, evidence: TechniqueEvidence, hardware_id: str, at_s: float) -> float:
        """What one attempt of earlier runs counts: less than one of this run, and less when it is old or far away."""
        settings = self._settings
        age_days = max(0.0, at_s - evidence.last_at_s) // DAY_S
        place = 1.0 if evidence.hardware_id == hardware_id else settings.other_gpu_weight
        return float(settings.earlier_weight * place * 0.5 ** (age_days / settings.half_life_days))

    # ------------------------------------------------------------------------------------------------------- reading

    def belief(self, technique: str, state: str, move: str = "") -> Belief:
        """What a technique should gain in a state, or one of its moves: from everything down to the state itself."""
        key = (technique, state, move)
        if key not in self._beliefs:
            self._beliefs[key] = self._move(*key) if move else self._technique(technique, state)
        return self._beliefs[key]

    def pair_factor(self, previous: str, technique: str) -> float:
        """What it changes about a technique that another one came right before it."""
        key = (technique, "", "", previous)
        overall = self.belief(technique, "")
        if key not in self._beliefs:
            self._beliefs[key] = self._narrowed(overall, key, PAIR_TRIES)
        low, high = PAIR_LIMITS
        return min(max(self._beliefs[key].mean / overall.mean, low), high)

    def knows_moves(self, technique: str, state: str) -> bool:
        """Whether any move of a technique was ever seen in anything like this state."""
        return any((technique, level) in self._moved for level in _move_levels(state))

    def _technique(self, technique: str, state: str) -> Belief:
        belief, tries = Belief.prior(self._priors.get(technique, PRIOR), OPERATOR_TRIES), OPERATOR_TRIES
        for level in levels_of(state):
            belief, tries = self._narrowed(belief, (technique, level), tries), PSEUDO_TRIES
        return belief

    def _move(self, technique: str, state: str, move: str) -> Belief:
        belief = self.belief(technique, state)
        for level in _move_levels(state):
            belief = self._narrowed(belief, (technique, level, move), PSEUDO_TRIES)
        return belief

    def _narrowed(self, belief: Belief, key: Key, tries: float) -> Belief:
        before, here = self._before.get(key), self._here.get(key)
        if here is not None:
            here.fade(self._n_told, self._settings.fading)
        return belief.narrowed(before, here, tries)


Counted = tuple[TechniqueEvidence, Counts]


def _weighed(evidence: TechniqueEvidence, weight: float) -> Counts:
    counts = (evidence.n_tried, evidence.n_kept, evidence.n_improved, evidence.gained_octaves)
    return Counts(*(weight * count for count in counts))


def _move_levels(state: str) -> tuple[str, ...]:
    """Moves are counted over everything, and for a bottleneck and a kind of kernel: a state alone sees few of each."""
    return levels_of(state)[:3:2]
