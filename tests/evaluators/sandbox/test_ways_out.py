"""Nobody gets out of the sandbox by what is neither a file nor a process: sockets, devices, memory that lasts."""

import ctypes
import os
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from db.archive import ProgramArchive
from db.live import ArchiveServer, socket_path
from evaluators.sandbox import Zygote, seccomp
from evaluators.sandbox.devices import usable_devices
from tests.evaluators.sandbox import ways_out
from tests.evaluators.sandbox.aftermath import JOBS

KEY = 0x7E57C0DE
LIBC = ctypes.CDLL(None)


def _device(kind: int, *names: str) -> str:
    """A device file of this machine that nobody may touch, or one that is not there."""
    paths = [*(Path("/dev", name) for name in names), *sorted(Path("/dev").iterdir())]
    return next((str(p) for p in paths if p.exists() and kind == stat.S_IFMT(p.stat().st_mode)), "/dev/none")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What waits outside: somebody who listens at two paths and at a port, devices, a key that nobody uses."""
    folder = tmp_path_factory.mktemp("outside")
    shm = Path("/dev/shm", f"ways-out-{os.getpid()}")
    with ExitStack() as stack:
        stream = stack.enter_context(socket.socket(socket.AF_UNIX))
        stream.bind(str(folder / "socket"))
        stream.listen(64)
        datagrams = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        datagrams.bind(str(folder / "datagrams"))
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        yield {
            "socket": str(folder / "socket"),
            "datagrams": str(folder / "datagrams"),
            "port": str(tcp.getsockname()[1]),
            "key": str(KEY),
            "device": _device(stat.S_IFBLK),
            "memory": _device(stat.S_IFCHR, "mem", "kmsg", "port", "fuse"),
            "shm": str(shm),
        }
    shm.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def found(zygote: Zygote, place: dict[str, str]) -> dict[str, dict[str, str]]:
    with zygote.spawn(JOBS + "try_ways_out", {"place": place}, deadline_s=20) as child:
        answer = child.receive(20)
        assert child.wait().kind == "ok"
    return answer


def test_outside_the_sandbox_these_ways_are_open(place: dict[str, str]) -> None:
    """Or else the other tests would say nothing."""
    for way in (ways_out.path_socket, ways_out.path_datagram, ways_out.tcp, ways_out.udp, ways_out.netlink):
        way(place)
    ways_out.shared_memory(place)
    Path(place["shm"]).unlink()
    ways_out.system_v(place)
    assert _remove_system_v()


def _remove_system_v() -> bool:
    """Whether there was shared memory under the key; a queue goes too."""
    remove = 0
    if (queue := LIBC.msgget(KEY, 0)) >= 0:
        LIBC.msgctl(queue, remove, None)
    identity = LIBC.shmget(KEY, 0, 0)
    return identity >= 0 and LIBC.shmctl(identity, remove, None) == 0


@pytest.mark.parametrize("way", [way.__name__ for way in ways_out.ALL])
def test_a_candidate_finds_it_closed(found: dict[str, dict[str, str]], zygote: Zygote, way: str) -> None:
    if way == "shared_memory" and zygote.isolation == "namespaces":
        assert found["candidate"][way] == "got out"  # into a /dev/shm of its own
    elif way in ("device", "memory_device"):
        assert found["candidate"][way] in ("PermissionError", "FileNotFoundError")
    else:
        assert found["candidate"][way] == "PermissionError"


def test_each_layer_holds_by_itself(found: dict[str, dict[str, str]], zygote: Zygote) -> None:
    """Before the filter comes: what namespaces or Landlock stop alone."""
    before = found["before"]
    if zygote.isolation == "namespaces":
        assert before["tcp"] in ("ConnectionRefusedError", "OSError")  # nobody listens in its network
        assert before["device"] in ("PermissionError", "FileNotFoundError")
        assert before["memory_device"] in ("PermissionError", "FileNotFoundError")
    else:
        assert before["tcp"] == "PermissionError"


def test_nothing_is_left_outside(found: dict[str, dict[str, str]], zygote: Zygote, place: dict[str, str]) -> None:
    in_namespaces = zygote.isolation == "namespaces"
    made = _remove_system_v()
    assert not (made and in_namespaces), "an IPC namespace ends with the child"
    assert Path(place["shm"]).exists() is (not in_namespaces), "only what a job writes before its candidate is loaded"


def test_a_candidate_cannot_ask_the_owner_of_an_archive(zygote: Zygote, tmp_path: Path) -> None:
    with ProgramArchive.open(tmp_path / "archive.duckdb") as archive, closing(ArchiveServer(archive)):
        place = {"socket": str(socket_path(archive.path))}
        ways_out.path_socket(place)
        payload = {"place": {**dict.fromkeys(("device", "memory", "shm", "datagrams"), "/nowhere"), **place}}
        payload["place"] |= {"port": "9", "key": str(KEY)}
        with zygote.spawn(JOBS + "try_ways_out", payload, deadline_s=20) as child:
            assert child.receive(20)["candidate"]["path_socket"] == "PermissionError"
    _remove_system_v()


def test_what_a_candidate_needs_still_works(zygote: Zygote) -> None:
    with zygote.spawn(JOBS + "work_as_a_candidate", {}, deadline_s=20) as child:
        assert child.receive(20) == {"printed": "hello\n", "total": 512}
        assert child.wait().kind == "ok"


def test_devices_of_gpus_stay_and_disks_do_not(tmp_path: Path) -> None:
    for name in ("null", "nvidia0", "nvidiactl", "nvidia-uvm", "sda", "mem", "kmsg", "nvme0n1"):
        (tmp_path / name).touch()
    (tmp_path / "nvidia-caps").mkdir()
    (tmp_path / "nvidia-link").symlink_to("sda")
    names = [Path(path).name for path in usable_devices(str(tmp_path))]
    assert names == ["null", "nvidia-caps", "nvidia-uvm", "nvidia0", "nvidiactl"]


def test_every_refused_call_has_the_number_of_the_headers() -> None:
    """The compiler of this machine is asked; that of another processor is not to be had."""
    names = sorted(seccomp._MACHINES["x86_64"].refused)
    source = "#include <sys/syscall.h>\n" + "\n".join(f"{name}=SYS_{name}" for name in names)
    done = subprocess.run(["cc", "-E", "-P", "-"], input=source, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("no compiler, or no headers")
    numbers = dict(line.split("=") for line in done.stdout.split() if "=" in line)
    assert {name: int(number) for name, number in numbers.items()} == seccomp._MACHINES[os.uname().machine].refused


def test_every_layer_says_what_holds_it_up_or_what_to_do(zygote: Zygote) -> None:
    layers = {layer.name: layer for layer in zygote.layers}
    assert {"own processes", "files", "network", "sockets", "System V", "devices", "process bound"} <= layers.keys()
    assert all(layer.found and bool(layer.advice) is not layer.is_active for layer in layers.values())
    assert zygote.missing == tuple(layer.name for layer in layers.values() if not layer.is_active)
    assert ("own processes" in zygote.missing) is (zygote.isolation == "subreaper")
