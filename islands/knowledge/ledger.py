"""The ledger: tallies of everything that was tried, here and before, and what they make one believe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from functools import lru_cache

from db.knowledge import TechniqueEvidence
from db.profile import PerformanceState
from db.records import LatencyKind
from db.techniques import techniques_for
from islands.bandit import PRIOR
from islands.knowledge.situation import Attempt, PriorKnowledge, kernel_kind_of, levels_of
from islands.knowledge.tally import Belief, Counts, Tally, counts_of
from islands.settings import KnowledgeSettings

DAY_S = 86400.0

OPERATOR_TRIES = 8.0
"""How many tries the operators' own priors are worth."""

LEVEL_TRIES = 8.0
MOVE_TRIES = 16.0
PAIR_TRIES = 8.0
"""How many imagined tries a wider group stands for in a narrower one, a technique in each of its moves, and in each of
those that it comes right after. Chosen by predicting each of ten problems on an H200 from the nine others."""

N_ADVISED = 8
ADVICE = 1.5
"""How many techniques of the catalogue are advised in a state, of those that operators apply and of those that only
language models can, and how much likelier each is taken to improve there."""

PAIR_LIMITS = (0.5, 2.0)
"""What the technique before may change about the next one: at most a factor of two."""

Key = tuple[str, ...]


class Ledger:
    """Keeps two books: of earlier runs, weighed and capped once, and of this run, where older attempts fade: what paid
    once is soon done.

    A tally is that of a technique in a group of states, (technique, level); of one of its moves there, (technique,
    level, move); or of a technique right after another, (technique, "", "", previous).
    """

    def __init__(
        self,
        priors: Mapping[str, float],
        settings: KnowledgeSettings,
        kind_priors: Mapping[str, Mapping[str, float]] | None = None,
    ) -> None:
        """`priors` has the octaves that each operator takes its tries to gain, `kind_priors` those on kinds of kernels
        of which it knows more."""
        self._priors = priors
        self._kind_priors = kind_priors or {}
        self._settings = settings
        self._before: dict[Key, Tally] = {}
        self._here: dict[Key, Tally] = {}
        self._beliefs: dict[str, dict[Key, Belief]] = {}  # by technique, until its next verdict
        self._known_advice: dict[str, Set[str]] = {}  # by state
        self._moved: set[tuple[str, str]] = set()  # techniques and levels of which any move is known
        self.states: set[str] = set()

    # ------------------------------------------------------------------------------------------------------- writing

    def open(self, prior: PriorKnowledge, hardware_id: str, latency_kind: LatencyKind | None) -> list[Counted]:
        """Takes in what is known of this kind of latency, for this GPU; says what each piece of evidence counts."""
        counted = []
        n_tried: Counter[Key] = Counter()
        for evidence in prior.evidence:
            if evidence.latency_kind == latency_kind:
                counts = _weighed(evidence, self._weight_of(evidence, hardware_id, prior.at_s))
                self.states.update((evidence.state,) if evidence.state else ())
                for key in self._keys(evidence.technique, evidence.state, evidence.move, evidence.previous):
                    self._before.setdefault(key, Tally()).add(counts)
                    n_tried[key] += evidence.n_tried
                counted.append((evidence, counts))
        for key, tally in self._before.items():
            tally.cap(self._most_tries(tally, n_tried[key]))
        return counted

    def _most_tries(self, tally: Tally, n_tried: int) -> float:
        """For how many tries a tally counts at most: fewer, where it is old or of another GPU, however large it is."""
        settings = self._settings
        undiminished = n_tried * settings.earlier_weight
        return settings.most_tries * (tally.tried / undiminished if undiminished else 1.0)

    def enter(self, attempt: Attempt) -> None:
        """Books an attempt of this run."""
        self._beliefs.pop(attempt.technique, None)
        situation = attempt.situation
        self.states.update((situation.state,) if situation.state else ())
        for key in self._keys(attempt.technique, situation.state, attempt.move, situation.previous):
            self._here.setdefault(key, Tally()).add(counts_of(attempt.octaves), self._settings.fading)

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
        known = self._beliefs.setdefault(technique, {})
        if (state, move) not in known:
            found = self._move(technique, state, move) if move else self._technique(technique, state)
            known[state, move] = found
        return known[state, move]

    def pair_factor(self, previous: str, technique: str) -> float:
        """What it changes about a technique that another one came right before it."""
        overall = self.belief(technique, "")
        known = self._beliefs[technique]
        key = (technique, "", "", previous)
        if key not in known:
            known[key] = self._narrowed(overall, key, PAIR_TRIES)
        low, high = PAIR_LIMITS
        return min(max(known[key].mean / overall.mean, low), high)

    def knows_moves(self, technique: str, state: str) -> bool:
        """Whether any move of a technique was ever seen in anything like this state."""
        return any((technique, level) in self._moved for level in _move_levels(state))

    def _technique(self, technique: str, state: str) -> Belief:
        prior = self._kind_priors.get(technique, {}).get(kernel_kind_of(state), self._priors.get(technique, PRIOR))
        belief = Belief.prior(prior, OPERATOR_TRIES)
        belief = self._narrowed(belief, (technique, ""), OPERATOR_TRIES)
        if technique in self._advised(state):
            belief = belief.likelier(ADVICE)
        for level in levels_of(state)[1:]:
            belief = self._narrowed(belief, (technique, level), LEVEL_TRIES)
        return belief

    def _advised(self, state: str) -> Set[str]:
        """What the catalogue advises in a state: the best of what operators apply, and the best of the rest."""
        if state not in self._known_advice:
            names = advised_in(state)
            own, others = (
                [name for name in names if (name in self._priors) is is_own][:N_ADVISED] for is_own in (True, False)
            )
            self._known_advice[state] = {*own, *others}
        return self._known_advice[state]

    def _move(self, technique: str, state: str, move: str) -> Belief:
        belief = self.belief(technique, state)
        for level in _move_levels(state):
            belief = self._narrowed(belief, (technique, level, move), MOVE_TRIES)
        return belief

    def _narrowed(self, belief: Belief, key: Key, tries: float) -> Belief:
        return belief.narrowed(self._before.get(key), self._here.get(key), tries)


Counted = tuple[TechniqueEvidence, Counts]


def _weighed(evidence: TechniqueEvidence, weight: float) -> Counts:
    counts = (evidence.n_tried, evidence.n_kept, evidence.n_improved, evidence.gained_octaves)
    return Counts(*(weight * count for count in counts))


@lru_cache(maxsize=1024)
def advised_in(state: str) -> tuple[str, ...]:
    """What the catalogue advises in a state, best first; nothing for a key that it does not know."""
    try:
        known = PerformanceState.parse(state)
    except ValueError:
        return ()
    return tuple(techniques_for(known.primary, known.secondary, known.limiter, known.kernel_kind))


def _move_levels(state: str) -> tuple[str, ...]:
    """Moves are counted over everything, and for a bottleneck and a kind of kernel: a state alone sees few of each."""
    return levels_of(state)[:3:2]
