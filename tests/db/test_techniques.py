"""The technique catalogue is whole, says the truth about the operators, and advises what an engineer would."""

from __future__ import annotations

import pytest

from db.errors import ConfigError
from db.profile import Bottleneck, KernelKind
from db.records import PrecisionClass
from db.techniques import EXAMPLE, LIMITERS, load_catalogue, read_catalogue, techniques_for
from islands.operators.structural import structural_operators

RIGHT = """
num_warps:
  changes: How many warps share a tile.
  addresses: [memory_latency]
  source: Triton documentation, triton.Config
  applied_by: {structural: num_warps}
"""


def operator_names() -> set[str]:
    return {operator.name for operator in structural_operators()}


def test_the_catalogue_is_large_and_every_instruction_says_how_to_verify() -> None:
    catalogue = load_catalogue()
    assert len(catalogue) >= 40
    for entry in catalogue.values():
        assert entry.preconditions and entry.risks, entry.name
        assert not entry.applied_by.instruction or "Verify" in entry.applied_by.instruction, entry.name


def test_every_structural_operator_has_an_entry_that_names_it() -> None:
    catalogue = load_catalogue()
    for name in operator_names():
        assert catalogue[name].applied_by.structural == name


def test_every_operator_that_an_entry_names_exists() -> None:
    entries = [entry for entry in load_catalogue().values() if entry.applied_by.structural]
    assert all(entry.applied_by.structural == entry.name for entry in entries)
    assert {entry.name for entry in entries} == operator_names()


@pytest.mark.parametrize("bottleneck", Bottleneck)
def test_every_bottleneck_is_mainly_addressed_by_an_operator_and_by_an_instruction(bottleneck: Bottleneck) -> None:
    entries = [entry for entry in load_catalogue().values() if bottleneck in entry.addresses]
    mainly = [entry for entry in entries if entry.addresses[0] == bottleneck]
    assert len(entries) >= 3
    assert any(entry.applied_by.structural for entry in entries)
    assert any(entry.applied_by.instruction for entry in mainly)


def test_nothing_is_said_twice() -> None:
    for entry in load_catalogue().values():
        for values in (entry.addresses, entry.limiters, entry.kinds):
            assert len(set(values)) == len(values), entry.name
        assert set(entry.limiters) <= LIMITERS


def test_what_was_seen_counts_for_kernels_that_the_technique_is_for() -> None:
    for entry in load_catalogue().values():
        for seen in entry.seen:
            assert seen.successes + seen.failures > 0
            assert not entry.kinds or set(seen.kinds) <= set(entry.kinds), entry.name


def test_counts_of_the_first_publication_are_complete() -> None:
    """KernelOPT's table 4: 4 rows for products (10 won, 0 lost), 14 pointwise (175, 6), 2 for reductions (7, 2)."""
    rows = [s for e in load_catalogue().values() for s in e.seen if s.source.startswith("KernelOPT, table 4")]
    assert len(rows) == 20
    assert (sum(s.successes for s in rows), sum(s.failures for s in rows)) == (192, 8)


@pytest.mark.parametrize(
    ("primary", "limiter", "kind", "among_the_first"),
    [
        (Bottleneck.DRAM_BANDWIDTH, "long_scoreboard", KernelKind.ROW, {"online_softmax", "one_pass", "keep_for_walk"}),
        (Bottleneck.DRAM_BANDWIDTH, "lg_throttle", KernelKind.ELEMENTWISE, {"vectorised_accesses", "coalesced_tiles"}),
        (Bottleneck.MEMORY_LATENCY, "long_scoreboard", KernelKind.MATMUL, {"num_stages", "loop_pipeline"}),
        (Bottleneck.TENSOR_CORES, "math_pipe_throttle", KernelKind.MATMUL, {"precision", "warp_specialize"}),
        (Bottleneck.ARITHMETIC, "math_pipe_throttle", KernelKind.ELEMENTWISE, {"exp2", "fast_division"}),
        (Bottleneck.SYNCHRONISATION, "barrier", KernelKind.ROW, {"defer_reduction", "row_per_warp", "tree_reduction"}),
        (Bottleneck.PARALLELISM, "grid", KernelKind.MATMUL, {"split_k", "stream_k"}),
        (Bottleneck.PARALLELISM, "grid", KernelKind.REDUCTION, {"split_reduction"}),
        (Bottleneck.PARALLELISM, "grid", KernelKind.SCAN, {"scan_by_parts"}),
        (Bottleneck.SPILLS, "registers", KernelKind.ROW, {"tile_row", "reduce_register_pressure"}),
        (Bottleneck.LAUNCHES, "", KernelKind.ELEMENTWISE, {"fuse_neighbours", "merge_launches"}),
    ],
)
def test_what_an_engineer_would_try_first_comes_first(
    primary: Bottleneck, limiter: str, kind: KernelKind, among_the_first: set[str]
) -> None:
    assert among_the_first <= set(techniques_for(primary, None, limiter, kind)[:8])


