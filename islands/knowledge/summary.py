"""What a knowledge base says about itself, in counts."""

from __future__ import annotations

from db.records import Record


class KnowledgeSummary(Record):
    """A knowledge base at one moment."""

    n_prior: int = 0  # attempts of earlier runs that it started from
    n_attempts: int = 0  # of this run
    n_states: int = 0  # in which it has seen an attempt, here or before
    n_remembered: int = 0  # in the experience memory
    avoided: tuple[str, ...] = ()  # techniques that are flagged for some kind of kernel: "row/persistent"
    excluded: tuple[str, ...] = ()  # directions that may not be taken now
    n_predicted: int = 0
    mean_error_octaves: float | None = None  # mean absolute difference between predicted and measured gain
