"""The stage: what an island knows when a conversation begins, in facts for a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from db.measures import MeasureSpace, Tier
from db.techniques import load_catalogue
from islands.grid import Occupant
from islands.knowledge import Experience, KnowledgeBase, Situation
from islands.knowledge.situation import kernel_kind_of
from islands.operators.llm.ancestry import Ancestry
from islands.operators.llm.attempts import attempt_in_words
from islands.operators.llm.dialogue import Brief, DialogueSettings
from islands.operators.llm.notebook import Notebook
from islands.prompts import Facts, ProgramFacts
from islands.prompts.facts import (
    TechniqueFacts,
    avoid_facts,
    gpu_facts,
    lineage_steps,
    memory_facts,
    problem_facts,
    program_facts,
    technique_facts,
)
from islands.prompts.notes import notes_on

N_TECHNIQUES = 6
N_ADVISED = 3
"""Techniques that a prompt shows, and how many of them at least are those that the bottleneck report advises."""

N_LEARNT = 3
"""Techniques that a prompt shows besides, of those that reflection came upon."""

N_ATTEMPTS = 6
"""Attempts of models that a prompt shows, the last ones."""


@dataclass(frozen=True)
class Stage:
    """`facts` are those that every prompt of the run says: the problem, the GPU, notes on Triton."""

    brief: Brief
    settings: DialogueSettings
    facts: Facts
    elites: Sequence[Occupant]  # fastest first
    ancestry: Ancestry
    notebook: Notebook
    knowledge: KnowledgeBase | None = None
    under_way: frozenset[str] = frozenset()  # operators whose conversations are not over

    def about(self, parent: Occupant) -> Facts:
        """Everything that is known of one parent, and what the search knows besides."""
        return self.facts._replace(
            parents=(self.program(parent),),
            lineage=lineage_steps([one.as_evaluation() for one in self.ancestry.chain(parent)]),
            inspirations=tuple(self.program(other) for other in self.inspirations((parent,))),
            techniques=self.techniques(parent),
            memory=self.memory(),
            advice=self.notebook.reflections.taught.advice,
            avoid=self.avoid(parent),
            n_plans=self.settings.n_plans,
        )

    def program(self, occupant: Occupant, strengths: Sequence[str] = ()) -> ProgramFacts:
        """A program with what the judge said of it."""
        opinion = self.notebook.reflections.taught.opinion_on(occupant.program_id)
        return program_facts(occupant.candidate.source, occupant.verdict, self.brief.hardware, strengths, opinion)

    def inspirations(self, parents: Sequence[Occupant]) -> list[Occupant]:
        """Elites unlike the parents and unlike each other: of other tiers first, then of other latencies."""
        ids = {parent.program_id for parent in parents}
        left = [elite for elite in self.elites if elite.program_id not in ids]
        shown = [_cell(parent) for parent in parents]
        chosen: list[Occupant] = []
        while left and len(chosen) < self.settings.n_inspirations:
            best = min(left, key=lambda elite: (_n_alike(elite, shown), elite.rank))
            left.remove(best)
            chosen.append(best)
            shown.append(_cell(best))
        return chosen

    def techniques(self, parent: Occupant) -> tuple[TechniqueFacts, ...]:
        """What the bottleneck report advises and what knowledge expects most of, the most promising first; then what
        was learnt and addresses the same."""
        learnt = self.notebook.reflections.taught.techniques_for(parent.verdict.bottleneck)
        return (*self._catalogued(parent), *technique_facts(learnt[-N_LEARNT:]))

    def _catalogued(self, parent: Occupant) -> tuple[TechniqueFacts, ...]:
        catalogue = load_catalogue()
        report = parent.verdict.bottleneck
        advised = [name for name in (report.techniques if report else ()) if name in catalogue]
        if self.knowledge is None:
            return technique_facts([catalogue[name] for name in advised[:N_TECHNIQUES]])
        fitting = [
            name
            for name, entry in catalogue.items()
            if name in advised or (report and entry.suits(report.state.kernel_kind, self.brief.precision))
        ]
        ranked = self.knowledge.rank(_situation(parent), fitting)
        kept = [name for name in advised if name in ranked][:N_ADVISED]
        kept += [name for name in ranked if name not in kept][: N_TECHNIQUES - len(kept)]
        return technique_facts([catalogue[name] for name in sorted(kept, key=list(ranked).index)], ranked)

    def memory(self) -> tuple[str, ...]:
        """Lessons, what stood out, and what models tried of late with what came of it."""
        attempts = list(self.notebook.attempts)[-N_ATTEMPTS:]
        told = {(attempt.technique, attempt.octaves) for attempt in attempts}
        held: Sequence[Experience] = self.knowledge.memory.held if self.knowledge else ()
        others = [one for one in held if (one.technique, one.octaves) not in told]
        return (
            *memory_facts(others, self.notebook.reflections.taught.lessons),
            *(attempt_in_words(one) for one in attempts),
        )

    def avoid(self, parent: Occupant) -> tuple[str, ...]:
        """What hardly ever works on kernels like this one, where the search went too often, what reflection says."""
        told = self.notebook.reflections.taught.avoid
        if self.knowledge is None:
            return told
        kind = kernel_kind_of(_situation(parent).state)
        return (*avoid_facts(self.knowledge.avoided, kind, self.knowledge.excluded), *told)


def facts_of(brief: Brief) -> Facts:
    """What every prompt of a run says."""
    return Facts(
        problem=problem_facts(brief.problem, brief.precision, brief.allowed_operations),
        gpu=gpu_facts(brief.hardware),
        notes=notes_on(brief.triton_version),
    )


def _situation(parent: Occupant) -> Situation:
    return Situation.of(parent.verdict, parent.candidate.lineage.technique)


def _cell(program: Occupant) -> tuple[Tier | None, int]:
    return program.verdict.tier, MeasureSpace().latency_bin_of(program.latency_us)


def _n_alike(program: Occupant, shown: Sequence[tuple[Tier | None, int]]) -> tuple[int, int]:
    """How many of the shown have its tier, and how many its latency."""
    tier, latency_bin = _cell(program)
    return sum(tier == one for one, _ in shown), sum(latency_bin == one for _, one in shown)
