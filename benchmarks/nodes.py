"""Nodes of a Ray cluster on one machine: each has its own network, processes and /tmp. Needs root.

    python -m benchmarks.nodes up 2                     # a head without GPUs and a worker; prints the head's address
    python -m benchmarks.nodes exec 0 -- ray status     # a command on node 0, the head
    python -m benchmarks.nodes join 2 --num-gpus 1      # one more node
    python -m benchmarks.nodes leave 1                  # everything on a node dies at once
    python -m benchmarks.nodes cut 1                    # nobody reaches it any more; its processes live on
    python -m benchmarks.nodes down
    python -m benchmarks.nodes around 3 -- COMMAND      # nodes, a command on the head (HEAD: their address), and down

Nodes see one another over a bridge, 10.77.0.0/24, and nothing else: no process of another node, so that `ray stop` ends
those of its own node alone. They share the file system, apart from /tmp.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

BRIDGE = "evolve-br"
PORT = 6379
STATE = Path("/run/evolve-nodes")
TOKEN = STATE / "token"
READY_S = 60.0


def address_of(node: int) -> str:
    return f"10.77.0.{node + 1}"


def head() -> str:
    """Where the cluster is reached."""
    return f"{address_of(0)}:{PORT}"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _space(node: int) -> str:
    return f"evolve-{node}"


def up(n_nodes: int, num_cpus: int) -> None:
    """A bridge and the first nodes; the head has no GPU. What an earlier one left is cleared away.

    Raises:
        SystemExit: nodes are up.
    """
    if any(_pids(node) for node in _present()):
        raise SystemExit("nodes are up: python -m benchmarks.nodes down")
    down()
    STATE.mkdir(exist_ok=True)
    TOKEN.touch(mode=0o600)
    TOKEN.write_text(secrets.token_hex(32))
    _ip("link", "add", BRIDGE, "type", "bridge")
    _ip("link", "set", BRIDGE, "up")
    for node in range(n_nodes):
        join(node, num_cpus, num_gpus=int(node > 0))


def join(node: int, num_cpus: int, num_gpus: int) -> None:
    """A namespace with one address, and Ray in it."""
    space, outside = _space(node), f"evolve-v{node}"
    _ip("netns", "add", space)
    _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", space)
    _ip("link", "set", outside, "master", BRIDGE, "up")
    _ip("-n", space, "addr", "add", f"{address_of(node)}/24", "dev", "eth0")
    for device in ("lo", "eth0"):
        _ip("-n", space, "link", "set", device, "up")
    _start_holder(node)
    place = [f"--node-ip-address={address_of(node)}", f"--num-cpus={num_cpus}", f"--num-gpus={num_gpus}"]
    where = ["--head", f"--port={PORT}", "--include-dashboard=false"] if node == 0 else [f"--address={head()}"]
    _start_ray(node, *where, *place)


def _start_holder(node: int) -> None:
    """The first process of a node, which keeps its namespaces while commands come and go, and ends all with itself."""
    script = "mount -t tmpfs tmpfs /tmp && while :; do sleep 3600; done"
    spaces = ["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command = ["ip", "netns", "exec", _space(node), "unshare", *spaces, "sh", "-c", script]
    nowhere = subprocess.DEVNULL
    outer = subprocess.Popen(command, start_new_session=True, stdout=nowhere, stderr=nowhere)
    deadline = time.monotonic() + READY_S
    while not (holder := _child_of(outer.pid)) or "tmpfs /tmp " not in Path(f"/proc/{holder}/mounts").read_text():
        if time.monotonic() > deadline:
            raise SystemExit(f"node {node} has no /tmp of its own")
        time.sleep(0.05)
    (STATE / str(node)).write_text(holder)


def _child_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().strip()
    except OSError:
        return ""


def _program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def command_on(node: int, command: Sequence[str]) -> list[str]:
    """A command line that runs a command on a node."""
    holder = (STATE / str(node)).read_text()
    return ["nsenter", "--target", holder, "--net", "--mount", "--pid", f"--wd={Path.cwd()}", "--", *command]


def environment() -> dict[str, str]:
    """What every process on a node has to know: the token of this cluster, and how it authenticates."""
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(TOKEN)}
    return {**os.environ, **token, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "EVOLVE_BENCHMARK": "nodes"}


def _start_ray(node: int, *options: str) -> None:
    """Its workers import from no folder that they happen to stand in."""
    command = command_on(node, [_program("ray"), "start", *options, "--disable-usage-stats"])
    nowhere = subprocess.DEVNULL  # what stays alive would keep a pipe open
    subprocess.run(command, env={**environment(), "PYTHONSAFEPATH": "1"}, stdout=nowhere, stderr=nowhere, check=True)


def _run(node: int, command: Sequence[str]) -> int:
    return subprocess.run(command_on(node, command), env=environment(), check=False).returncode


def cut(node: int) -> None:
    """Nobody reaches a node any more, and it reaches nobody."""
    _ip("link", "set", f"evolve-v{node}", "down")


def leave(node: int) -> None:
    """Everything on a node ends at once, as if its machine had been taken away."""
    for pid in _pids(node):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    subprocess.run(["ip", "link", "del", f"evolve-v{node}"], check=False, stderr=subprocess.DEVNULL)
    _ip("netns", "del", _space(node))
    (STATE / str(node)).unlink(missing_ok=True)


def _pids(node: int) -> list[int]:
    answer = subprocess.run(["ip", "netns", "pids", _space(node)], capture_output=True, text=True, check=True)
    return [int(line) for line in answer.stdout.split()]


def down() -> None:
    """No node and no bridge is left."""
    for node in _present():
        leave(node)
    subprocess.run(["ip", "link", "del", BRIDGE], check=False, stderr=subprocess.DEVNULL)


def _present() -> list[int]:
    """Nodes whose namespace is there."""
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout.split()
    return [int(name.removeprefix("evolve-")) for name in names if name.startswith("evolve-")]


def _words(given: Sequence[str]) -> list[str]:
    """A command as it was typed: `python` is this one, HEAD where the cluster is reached."""
    places = {"python": sys.executable, "HEAD": head()}
    return [places.get(word, word) for word in given if word != "--"]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("up", "join"):
        one = commands.add_parser(name)
        one.add_argument("n", type=int, help="how many nodes, or which")
        one.add_argument("--num-cpus", type=int, default=2)
        one.add_argument("--num-gpus", type=int, default=0, help="that the node claims to have (join)")
    for name in ("leave", "cut"):
        commands.add_parser(name).add_argument("n", type=int)
    commands.add_parser("down")
    for name in ("exec", "around"):
        executed = commands.add_parser(name)
        executed.add_argument("n", type=int)
        executed.add_argument("words", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    match options.command:
        case "up":
            up(options.n, options.num_cpus)
            print(head())
        case "join":
            join(options.n, options.num_cpus, options.num_gpus)
        case "leave":
            leave(options.n)
        case "cut":
            cut(options.n)
        case "down":
            down()
        case "exec":
            raise SystemExit(_run(options.n, _words(options.words)))
        case "around":
            up(options.n, max(2, (os.cpu_count() or 2) // options.n))
            try:
                status = _run(0, _words(options.words))
            finally:
                down()
            raise SystemExit(status)


if __name__ == "__main__":
    main()
