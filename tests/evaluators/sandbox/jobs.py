"""Jobs that the sandbox tests run in children: honest ones first, then hostile ones."""

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch


def echo(channel: Any, payload: dict[str, Any]) -> None:
    channel.send({"echo": payload})


def converse(channel: Any, payload: dict[str, Any]) -> None:
    """Answer each message with its double until told to stop."""
    while (message := channel.receive()).get("number") is not None:
        channel.send({"double": 2 * message["number"]})


def describe_surroundings(channel: Any, payload: dict[str, Any]) -> None:
    channel.send(
        {
            "pid": os.getpid(),
            "cwd": str(Path.cwd()),
            "environment": dict(os.environ),
            "pids": [int(p.name) for p in Path("/proc").glob("[0-9]*")],
            "interfaces": [p.name for p in Path("/sys/class/net").iterdir()] if payload.get("net") else [],
            "threads": torch.get_num_threads(),
            "triton_files": sorted(str(p.relative_to("triton")) for p in Path("triton").rglob("*") if p.is_file()),
            "fds": sorted(int(p.name) for p in Path("/proc/self/fd").iterdir()),
        }
    )


def compile_kernel(channel: Any, payload: dict[str, Any]) -> None:
    """Compile a kernel of this source for a GPU that is not there."""
    import triton
    from triton.backends.compiler import GPUTarget

    from evaluators.sandbox.candidate import load_candidate

    kernel = load_candidate(payload["source"]).kernel
    source = triton.compiler.ASTSource(fn=kernel, signature={"x": "*fp32"}, constexprs={})
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    channel.send({"kinds": sorted(compiled.asm), "cached": len(list(Path("triton").rglob("*.cubin")))})


def use_gpu(channel: Any, payload: dict[str, Any]) -> None:
    """Compute on the GPU and launch a kernel, in a context made after the fork."""
    from evaluators.sandbox import warmup

    channel.send({"sum": torch.ones(4, device="cuda").sum().item()})
    warmup.launch_once()
    channel.send({"libraries": len(list(Path("triton").rglob("*.so")))})


def idle_with_orphans(channel: Any, payload: dict[str, Any]) -> None:
    """Leave a hundred orphans that end at once, then work on."""
    for _ in range(100):
        if (pid := os.fork()) == 0:
            if os.fork() == 0:
                os._exit(0)
            os._exit(0)
        os.waitpid(pid, 0)
    time.sleep(0.3)
    channel.send({"pids": len(list(Path("/proc").glob("[0-9]*")))})


def multiply_in_parallel(channel: Any, payload: dict[str, Any]) -> None:
    """Hangs for ever if the zygote ran a parallel operation before the fork."""
    torch.softmax(torch.ones(512, 512) @ torch.ones(512, 512), -1)
    channel.send({"done": True})


def write_cache(channel: Any, payload: dict[str, Any]) -> None:
    folder = Path(os.environ["TRITON_CACHE_DIR"], "key")
    folder.mkdir(parents=True)
    (folder / "kernel.cubin").write_bytes(b"code")
    (folder / "__grp__kernel.json").write_text(f'{{"child_paths": {{"kernel.cubin": "{folder}/kernel.cubin"}}}}')
    (folder / "link").symlink_to("/etc/hostname")
    os.mkfifo(folder / "pipe")


def read_cache(channel: Any, payload: dict[str, Any]) -> None:
    folder = Path(os.environ["TRITON_CACHE_DIR"], "key")
    channel.send({p.name: p.read_text().replace(str(folder), "HERE") for p in sorted(folder.iterdir())})


def share(channel: Any, payload: dict[str, Any]) -> None:
    """Double the first shared tensor into the second, and truncate both if that were allowed."""
    from db.records import TensorSpec
    from evaluators.sandbox.tensors import open_shared

    source, target = (
        open_shared(fd, TensorSpec(**spec)) for fd, spec in zip(channel.fds, payload["specs"], strict=True)
    )
    target.copy_(source * 2)
    for fd in channel.fds:
        try:
            os.ftruncate(fd, 0)
        except PermissionError:
            continue
        raise AssertionError("shared memory could be truncated")


def fail(channel: Any, payload: dict[str, Any]) -> None:
    from evaluators.sandbox.candidate import load_candidate

    load_candidate("def outer():\n    inner()\n\ndef inner():\n    raise ValueError('wrong turn')\n\nouter()\n")


# ------------------------------------------------------------------------------------------------------------ hostile


def loop(channel: Any, payload: dict[str, Any]) -> None:
    for number in range(1, 65):
        if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):
            signal.signal(number, signal.SIG_IGN)
    while True:
        pass


def crash(channel: Any, payload: dict[str, Any]) -> None:
    ctypes.string_at(0)


def leave(channel: Any, payload: dict[str, Any]) -> None:
    os._exit(payload["code"])


def leave_politely(channel: Any, payload: dict[str, Any]) -> None:
    sys.exit(3)


def print_gigabyte(channel: Any, payload: dict[str, Any]) -> None:
    for _ in range(1024):
        print("x" * 2**20)
    print("the end")


def daemonise(channel: Any, payload: dict[str, Any]) -> None:
    """Leave a grandchild in a session of its own, and return."""
    if (pid := os.fork()) == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(300)
        os._exit(0)
    os.waitpid(pid, 0)
    channel.send({"left": True})


def hop(channel: Any, payload: dict[str, Any]) -> None:
    """Lines of processes that fork and end for ever, each time in a new session: hard to hit one by one."""
    for _ in range(5):
        if os.fork() == 0:
            while True:
                if os.fork():
                    os._exit(0)
                os.setsid()
    time.sleep(0.2)


