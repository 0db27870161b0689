"""`evolve show`: one program and what is known about it."""

from __future__ import annotations

from typing import Annotated

import typer

from db.opinions import ProgramOpinion
from db.records import Profile, Verdict
from evolve.cli.console import Column, console, print_json, print_table
from evolve.cli.gates import print_gates
from evolve.cli.options import DEFAULT_ARCHIVE, Archive, AsJson
from evolve.cli.source import print_source
from evolve.cli.words import claim
from evolve.queries import Appearance, ProgramStory, reading
from evolve.queries import show as find_program


def show(
    program: Annotated[str, typer.Argument(help="The program id, or its first digits.", metavar="PROGRAM")],
    archive: Archive = DEFAULT_ARCHIVE,
    as_json: AsJson = False,
    no_source: Annotated[bool, typer.Option("--no-source", help="Leave the source out.")] = False,
) -> None:
    """Show one program: its source, verdict and profile."""
    with reading(archive) as reader:
        story = find_program(reader, program)
    if as_json:
        print_json(story.model_dump(mode="json"))
        return
    _print_story(story)
    if not no_source:
        print_source(story.program.source)


def _print_story(story: ProgramStory) -> None:
    out = console()
    out.print(f"program {story.program.program_id} for {story.problem_name or story.program.problem_id}", style="bold")
    if not story.appearances:
        out.print("never judged")
        return
    verdict = story.appearances[0].verdict
    out.print(claim(verdict))
    for line in _details(verdict):
        out.print(line)
    print_gates(verdict)
    for opinion in story.opinions:
        for line in _said(opinion):
            out.print(line)
    print_table([_row(appearance) for appearance in story.appearances], _COLUMNS, title="proposed")


def _said(opinion: ProgramOpinion) -> list[str]:
    """What a judge thinks, for people: it is not the answer of a gate."""
    judge = f"opinion of {opinion.model} (advice, no gate)"
    if not opinion.concerns:
        return [f"{judge}: nothing is left out or faked"]
    concerns = [
        f"  {one.kind.replace('_', ' ')}{f', line {one.line}' if one.line else ''}: {one.what}"
        for one in opinion.concerns
    ]
    return [f"{judge}:", *concerns, *([f"  advice: {opinion.advice}"] if opinion.advice else [])]


def _details(verdict: Verdict) -> list[str]:
    lines = []
    if verdict.tier:
        lines.append(f"tier {verdict.tier.replace('_', ' ')}, {verdict.precision} precision")
    if verdict.latency and verdict.latency.call_us is not None:
        lines.append(f"call latency {verdict.latency.call_us:.1f} us {verdict.latency.kind}, host code included")
    if verdict.profile and verdict.profile.source != "none":
        lines.append(_profile(verdict.profile))
    if verdict.versions:
        lines.append(", ".join(f"{name} {version}" for name, version in verdict.versions.items()))
    return lines


def _profile(profile: Profile) -> str:
    parts = [
        f"compute {profile.compute_sol_pct:.0f}% and memory {profile.memory_sol_pct:.0f}% of speed of light "
        f"({profile.source})"
    ]
    if profile.n_registers is not None:
        parts.append(f"{profile.n_registers} registers")
    if profile.spill_bytes:
        parts.append(f"{profile.spill_bytes} bytes spilled")
    if profile.shared_bytes:
        parts.append(f"{profile.shared_bytes} bytes shared")
    if profile.occupancy is not None:
        limiter = f" by {profile.occupancy_limiter}" if profile.occupancy_limiter else ""
        parts.append(f"occupancy {100 * profile.occupancy:.0f}%{limiter}")
    return ", ".join(parts)


_COLUMNS = [
    Column("candidate", "candidate", is_whole=True, is_spare=True),
    Column("island", "island", is_number=True, is_spare=True),
    Column("operator", "operator", is_spare=True),
    Column("technique", "technique"),
    Column("detail", "detail"),
    Column("parents", "parents", lambda parents: " ".join(p[:12] for p in parents)),
    Column("outcome", "outcome"),
    Column("duplicate_of", "verdict of", lambda program_id: program_id[:12]),
]


def _row(appearance: Appearance) -> dict[str, object]:
    return {
        "candidate": appearance.candidate_id,
        "island": appearance.island,
        "operator": appearance.lineage.operator,
        "technique": appearance.lineage.technique,
        "detail": appearance.lineage.detail,
        "parents": appearance.lineage.parents,
        "outcome": str(appearance.verdict.outcome),
        "duplicate_of": appearance.verdict.duplicate_of,
    }
