"""Moves: what an operator says about one program, in words that hold for all of them."""

from __future__ import annotations

import pytest

from db.moves import MOST_LETTERS, direction_of, move_of

MOVES = [
    ("tile_size", "BLOCK of softmax_kernel 1024 -> 4096", "tile x4", "tile_size up"),
    ("tile_size", "BLOCK_N of matmul_kernel 128 -> 32", "tile x1/4", "tile_size down"),
    ("host_constant", "SPLIT 4 -> 8", "tile x2", "host_constant up"),
    ("num_warps", "num_warps of k 4 -> 8", "num_warps 8", "num_warps up"),
    ("max_registers", "maxnreg of k unset -> 64", "maxnreg 64", "max_registers up"),
    ("loop_pipeline", "num_stages of the loop in line 12 of k unset -> 3", "num_stages 3", "loop_pipeline up"),
    ("retune", "num_warps of k 4 -> 1, BLOCK of k 64 -> 32", "num_warps 1, tile x1/2", "retune down"),
    ("retune", "num_warps of k 4 -> 8, BLOCK of k 64 -> 32", "num_warps 8, tile x1/2", "retune num_warps #, tile x#/#"),
    ("loop_flatten", "flatten of the loop in line 3 of k unset -> True", "flatten True", "loop_flatten to True"),
    ("precision", 'k/dot0/input_precision unset -> "ieee"', 'input_precision "ieee"', 'precision to "ieee"'),
    ("eviction_policy", "evict_first for store of y_ptr in line 7 of k", "evict_first for store", ""),
    ("cache_modifier", ".cg for all loads of my_kernel", ".cg for all loads", ""),
    ("mask_elision", "5 masks of k where tiles divide the extent", "masks where tiles divide the extent", ""),
    ("mask_elision", "1 mask of k where tiles divide the extent", "mask where tiles divide the extent", ""),
    ("one_pass", "n_cols of k in one tile, 8 warps", "in one tile, 8 warps", "one_pass in one tile, # warps"),
    ("tile_row", "hidden of k in tiles of 512, walks: 2", "in tiles of 512", "tile_row in tiles of #"),
    ("rows_per_program", "4 programs of axis 0 of k in one", "4 programs of axis 0 in one", ""),
    ("swizzle", "programs of k in groups of 8", "programs in groups of 8", "swizzle programs in groups of #"),
    ("defer_reduction", "sum into total of k after its loop", "sum after its loop", ""),
    ("online_softmax", "m and s of k in one walk", "in one walk", ""),
    ("exp2", "2 of exp and log to base 2 in my_kernel", "exp and log to base 2", ""),
    ("split_reduction", "loop in line 9 of k in 4 shares", "loop in 4 shares", ""),
    ("crossover", "k/0/num_warps of 5f1c", "", "crossover"),
    ("anything", "", "", "anything"),
]


@pytest.mark.parametrize(("technique", "detail", "move", "direction"), MOVES)
def test_moves_and_directions(technique: str, detail: str, move: str, direction: str) -> None:
    assert move_of(technique, detail) == move
    if direction:
        assert direction_of(technique, detail) == direction


def test_prose_about_one_program_is_no_move() -> None:
    assert move_of("mutate", "the outer loop was moved " + "and again " * MOST_LETTERS) == ""
