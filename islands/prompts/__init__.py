"""Prompts: what a language model is told, as text that people can read and change.

A *prompt* is rendered from a template and *facts*: what is known of a problem, a GPU and the programs so far, taken
from records. Rendering is pure and keeps to a budget of tokens; what is cut first is stated in `renderer`. Sources and
messages of tools are quoted as data, so that nothing in a candidate can speak to the model.
"""

from islands.prompts.facts import (
    AttemptFacts,
    Facts,
    FailureFacts,
    FusionFacts,
    ProblemFacts,
    ProgramFacts,
    StepFacts,
    TechniqueFacts,
)
from islands.prompts.renderer import Prompt, render

__all__ = [
    "AttemptFacts",
    "Facts",
    "FailureFacts",
    "FusionFacts",
    "ProblemFacts",
    "ProgramFacts",
    "Prompt",
    "StepFacts",
    "TechniqueFacts",
    "render",
]
