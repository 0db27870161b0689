"""Ray: start or join a cluster, and place the actors of a run on it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from db.errors import ClusterError, EvolveError

T = TypeVar("T")

NODE_ANSWERS_S = 120.0  # starting a process included
REACH_S = 5.0  # how long a cluster may take to answer at all; Ray itself would try for minutes


def check_reachable(address: str = "") -> None:
    """Make sure that somebody listens at an address of a cluster, `host:port`, if it is one.

    Raises:
        ClusterError: nobody does, within seconds; or the address is one of Ray Client.
    """
    address = address or os.environ.get("RAY_ADDRESS", "")
    if address.startswith("ray://"):
        raise ClusterError(
            f"cannot run through Ray Client ({address}): the archive would lie on another machine than this",
            "start the run on a node of it: --ray-address HOST:6379",
        )
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        return  # "auto", "local" and the like: Ray knows at once
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_S).close()
    except (OSError, OverflowError) as error:
        raise _unreachable(address, str(error)) from None


def _unreachable(address: str, reason: str) -> ClusterError:
    if not address:
        return ClusterError(f"cannot start Ray on this machine: {reason}", "check `ray status`")
    hint = "check `ray status` on its head, and its token: RAY_AUTH_MODE=token, ~/.ray/auth_token as on the head"
    return ClusterError(f"cannot reach the Ray cluster at {address!r}: {reason}", hint)


@contextlib.contextmanager
def connected(address: str = "", *, needs_gpu: bool = False) -> Iterator[None]:
    """Inside, Ray runs: one started on this machine, or the cluster at `address`, or the one that this process uses
    already, which goes on afterwards.

    Raises:
        ClusterError: the cluster cannot be reached or started, or it has no GPU and one is needed.
    """
    is_ours = not ray.is_initialized()
    try:
        if is_ours:
            _initialise(address)
        if needs_gpu and count_gpus() < 1:
            raise ClusterError("the Ray cluster has no GPU", "start a node with --num-gpus, or use --device cpu")
        yield
    finally:
        if is_ours:
            ray.shutdown()


def _initialise(address: str) -> None:
    # workers must not import from the folder they happen to stand in (python -P)
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    options: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    try:
        with _patient():
            # "local" starts a cluster of our own: a run must not land on one that somebody else left running
            ray.init(address=address or os.environ.get("RAY_ADDRESS") or "local", **options)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise _unreachable(address, first) from None


@contextlib.contextmanager
def _patient() -> Iterator[None]:
    """Hold a Ctrl-C back until the end: Ray may crash where it is interrupted while it starts. A second one counts."""
    held: list[int] = []

    def hold(number: int, _: object) -> None:
        if held:
            raise KeyboardInterrupt
        held.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if held:
        raise KeyboardInterrupt


def count_gpus() -> int:
    """GPUs of the cluster."""
    return int(ray.cluster_resources().get("GPU", 0))


def count_free_gpus() -> int:
    """GPUs of the cluster that no actor holds or waits for."""
    return int(ray.available_resources().get("GPU", 0))


def count_cpus() -> int:
    """CPU cores of the cluster."""
    return int(ray.cluster_resources().get("CPU", 1))


async def answer(reference: Awaitable[T]) -> T:
    """Await an actor's answer; a user's error raised inside the actor comes out as itself.

    Raises:
        EvolveError: as the actor raised it.
        RayActorError: the actor died.
    """
    try:
        return await reference
    except RayTaskError as error:
        if isinstance(error.cause, EvolveError):
            raise error.cause from None
        raise


ActorDied = RayActorError
_RESTARTING = "restarting"  # as Ray says it of an actor that waits for a place to live
WorkerFailed = RayError  # it died, or what it did raised something that is no user's error


def was_reached(error: RayActorError) -> bool:
    """False where a call surely never began: its actor was waiting for a node to start again on."""
    return not (isinstance(error, ActorUnavailableError) and _RESTARTING in str(error))


def why_it_died(error: RayError) -> str:
    """One line: what its constructor or its task raised, where it lived to raise it, or how its process ended."""
    lines = re.sub(r"\x1b\[\d*m", "", str(error)).strip().splitlines()
    has_raised = isinstance(error, RayTaskError) or "creation task" in lines[0]
    return lines[-1 if has_raised else 0].strip()


async def close_actors(actors: Sequence[Any], timeout_s: float) -> None:
    """Call `close` on actors, some of which may be dead, and wait for all of them or for the time."""
    closing = [asyncio.ensure_future(_closed(actor)) for actor in actors]
    if closing:
        await asyncio.wait(closing, timeout=timeout_s)


async def _closed(actor: Any) -> None:
    with contextlib.suppress(RayError):
        await actor.close.remote()


def kill(actors: Sequence[Any]) -> None:
    """End actors that have nothing left to put in order."""
    for actor in actors:
        ray.kill(actor)


def on_this_node() -> dict[str, Any]:
    """Actor options that keep an actor on the machine of the driver: where its files are."""
    return _on(ray.get_runtime_context().get_node_id())


def _on(node_id: str) -> dict[str, Any]:
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node_id=node_id, soft=False)}


class Node(NamedTuple):
    """A machine of the cluster."""

    node_id: str
    address: str


def other_nodes() -> list[Node]:
    """The nodes that live, without that of the driver."""
    here = ray.get_runtime_context().get_node_id()
    alive = [node for node in ray.nodes() if node["Alive"] and node["NodeID"] != here]
    return [Node(node["NodeID"], node["NodeManagerAddress"]) for node in alive]


def run_on(nodes: Sequence[Node], work: Callable[[], T]) -> list[T]:
    """What a function answers on each of some nodes.

    Raises:
        ClusterError: a node does not answer.
    """
    remote = ray.remote(num_cpus=0)(work)
    references = [remote.options(**_on(node.node_id)).remote() for node in nodes]
    try:
        return list(ray.get(references, timeout=NODE_ANSWERS_S))
    except RayError as error:
        reason = str(error).strip().splitlines()[0]
        raise ClusterError(f"a node of the cluster does not answer: {reason}", "check `ray status`") from error
