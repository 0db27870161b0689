"""Knowledge: what techniques are worth on programs that are slow for a given reason.

A *situation* is a program that is about to be edited: the state that keeps it from being faster, and the technique that
made it. An *attempt* is one technique tried in a situation, with what was predicted, what was measured and why the two
differ. The `KnowledgeBase` starts from the evidence of earlier runs, learns from every attempt of this one, and is
sampled to choose what to try next.
"""

from islands.knowledge.base import KnowledgeBase
from islands.knowledge.causes import cause_of
from islands.knowledge.experience import Experience, ExperienceMemory
from islands.knowledge.situation import Attempt, PriorKnowledge, Situation, Standing
from islands.knowledge.summary import KnowledgeSummary

__all__ = [
    "Attempt",
    "Experience",
    "ExperienceMemory",
    "KnowledgeBase",
    "KnowledgeSummary",
    "PriorKnowledge",
    "Situation",
    "Standing",
    "cause_of",
]
