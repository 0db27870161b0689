"""`kernel_function` of a standalone Triton file without a GPU: the Triton interpreter in a process of its own.

Whether Triton interprets is settled when it is imported, so a process that compiles candidates cannot also interpret.
The process is started at the first call, serves calls over its pipes, and ends with this object or this process.
"""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
from typing import IO, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from evaluators.interpreter.device import pretended_gpu
from evaluators.problems.module import load_module

MODULE_NAME = "problem_interpreted"
_LENGTH = struct.Struct("<q")


class InterpretedFunction:
    """Callable like the function itself; answers a flat list of tensors.

    Raises:
        RuntimeError: the function raised; the message is the exception's.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self, *inputs: Any) -> list[Tensor]:
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        try:
            _write(process.stdin, list(inputs))
            outputs, error = _read(process.stdout)
        except (EOFError, BrokenPipeError) as cause:
            raise RuntimeError("the process that interprets kernel_function ended") from cause
        if error:
            raise RuntimeError(error)
        return list(outputs)

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def __del__(self) -> None:
        self.close()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            command = [sys.executable, "-P", "-m", "evaluators.problems.interpreted"]
            environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment)
            assert self._process.stdin is not None
            _write(self._process.stdin, self._source)
        return self._process


def _write(stream: IO[bytes], value: Any) -> None:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    stream.write(_LENGTH.pack(buffer.tell()) + buffer.getvalue())
    stream.flush()


def _read(stream: IO[bytes]) -> Any:
    header = stream.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        raise EOFError("the interpreter's process ended")
    return torch.load(io.BytesIO(stream.read(_LENGTH.unpack(header)[0])), weights_only=True)


def _serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Reads the source, then inputs until the other side closes; answers (outputs, error text) to each."""
    source = _read(requests)
    function: Any = None
    while True:
        try:
            inputs = _read(requests)
        except EOFError:
            return
        try:
            with pretended_gpu():  # host code may ask for the number of multiprocessors
                function = function or load_module(source, MODULE_NAME).kernel_function
                outputs = [leaf for leaf in tree_leaves(function(*inputs)) if isinstance(leaf, Tensor)]
            _write(answers, (outputs, ""))
        except Exception as error:  # whatever the file raises is told to the process that asked
            _write(answers, ([], f"{type(error).__name__}: {error}"))


def main() -> None:
    """Serves one source over standard input and output; what the file prints goes to standard error."""
    from evaluators.interpreter import shims

    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    shims.apply()
    _serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
