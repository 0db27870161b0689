"""What a cubin says: the bytes of its code, and the resources that they take.

Names, comments, lines and folders all change a cubin's debug sections; the `.text.*` sections hold the instructions
alone, so their hash is the identity of the machine code.
"""

from __future__ import annotations

import hashlib
import re
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import triton

# ELF-64, System V ABI "ELF Header" and "Sections": e_shoff at 40, e_shentsize, e_shnum, e_shstrndx at 58
_SECTION_TABLE = struct.Struct("<Q")
_SECTION_COUNTS = struct.Struct("<HHH")
_SECTION_HEADER = struct.Struct("<IIQQQQ")


class Resources(NamedTuple):
    """Per thread: registers, and bytes of local memory that spills (or local arrays) take."""

    n_registers: int
    stack_bytes: int


def text_hash(cubin: bytes) -> str:
    """SHA-256 over the `.text.*` sections in their order in the file.

    Raises:
        ValueError: not an ELF-64 file, or one without code.
    """
    sections = [data for name, data in _sections(cubin) if name.startswith(".text.")]
    if not sections:
        raise ValueError("the cubin has no .text section")
    digest = hashlib.sha256()
    for data in sections:
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _sections(elf: bytes) -> list[tuple[str, bytes]]:
    if elf[:5] != b"\x7fELF\x02":
        raise ValueError("not an ELF-64 file")
    (table,) = _SECTION_TABLE.unpack_from(elf, 40)
    size, count, names_index = _SECTION_COUNTS.unpack_from(elf, 58)
    headers = [_SECTION_HEADER.unpack_from(elf, table + i * size) for i in range(count)]
    names_at = headers[names_index][4]
    return [
        (_string_at(elf, names_at + name), elf[offset : offset + n_bytes]) for name, _, _, _, offset, n_bytes in headers
    ]


def _string_at(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()


def read_resources(cubin: bytes) -> Resources:
    """Registers and stack per thread, as the cuobjdump inside Triton's wheel reports them.

    Spills show as STACK; LOCAL is always 0, and `n_spills` of Triton needs a loaded module, so a GPU.

    Raises:
        ValueError: cuobjdump found no kernel.
    """
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(tool), "--dump-resource-usage", file.name]
        output = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", output)
    if found is None:
        raise ValueError(f"cuobjdump reports no kernel: {output[:200]!r}")
    return Resources(int(found[1]), int(found[2]))
