"""Migration: where the elites of an island go. A *topology* names the targets; topologies are one file each."""

from islands.migration.base import Topology
from islands.migration.fully_connected import FullyConnected
from islands.migration.ring import Ring
from islands.migration.star import Star
from islands.registry import look_up

TOPOLOGIES: dict[str, type[Topology]] = {topology.name: topology for topology in (Ring, Star, FullyConnected)}


def make_topology(name: str) -> Topology:
    """A topology by its name. Raises ConfigError when there is none of this name."""
    return look_up("migration topology", name.replace("_", "-"), TOPOLOGIES)()


__all__ = ["TOPOLOGIES", "FullyConnected", "Ring", "Star", "Topology", "make_topology"]