@pytest.mark.parametrize("primary", Bottleneck)
@pytest.mark.parametrize("kind", KernelKind)
def test_what_addresses_the_primary_bottleneck_comes_before_all_else(primary: Bottleneck, kind: KernelKind) -> None:
    names = techniques_for(primary, Bottleneck.MEMORY_LATENCY, "long_scoreboard", kind)
    hits = [primary in load_catalogue()[name].addresses for name in names]
    assert hits == sorted(hits, reverse=True)
    assert sum(hits) >= 3
    assert len(set(names)) == len(names)


def test_limiter_and_secondary_bottleneck_move_a_technique_forward() -> None:
    def place(name: str, secondary: Bottleneck | None, limiter: str) -> int:
        return techniques_for(Bottleneck.MEMORY_LATENCY, secondary, limiter, KernelKind.ROW).index(name)

    plain = place("max_registers", None, "")
    assert place("max_registers", None, "registers") < plain
    assert place("max_registers", Bottleneck.PARALLELISM, "registers") < place("max_registers", None, "registers")


def test_what_makes_no_sense_for_a_kind_is_left_out() -> None:
    assert "split_k" not in techniques_for(Bottleneck.PARALLELISM, None, "grid", KernelKind.ROW)
    assert "online_softmax" not in techniques_for(Bottleneck.DRAM_BANDWIDTH, None, "", KernelKind.ELEMENTWISE)


def test_what_has_nothing_to_do_with_a_state_is_left_out() -> None:
    assert "exp2" not in techniques_for(Bottleneck.LAUNCHES, None, "grid", KernelKind.ROW)
    assert "" not in techniques_for(Bottleneck.LAUNCHES)


def test_relaxed_techniques_are_for_relaxed_searches() -> None:
    state = (Bottleneck.TENSOR_CORES, None, "math_pipe_throttle", KernelKind.MATMUL)
    assert "tf32_products" not in techniques_for(*state)
    relaxed = techniques_for(*state, precision=PrecisionClass.RELAXED)
    assert "tf32_products" in relaxed[:8] and "precision" in relaxed


def test_published_wins_and_losses_order_what_is_otherwise_equal() -> None:
    text = RIGHT + RIGHT.replace("num_warps:", "better:") + "  seen: [{successes: 4, failures: 0, source: a table}]\n"
    entries = read_catalogue(text, "here")
    assert (entries["better"].successes, entries["num_warps"].successes) == (4, 0)
    names = techniques_for(Bottleneck.DRAM_BANDWIDTH, None, "", KernelKind.ELEMENTWISE)
    assert list(load_catalogue()).index("alignment_hints") < list(load_catalogue()).index("coalesced_tiles")
    assert names.index("coalesced_tiles") < names.index("alignment_hints")  # 3 to 0, 2 to 0


def test_the_catalogue_cannot_be_written_to() -> None:
    with pytest.raises(TypeError):
        load_catalogue()["num_warps"] = load_catalogue()["retune"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        (RIGHT.replace("memory_latency", "memory_latncy"), 4, "addresses"),
        (RIGHT.replace("[memory_latency]", "[]"), 4, "addresses"),
        (RIGHT + "  limiters: [barrier, long_scorebord]\n", 7, "unknown limiter 'long_scorebord'"),
        (RIGHT + "  kindz: [row]\n", 7, "kindz"),
        (RIGHT.replace("{structural: num_warps}", "{}"), 6, "needs `structural`, `instruction`, or both"),
        (RIGHT.replace("  source: Triton documentation, triton.Config\n", ""), 2, "source"),
        (RIGHT + "  seen: [{successes: -1, failures: 0, source: a table}]\n", 7, "seen.0.successes"),
        (RIGHT.replace("num_warps:", "Num-Warps:"), 2, "name"),
        (RIGHT + RIGHT, 8, "twice"),
        ("num_warps: 4", 1, "expected a mapping"),
        ("- num_warps", 1, "expected a mapping of names"),
        ("", 1, "expected a mapping of names"),
        (RIGHT + "  risks: [a\n", 8, "no YAML"),
    ],
)
def test_a_broken_file_is_told_with_entry_line_and_example(text: str, line: int, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_catalogue(text, "some.yaml")
    assert caught.value.message.startswith(f"some.yaml, line {line}: ")
    assert says in caught.value.message
    assert "right entry" in caught.value.hint


def test_the_example_of_a_right_entry_is_right() -> None:
    entries = read_catalogue(EXAMPLE[EXAMPLE.index("num_warps:") :], "the example")
    assert entries["num_warps"].addresses == (Bottleneck.MEMORY_LATENCY,)
