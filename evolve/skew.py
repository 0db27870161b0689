"""Whether the nodes of a cluster run the same software: version skew is found before it shows as something else."""

from __future__ import annotations

from collections.abc import Callable

from db.errors import ClusterError
from db.records import Record
from evolve import cluster
from evolve.cluster import Node

SAME_VERSION = "install the same version of this package, of torch and of triton on every node"


class NodeSoftware(Record):
    """What is installed on a node. Versions are empty where a package is missing."""

    package: str = ""  # version of this package
    digest: str = ""  # of its files
    torch: str = ""  # without what it was built for: the head may have one for CPUs
    triton: str = ""


def software_probe() -> Callable[[], dict[str, str]]:
    """A function that says what is installed where it runs. It travels whole, because this package may be missing."""

    def look() -> dict[str, str]:
        import hashlib
        import importlib.util
        from importlib import metadata
        from pathlib import Path

        def version(name: str) -> str:
            try:
                return metadata.version(name).partition("+")[0]
            except metadata.PackageNotFoundError:
                return ""

        digest = hashlib.sha256()
        for room in ("configs", "db", "evaluators", "evolve", "islands"):
            spec = importlib.util.find_spec(room)
            if spec is None or spec.origin is None:
                continue
            home = Path(spec.origin).parent
            for file in sorted(home.rglob("*")):
                if file.suffix in (".py", ".sql", ".yaml", ".json", ".txt"):
                    digest.update(f"{room}/{file.relative_to(home)}\n".encode() + file.read_bytes())
        named = {"package": "triton-evolve", "torch": "torch", "triton": "triton"}
        return {key: version(name) for key, name in named.items()} | {"digest": digest.hexdigest()[:12]}

    return look


def skew_of_others() -> list[tuple[Node, str]]:
    """The nodes of the cluster whose software differs from that of this process, with what differs. Takes seconds where
    there are other nodes."""
    nodes = cluster.other_nodes()
    if not nodes:
        return []
    own = NodeSoftware.model_validate(software_probe()())
    answers = cluster.run_on(nodes, software_probe())
    found = [differs(own, NodeSoftware.model_validate(answer)) for answer in answers]
    return [(node, f"node {node.address} {what}") for node, what in zip(nodes, found, strict=True) if what]


def check_nodes() -> None:
    """Make sure that all nodes of the cluster run the software that this process runs.

    Raises:
        ClusterError: one does not; the message names it and what it has.
    """
    for _, difference in skew_of_others():
        raise ClusterError(difference, SAME_VERSION)


def differs(own: NodeSoftware, other: NodeSoftware) -> str:
    """What is different on another node, or the empty string: "has triton 3.6.0, this one 3.7.1"."""
    if not other.package and other.digest != own.digest:
        return "does not have this package (triton-evolve)"
    for name in ("package", "torch", "triton"):
        here, there = getattr(own, name), getattr(other, name)
        if here != there:
            shown = "triton-evolve" if name == "package" else name
            return f"has {shown} {there or 'not at all'}, this one {here or 'not at all'}"
    if other.digest != own.digest:
        return f"has other files of triton-evolve {other.package} ({other.digest}) than this one ({own.digest})"
    return ""
