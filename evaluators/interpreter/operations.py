"""The operations of torch that host code calls in a real run, by name; those of the interpreter itself are left out."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime import interpreter

from evaluators.capture.torch_ops import is_allocation_or_view


class OperationNames(TorchDispatchMode):  # type: ignore[misc]
    """Collects `names` of operations that move bytes ("aten.mul.Tensor"), while it is entered and no kernel runs."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self._launches = 0  # that we are inside of
        self._patch = patch.object(
            interpreter.GridExecutor, "__call__", self._watched(interpreter.GridExecutor.__call__)
        )

    def __enter__(self) -> OperationNames:
        self._patch.start()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._patch.stop()

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self._launches and not is_allocation_or_view(operation):
            self.names.add(str(operation))
        return operation(*args, **(kwargs or {}))

    def _watched(self, run: Any) -> Any:
        def launch(executor: Any, *args: Any, **kwargs: Any) -> Any:
            self._launches += 1
            try:
                return run(executor, *args, **kwargs)
            finally:
                self._launches -= 1

        return launch
