"""Topologies: one contract, and that a good program gets everywhere."""

from __future__ import annotations

import random

import pytest
from support.colony import make_island, occupant

from db.errors import ConfigError
from islands.migration import TOPOLOGIES, FullyConnected, Ring, Star, Topology, make_topology

N = 8
MIGRANT_US = 10.0


class TopologyContract:
    """What every topology owes."""

    topology: type[Topology]
    n_rounds: int  # migrations of all islands after which an elite of island 0 is on island 7

    @pytest.mark.parametrize("n_islands", [1, 2, 3, 8, 16])
    def test_targets_are_other_islands_each_once(self, n_islands: int) -> None:
        rng = random.Random(0)
        for island in range(n_islands):
            targets = self.topology().targets(island, n_islands, rng)
            assert targets == sorted(set(targets))
            assert set(targets) <= set(range(n_islands)) - {island}
            assert bool(targets) == (n_islands > 1)

    @pytest.mark.parametrize("island", [-1, 8])
    def test_an_island_that_is_not_there_is_refused(self, island: int) -> None:
        with pytest.raises(ValueError, match="island must be in"):
            self.topology().targets(island, N, random.Random(0))

    def test_it_is_found_by_name(self) -> None:
        assert isinstance(make_topology(self.topology.name), self.topology)

    def test_an_elite_of_island_0_reaches_island_7(self) -> None:
        topology, rng = self.topology(), random.Random(0)
        islands = [make_island(i) for i in range(N)]
        planted = occupant(MIGRANT_US)
        assert islands[0].immigrate([planted.as_evaluation()]) == 1
        for _ in range(self.n_rounds):
            # all leave before any arrives: an elite moves one edge in one migration
            leaving = [island.emigrate(2) for island in islands]
            for source, migrants in enumerate(leaving):
                for target in topology.targets(source, N, rng):
                    islands[target].immigrate(migrants)
        reached = islands[7].elites()
        assert [e.verdict.program_id for e in reached] == [planted.program_id]
        assert [len(island.elites()) for island in islands] == [1] * N

    def test_nothing_moves_once_it_is_everywhere(self) -> None:
        topology, rng = self.topology(), random.Random(0)
        islands = [make_island(i) for i in range(N)]
        islands[3].immigrate([occupant(MIGRANT_US).as_evaluation()])
        n_settled = 0
        for _ in range(3 * N):
            for source, island in enumerate(islands):
                migrants = island.emigrate(2)
                for target in topology.targets(source, N, rng):
                    n_settled += islands[target].immigrate(migrants)
        assert n_settled == N - 1


class TestRing(TopologyContract):
    topology = Ring
    n_rounds = 7

    def test_the_last_sends_to_the_first(self) -> None:
        assert Ring().targets(7, N, random.Random(0)) == [0]


class TestStar(TopologyContract):
    topology = Star
    n_rounds = 1

    def test_leaves_meet_only_in_the_hub(self) -> None:
        assert all(Star().targets(leaf, N, random.Random(0)) == [0] for leaf in range(1, N))


class TestFullyConnected(TopologyContract):
    topology = FullyConnected
    n_rounds = 1


def test_every_topology_is_held_to_the_contract() -> None:
    assert set(TOPOLOGIES) == {contract.topology.name for contract in TopologyContract.__subclasses__()}


def test_archives_may_spell_a_name_as_it_once_was() -> None:
    assert isinstance(make_topology("fully_connected"), FullyConnected)
    assert isinstance(make_topology("fully-connected"), FullyConnected)  # as docs/configuration.md has it


def test_a_misspelt_name_suggests_the_near_one() -> None:
    with pytest.raises(ConfigError) as error:
        make_topology("rign")
    assert "ring" in error.value.hint
