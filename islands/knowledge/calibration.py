"""Predictions held against measurements: how far off they are, and by what factor they are off."""

from __future__ import annotations

from db.knowledge import MOST_OCTAVES

STEP = 0.5  # per octave of error
LIMITS = (0.25, 4.0)


class Calibration:
    """A factor for each technique that grows when it gains more than predicted, and shrinks when it gains less.

    A step is proportional to the error, so a technique whose predictions are right on average stays where it is.
    """

    def __init__(self) -> None:
        self._factors: dict[str, float] = {}
        self._absolute_error = 0.0
        self.n_predicted = 0

    def factor(self, technique: str) -> float:
        return self._factors.get(technique, 1.0)

    def learn(self, technique: str, predicted_octaves: float, octaves: float | None) -> None:
        """Takes in one prediction and what was measured, both in octaves; None for a program that failed."""
        error = min(max(octaves or 0.0, 0.0), MOST_OCTAVES) - predicted_octaves
        self.n_predicted += 1
        self._absolute_error += abs(error)
        low, high = LIMITS
        self._factors[technique] = min(max(self.factor(technique) + STEP * error, low), high)

    @property
    def mean_error_octaves(self) -> float | None:
        """Mean absolute error so far; None before the first prediction was judged."""
        return self._absolute_error / self.n_predicted if self.n_predicted else None
