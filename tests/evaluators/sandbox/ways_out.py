"""Attempts to get out of a sandbox, each a function that raises OSError where it is stopped. The sandbox tests run them
in a child before its candidate is loaded, and as a candidate: the text of this file is one."""

import ctypes
import os
import socket
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
IO_URING_SETUP, ADD_KEY = 425, 248 if os.uname().machine == "x86_64" else 217
CREATE, PAGE = 0o1666, 4096
PROCESS_KEYRING = -2  # as good as any to try, and gone with the process


def check(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def path_socket(place: dict[str, str]) -> None:
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(place["socket"])


def path_datagram(place: dict[str, str]) -> None:
    """A pair that is connected already may be told another address."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        one.sendto(b"hello", place["datagrams"])


def tcp(place: dict[str, str]) -> None:
    socket.create_connection(("127.0.0.1", int(place["port"])), timeout=5).close()


def udp(place: dict[str, str]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stream:
        stream.sendto(b"hello", ("127.0.0.1", 9))


def netlink(place: dict[str, str]) -> None:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()


def io_uring(place: dict[str, str]) -> None:
    """Makes and connects sockets without a call of its own for that."""
    check(LIBC.syscall(ctypes.c_long(IO_URING_SETUP), 4, ctypes.create_string_buffer(256)))


def system_v(place: dict[str, str]) -> None:
    """Shared memory that outlives whoever made it."""
    check(LIBC.shmget(int(place["key"]), PAGE, CREATE))


def queue(place: dict[str, str]) -> None:
    check(LIBC.msgget(int(place["key"]), CREATE))


def kernel_key(place: dict[str, str]) -> None:
    arguments = b"user", b"note", b"hello", ctypes.c_size_t(5), PROCESS_KEYRING
    check(LIBC.syscall(ctypes.c_long(ADD_KEY), *arguments))


def device(place: dict[str, str]) -> None:
    """A block device, opened and closed: nothing is written."""
    os.close(os.open(place["device"], os.O_WRONLY))


def memory_device(place: dict[str, str]) -> None:
    os.close(os.open(place["memory"], os.O_WRONLY))


def shared_memory(place: dict[str, str]) -> None:
    Path(place["shm"]).write_text("hello")


def trace(place: dict[str, str]) -> None:
    check(LIBC.ptrace(0, 0, None, None))


ALL = (
    *(path_socket, path_datagram, tcp, udp, netlink, io_uring, system_v, queue, kernel_key),
    *(device, memory_device, shared_memory, trace),
)


def attempt(place: dict[str, str]) -> dict[str, str]:
    """What became of each attempt: the error that stopped it, or `got out`."""
    found = {}
    for way in ALL:
        try:
            way(place)
            found[way.__name__] = "got out"
        except OSError as error:
            found[way.__name__] = type(error).__name__
    return found
