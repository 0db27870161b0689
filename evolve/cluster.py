"""Ray: start or join a cluster, and place the actors of a run on it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from db.errors import ClusterError, EvolveError

T = TypeVar("T")


def connect(address: str = "", *, needs_gpu: bool = False) -> None:
    """Start Ray on this machine, or join the cluster at `address`. Does nothing where Ray runs already.

    Raises:
        ClusterError: the cluster cannot be reached or started, or it has no GPU and one is needed.
    """
    if not ray.is_initialized():
        _initialise(address)
    if needs_gpu and ray.cluster_resources().get("GPU", 0) < 1:
        raise ClusterError("the Ray cluster has no GPU", "start a node with --num-gpus, or use --device cpu")


def _initialise(address: str) -> None:
    # workers must not import from the folder they happen to stand in (python -P)
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    options: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    try:
        # "local" starts a cluster of our own: a run must not land on one that somebody else left running
        ray.init(address=address or os.environ.get("RAY_ADDRESS") or "local", **options)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        where = f"reach the Ray cluster at {address!r}" if address else "start Ray on this machine"
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ClusterError(f"cannot {where}: {first}", "check `ray status`, or leave cluster.address empty") from None


def count_gpus() -> int:
    """GPUs of the cluster."""
    return int(ray.cluster_resources().get("GPU", 0))


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


async def close_actors(actors: Sequence[Any], timeout_s: float) -> None:
    """Call `close` on actors, some of which may be dead, and wait for all of them or for the time."""
    closing = [asyncio.ensure_future(_closed(actor)) for actor in actors]
    if closing:
        await asyncio.wait(closing, timeout=timeout_s)


async def _closed(actor: Any) -> None:
    with contextlib.suppress(RayError):
        await actor.close.remote()


def on_this_node() -> dict[str, Any]:
    """Actor options that keep an actor on the machine of the driver: where its files are."""
    here = ray.get_runtime_context().get_node_id()
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node_id=here, soft=False)}


def disconnect() -> None:
    """End the connection, and with it the actors of this run."""
    ray.shutdown()
