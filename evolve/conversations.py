"""Conversations with language models between two sittings of a run: what was paid for waits in the archive."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from evolve.cluster import answer
from islands.dialogues import DialoguesState


async def dumped(islands: Sequence[Any]) -> dict[int, Any]:
    """Where the conversations of each island stand, as the archive keeps them: by island, JSON."""
    states = await asyncio.gather(*(answer(island.dump_dialogues.remote()) for island in islands))
    return {index: state.model_dump(mode="json", round_trip=True) for index, state in enumerate(states)}


async def keep(archive: Any, run_id: str, islands: Sequence[Any]) -> None:
    """Store where the conversations of all islands stand, for the next sitting."""
    await answer(archive.exchange.remote(run_id, [], [], await dumped(islands)))


async def take_up(archive: Any, run_id: str, islands: Sequence[Any], *, is_once: bool) -> None:
    """Give islands back the conversations of the last sitting, before they are told what it judged.

    Args:
        is_once: they are deleted with it: if this sitting is killed, nobody is asked or carries out the same again.
    """
    kept: dict[int, Any] = await answer(archive.llm_dialogues.remote(run_id))
    states = {index: DialoguesState.model_validate(state) for index, state in kept.items() if state is not None}
    for index, state in states.items():
        await answer(islands[index].restore_dialogues.remote(state))
    if is_once and states:
        await answer(archive.exchange.remote(run_id, [], [], dict.fromkeys(states)))
