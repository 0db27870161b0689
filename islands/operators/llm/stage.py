"""The stage: what an island knows when a conversation begins, in facts for a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from db.techniques import load_catalogue
from islands.grid import Occupant
from islands.operators.llm.ancestry import Ancestry
from islands.operators.llm.dialogue import Brief, DialogueSettings
from islands.operators.llm.notebook import Notebook
from islands.prompts import Facts, ProgramFacts
from islands.prompts.facts import lineage_steps, program_facts, technique_facts


@dataclass(frozen=True)
class Stage:
    """`facts` are those that every prompt of the run says: the problem, the GPU, notes on Triton."""

    brief: Brief
    settings: DialogueSettings
    facts: Facts
    elites: Sequence[Occupant]  # fastest first
    ancestry: Ancestry
    notebook: Notebook

    def about(self, parent: Occupant) -> Facts:
        """Everything that is known of one parent, and what the search knows besides."""
        report = parent.verdict.bottleneck
        catalogue = load_catalogue()
        advised = [catalogue[name] for name in (report.techniques if report else ()) if name in catalogue]
        return self.facts._replace(
            parents=(self.program(parent),),
            lineage=lineage_steps([one.as_evaluation() for one in self.ancestry.chain(parent)]),
            techniques=technique_facts(advised),
            memory=self.notebook.lessons,
            inspirations=tuple(self.program(other) for other in self.inspirations((parent,))),
        )

    def program(self, occupant: Occupant, strengths: Sequence[str] = ()) -> ProgramFacts:
        """A program with what the judge said of it."""
        return program_facts(occupant.candidate.source, occupant.verdict, self.brief.hardware, strengths)

    def inspirations(self, parents: Sequence[Occupant]) -> list[Occupant]:
        """Elites besides the parents."""
        ids = {parent.program_id for parent in parents}
        return [elite for elite in self.elites if elite.program_id not in ids][: self.settings.n_inspirations]
