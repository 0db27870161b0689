"""How an island searches: values that a run's configuration may set. Frozen; every one has an effect."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class SelectionWeights(BaseModel):
    """How map-elites shares its draws among the selection policies once the best program stops getting faster.

    Relative weights; they need not sum to 1. Before that, parents are speed-weighted.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    speed_weighted: float = Field(default=0.5, ge=0)  # among the fastest `n_exploited` elites
    curiosity: float = Field(default=0.3, ge=0)  # cells whose offspring did well, and cells rarely tried
    elite_uniform: float = Field(default=0.2, ge=0)  # any cell

    @model_validator(mode="after")
    def _selects_something(self) -> SelectionWeights:
        if not self.speed_weighted + self.curiosity + self.elite_uniform > 0:
            raise ValueError("at least one selection weight must be positive")
        return self


class KnowledgeSettings(BaseModel):
    """What earlier runs count beside this one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    earlier_weight: float = Field(default=0.7, ge=0, le=1)  # of an attempt of an earlier run; one of this run counts 1
    other_gpu_weight: float = Field(default=0.5, ge=0, le=1)  # times this, where it was on another GPU
    half_life_days: float = Field(default=180.0, gt=0)  # and half as much for every so many days since
    most_tries: float = Field(default=4.0, gt=0)  # earlier attempts count for so many at most, of each thing known
    fading: float = Field(default=0.95, gt=0, le=1)  # what an attempt keeps of its weight at the next of its technique


class IslandSettings(BaseModel):
    """The settings of one island."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    in_flight: int = Field(default=0, ge=0)  # candidates that were asked and not yet told; 0: whatever is asked for
    migration_interval: int = Field(default=20, ge=1)  # tells between two migrations
    migration_size: int = Field(default=2, ge=0)  # elites that are offered each time
    stagnation_window: int = Field(default=64, ge=1)  # verdicts without improvement that make an island stagnant
    stagnation_margin: float = Field(default=0.01, gt=0, lt=1)  # what counts as an improvement, relative
    selection: SelectionWeights = SelectionWeights()
    n_exploited: int = Field(default=3, ge=1)  # the fastest elites, of which speed-weighted selection draws
    widening: int = Field(default=32, ge=1)  # verdicts without a faster program until the weights hold fully
    bandit_exploration: float = Field(default=0.15, ge=0, le=1)  # share of calls spread evenly over the techniques
    operator_choice: Literal["knowledge", "bandit", "random"] = "knowledge"  # what shares the calls among techniques
    knowledge: KnowledgeSettings = KnowledgeSettings()
    max_attempts: int = Field(default=48, ge=1)  # draws for one candidate before an island says that it has nothing new
