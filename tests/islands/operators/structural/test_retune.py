"""retune and its neighbours draw what threads, rows and shared memory hold, in kernels with tiles of two dimensions."""

from __future__ import annotations

import random
import re

import pytest
from support.compiling import compile_all
from support.parents import kernel_sources, parent_of

from islands.operators.structural.loop_pipeline import LoopPipeline
from islands.operators.structural.retune import Retune
from islands.operators.structural.tile_size import TileSize

# rows of 1500, three walks' worth of state; as Inductor configures rows of 65536
LAYER_NORM = kernel_sources()["inductor_layer_norm"].replace("R0_BLOCK = 128", "R0_BLOCK = 1024")
LONG = LAYER_NORM.replace("XBLOCK = 2", "XBLOCK = 1").replace("1500, XBLOCK=", "65536, XBLOCK=")
SETTING = re.compile(r"(\w+) of \w+ (\w+) -> (\d+)")
HOPPER_BYTES = 232448


def draws(source: str, n_draws: int) -> list[dict[str, int]]:
    found = [Retune().propose([parent_of(source)], random.Random(seed)) for seed in range(n_draws)]
    assert all(found)
    return [{name: int(new) for name, _, new in SETTING.findall(p.detail)} for p in found if p is not None]


@pytest.mark.parametrize(("source", "now", "longest"), [(LAYER_NORM, 2, 2048), (LONG, 1, 65536)])
def test_draws_suit_threads_and_rows(source: str, now: int, longest: int) -> None:
    drawn = draws(source, 80)
    tiles = {values["R0_BLOCK"] for values in drawn if "R0_BLOCK" in values}
    assert len(tiles) >= 4 and max(tiles) <= longest
    for values in drawn:
        elements = values.get("XBLOCK", now) * values.get("R0_BLOCK", 1024)
        per_thread = elements / (32 * values.get("num_warps", 4))
        assert 0.5 <= per_thread <= 64 and elements <= 32768, values


def test_a_tile_alone_is_no_longer_than_the_row() -> None:
    found = [TileSize().propose([parent_of(LAYER_NORM)], random.Random(seed)) for seed in range(60)]
    tiles = [SETTING.findall(p.detail)[0] for p in found if p is not None]
    rows = {int(new) for name, _, new in tiles if name == "R0_BLOCK"}
    assert len(rows) >= 3 and max(rows) == 2048


def test_loops_that_do_not_run_ahead_are_not_told_so() -> None:
    """`num_stages=1` is the same machine code as nothing."""
    assert 1 not in {values.get("num_stages") for values in draws(LONG, 60)}
    found = [LoopPipeline().propose([parent_of(LONG)], random.Random(seed)) for seed in range(40)]
    assert all(found) and not any(p.detail.endswith(" -> 1") for p in found if p is not None)


def test_loads_that_run_ahead_fit_shared_memory() -> None:
    wide = LONG.replace("R0_BLOCK = 1024", "R0_BLOCK = 8192").replace("num_warps=4", "num_warps=16")
    found = {p.source for seed in range(8) if (p := LoopPipeline().propose([parent_of(wide)], random.Random(seed)))}
    details = sorted(len(re.findall("num_stages=[2-9]", source)) for source in found)
    assert details and details[-1] == 1
    taken = [launches[0][3] for launches in compile_all(sorted(found))]
    assert max(taken) > 100_000 and max(taken) <= HOPPER_BYTES
    eight = wide.replace("tl.range(0, r0_numel, R0_BLOCK)", "tl.range(0, r0_numel, R0_BLOCK, num_stages=8)")
    assert compile_all([eight])[0][0][3] > HOPPER_BYTES