def kill_everyone(channel: Any, payload: dict[str, Any]) -> None:
    """Only ever run in a pid namespace: outside, a failure would kill the whole machine."""
    assert len(list(Path("/proc").glob("[0-9]*"))) < 10
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP):
        for victim in (1, os.getppid(), -1):
            with contextlib.suppress(OSError):
                os.kill(victim, number)
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGKILL)


def eat_memory(channel: Any, payload: dict[str, Any]) -> None:
    blocks = []
    for _ in range(payload["n_blocks"]):
        blocks.append(b"x" * (64 * 1024 * 1024))
        time.sleep(0.005)


def tell_priorities(channel: Any, payload: dict[str, Any]) -> None:
    """How nice it is at first, and a child that it forks later on."""
    channel.send({"nice": os.getpriority(os.PRIO_PROCESS, 0)})
    time.sleep(payload["seconds"])
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, str(os.getpriority(os.PRIO_PROCESS, 0)).encode())
        os._exit(0)
    channel.send({"nice": int(os.read(read, 8))})


def fill_disk(channel: Any, payload: dict[str, Any]) -> None:
    """Many files, each far below what one may have."""
    folder = Path("deep/er")
    folder.mkdir(parents=True)
    for number in range(payload["n_files"]):
        (folder / str(number)).write_bytes(b"x" * payload["n_bytes"])
        if number % 100 == 0:
            time.sleep(0.01)
    time.sleep(60)


def exceed_rlimits(channel: Any, payload: dict[str, Any]) -> None:
    try:
        Path("big").write_bytes(b"x" * 2**21)
    except OSError as error:
        channel.send({"file": error.strerror})
    bytearray(2**36)


def write_outside(channel: Any, payload: dict[str, Any]) -> None:
    failures = []
    for path in payload["paths"]:
        try:
            Path(path).write_text("gotcha")
        except OSError as error:
            failures.append(error.strerror)
    Path("inside").write_text("fine")
    Path(os.environ["TMPDIR"], "inside").write_text("fine")
    channel.send({"failures": failures})


def become_root(channel: Any, payload: dict[str, Any]) -> None:
    """Try what only a privileged process may do: undo the read-only mounts, or watch the supervisor."""
    libc = ctypes.CDLL(None, use_errno=True)
    remount, bind = 32, 4096
    remounted = libc.mount(None, b"/", None, ctypes.c_ulong(remount | bind), None) == 0
    traced = libc.ptrace(16, os.getppid(), None, None) == 0
    opened = []
    for fd in range(64):
        try:
            opened.append(os.open(f"/proc/{os.getppid()}/fd/{fd}", os.O_RDWR))
        except OSError:
            continue
    channel.send({"remounted": remounted, "traced": traced, "opened": opened})


def fork_bomb(channel: Any, payload: dict[str, Any]) -> None:
    while True:
        try:
            os.fork()
        except OSError:
            time.sleep(0.01)


def try_ways_out(channel: Any, payload: dict[str, Any]) -> None:
    """Once as a job, before anything is loaded, and once as a candidate."""
    from evaluators.sandbox.candidate import load_candidate
    from tests.evaluators.sandbox import ways_out

    before = ways_out.attempt(payload["place"])
    Path("in_between").write_text("still here")
    module = load_candidate(Path(ways_out.__file__).read_text())
    channel.send({"before": before, "candidate": module.attempt(payload["place"])})


def stay_inside(channel: Any, payload: dict[str, Any]) -> None:
    """End well only where all is closed to a candidate; sockets of its own are open to a job before."""
    from evaluators.sandbox.candidate import load_candidate
    from tests.evaluators.sandbox import ways_out

    names = ("socket", "datagrams", "device", "memory", "shm")
    place = {**dict.fromkeys(names, "/dev/tty"), "key": "1", "port": "9"}
    os.close(os.open("/dev/zero", os.O_RDONLY))
    assert ways_out.attempt(place)["netlink"] == "got out"
    module = load_candidate(Path(ways_out.__file__).read_text())
    assert set(module.attempt(place).values()) == {"PermissionError"}


def work_as_a_candidate(channel: Any, payload: dict[str, Any]) -> None:
    """What host code and the compiler need: files, memory, threads, another program, shared tensors, the channel."""
    from evaluators.sandbox.candidate import load_candidate

    source = (
        "import os, subprocess, tempfile, threading, torch\n"
        "thread = threading.Thread(target=lambda: None); thread.start(); thread.join()\n"
        "with tempfile.NamedTemporaryFile() as file: file.write(os.urandom(8))\n"
        "printed = subprocess.run(['echo', 'hello'], capture_output=True, text=True).stdout\n"
        "open('/dev/null', 'w').write('x')\n"
        "memory = os.memfd_create('x'); os.ftruncate(memory, 4096)\n"
        "total = torch.softmax(torch.ones(512, 512) @ torch.ones(512, 512), -1).sum().item()\n"
    )
    module = load_candidate(source)
    channel.send({"printed": module.printed, "total": round(module.total)})


def read_keys(channel: Any, payload: dict[str, Any]) -> None:
    """All the environments that can be read from here."""
    texts = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            texts.append(path.read_bytes().decode(errors="replace"))
        except OSError:
            continue
    channel.send({"environments": "".join(texts) + repr(dict(os.environ))})


def babble(channel: Any, payload: dict[str, Any]) -> None:
    """Send what is no message."""
    os.write(channel._stream.fileno(), bytes.fromhex(payload["bytes"]))
    time.sleep(60)


def sleep(channel: Any, payload: dict[str, Any]) -> None:
    daemonise(channel, payload)
    time.sleep(300)
