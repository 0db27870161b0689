"""`KnowledgeBase`: predicts what techniques gain, is sampled for what to try, and learns from what came of it."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from islands.knowledge.avoid import AvoidList
from islands.knowledge.calibration import Calibration
from islands.knowledge.diversity import DiversityEnforcer
from islands.knowledge.experience import ExperienceMemory
from islands.knowledge.ledger import Ledger
from islands.knowledge.situation import Attempt, PriorKnowledge, Situation
from islands.knowledge.summary import KnowledgeSummary
from islands.knowledge.tally import Belief
from islands.operators.base import Operator, cost_of, kind_priors_of
from islands.settings import IslandSettings

N_RECENT = 32

USUAL_HEADROOM, HEADROOM_LIMITS = 0.8, (0.05, 5.0)
"""Octaves from the roofline at which a technique gains what it usually does, and what more or less of it may change.

On 1180 attempts at 14 problems on an H200 the gain of an attempt grew in proportion to the parent's distance from the
roofline (correlation 0.39); with it, predictions of held-out problems became better than their mean gain.
"""


class _Odds(NamedTuple):
    """What speaks for a technique in a situation: what it should gain, and by how much that is scaled for its cost."""

    technique: str
    belief: Belief
    scale: float
    is_avoided: bool

    def sample(self, rng: random.Random, n_pending: int) -> float:
        return self.belief.sample(rng, n_pending) * self.scale


class KnowledgeBase:
    """What one island knows. The same prior, the same calls and the same `rng` give the same answers.

    It learns of its GPU and of its kind of latency from the first situation; what was learnt of the other kind is left
    out, what was learnt on other GPUs counts less.
    """

    def __init__(
        self, operators: Mapping[str, Operator], settings: IslandSettings, prior: PriorKnowledge | None = None
    ) -> None:
        self._settings = settings
        self._costs = {name: cost_of(operator) for name, operator in operators.items()}
        self._prior: PriorKnowledge | None = prior or PriorKnowledge()
        priors = {name: operator.prior for name, operator in operators.items()}
        self._ledger = Ledger(priors, settings.knowledge, kind_priors_of(operators))
        self._avoid = AvoidList(settings.knowledge.most_tries)
        self._calibration = Calibration()
        self._diversity = DiversityEnforcer()
        self._n_pending: Counter[str] = Counter()
        self._usual: dict[str, float] = {}  # what techniques earn on average in a state, until the next verdict
        self._known_odds: dict[tuple[str, str, str], _Odds] = {}  # by technique, state and technique before
        self._n_prior = self._n_attempts = 0
        self.memory = ExperienceMemory()
        self.recent: deque[Attempt] = deque(maxlen=N_RECENT)

    # ------------------------------------------------------------------------------------------------------- choosing

    def choose(self, situation: Situation, allowed: Sequence[str], rng: random.Random) -> str:
        """One of the allowed techniques, of which there is at least one: Thompson sampling of the gain per cost.

        A share of the calls, `bandit_exploration`, is spread evenly; techniques that are to be avoided get no other.
        """
        self._begin(situation)
        open_ones = self._not_excluded(allowed)
        if rng.random() < self._settings.bandit_exploration:
            return rng.choice(open_ones)
        odds = [self._odds(name, situation) for name in open_ones]
        welcome = [one for one in odds if not one.is_avoided] or odds
        return max(welcome, key=lambda one: one.sample(rng, self._n_pending[one.technique])).technique

    def predict(self, situation: Situation, technique: str) -> float:
        """Octaves that an attempt should gain, failures and losses counted as nothing.

        The move is left out: predicting ten problems on an H200 from each other, moves made predictions worse.
        """
        self._begin(situation)
        mean = self._ledger.belief(technique, situation.state).mean
        return mean * self._factor(technique, situation.previous)

    def expect(self, situation: Situation, technique: str) -> float:
        """What an attempt on this very program should gain: what the technique usually gains, and more of it the
        farther the program is from the roofline. Octaves."""
        usual = self.predict(situation, technique)
        if situation.headroom_octaves is None:
            return usual
        least, most = HEADROOM_LIMITS
        return usual * min(max(situation.headroom_octaves / USUAL_HEADROOM, least), most)

    def weigh(self, situation: Situation, technique: str, move: str, rng: random.Random) -> float:
        """A draw of what one move of a technique should gain, in octaves; what lost not long ago is worth nothing."""
        remembered = self.memory.recall(technique, situation.state, move)
        if remembered is not None:
            return max(remembered, 0.0)
        return self._ledger.belief(technique, situation.state, move).sample(rng)

    def knows_moves(self, situation: Situation, technique: str) -> bool:
        """Whether there is anything to tell the moves of a technique apart by."""
        self._begin(situation)
        return self._ledger.knows_moves(technique, situation.state)

    def avoids(self, technique: str, state: str) -> bool:
        """Whether a technique is flagged AVOID for this kind of kernel.

        One that fails often and yet pays more than most is no failure.
        """
        if not self._avoid.flags(technique, state):
            return False
        return self._earning(technique, state) < self._usual_earning(state)

    def rank(self, situation: Situation, techniques: Sequence[str]) -> dict[str, float]:
        """What is not to be avoided in a situation, the most promising first, with the octaves to expect of each."""
        welcome = [name for name in techniques if not self.avoids(name, situation.state)]
        expected = {name: self.expect(situation, name) for name in welcome}
        return dict(sorted(expected.items(), key=lambda item: -item[1]))

    @property
    def avoided(self) -> list[tuple[str, str]]:
        """Kinds of kernel with the techniques that hardly ever work on them."""
        return self._avoid.flagged

    @property
    def excluded(self) -> Set[str]:
        """Directions that the search took too often of late."""
        return self._diversity.excluded

    def excludes(self, direction: str) -> bool:
        """Whether the search went this way too often of late."""
        return direction in self._diversity.excluded

    def _odds(self, technique: str, situation: Situation) -> _Odds:
        """Kept until the next verdict, because a candidate may take several draws."""
        key = (technique, situation.state, situation.previous)
        if key not in self._known_odds:
            scale = self._factor(technique, situation.previous) / self._costs.get(technique, 1.0)
            belief = self._ledger.belief(technique, situation.state)
            self._known_odds[key] = _Odds(technique, belief, scale, self.avoids(technique, situation.state))
        return self._known_odds[key]

    def _earning(self, technique: str, state: str) -> float:
        """Octaves per cost."""
        return self._ledger.belief(technique, state).mean / self._costs.get(technique, 1.0)

    def _usual_earning(self, state: str) -> float:
        if state not in self._usual:
            earnings = [self._earning(name, state) for name in self._costs]
            self._usual[state] = sum(earnings) / max(1, len(earnings))
        return self._usual[state]

    def _factor(self, technique: str, previous: str) -> float:
        pair = self._ledger.pair_factor(previous, technique) if previous else 1.0
        return pair * self._calibration.factor(technique)

    def _not_excluded(self, allowed: Sequence[str]) -> Sequence[str]:
        """All but the techniques that go in circles, where there are others."""
        circling = {direction.partition(" ")[0] for direction in self._diversity.excluded}
        return [name for name in allowed if name not in circling] or allowed

    # ------------------------------------------------------------------------------------------------------- learning

    def asked(self, technique: str) -> None:
        """A candidate of this technique is on its way to the judge."""
        self._n_pending[technique] += 1

    def lost(self, technique: str) -> None:
        """A candidate of this technique came back in a way that nothing can be learnt from."""
        self._n_pending[technique] = max(0, self._n_pending[technique] - 1)

    def told(self, attempt: Attempt) -> None:
        """The verdict on an attempt came back."""
        self._begin(attempt.situation)
        technique = attempt.technique
        self.lost(technique)
        self._n_attempts += 1
        if attempt.predicted_octaves is not None:
            self._calibration.learn(technique, attempt.predicted_octaves, attempt.octaves)
        self._usual.clear()
        self._known_odds.clear()
        self._ledger.enter(attempt)
        self._avoid.told(attempt)
        self._diversity.judged(attempt.direction)
        self.memory.offer(attempt)
        self.recent.append(attempt)

    def heard(self, attempt: Attempt) -> None:
        """Somebody else's attempt, such as a language model's: it is remembered where it stood out.

        It counts for AVOID where no operator goes by the name that its technique was given; what operators gain is
        for them alone to say.
        """
        self._begin(attempt.situation)
        if attempt.technique not in self._costs:
            self._avoid.told(attempt)
        self.memory.offer(attempt)

    def _begin(self, situation: Situation) -> None:
        if self._prior is None:
            return
        earlier = self._ledger.open(self._prior, situation.hardware_id, situation.latency_kind)
        self._avoid.start(earlier)
        self._n_prior = sum(evidence.n_tried for evidence, _ in earlier)
        self._prior = None

    def summary(self) -> KnowledgeSummary:
        return KnowledgeSummary(
            n_prior=self._n_prior,
            n_attempts=self._n_attempts,
            n_states=len(self._ledger.states),
            n_remembered=len(self.memory),
            avoided=tuple(f"{kind or '-'}/{technique}" for kind, technique in self._avoid.flagged),
            excluded=tuple(sorted(self._diversity.excluded)),
            n_predicted=self._calibration.n_predicted,
            mean_error_octaves=self._calibration.mean_error_octaves,
        )
