"""The operations of torch that host code calls under the interpreter; those of the interpreter itself are left out."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from triton.runtime import interpreter

from evaluators.capture.torch_ops import OperationNames


class HostOperationNames(OperationNames):
    """Collects names while no kernel runs."""

    def __init__(self) -> None:
        super().__init__()
        self._n_launches = 0  # that we are inside of
        launch = self._watched(interpreter.GridExecutor.__call__)
        self._patch = patch.object(interpreter.GridExecutor, "__call__", launch)

    def __enter__(self) -> HostOperationNames:
        self._patch.start()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._patch.stop()

    @property
    def is_listening(self) -> bool:
        return not self._n_launches

    def _watched(self, run: Any) -> Any:
        def launch(executor: Any, *args: Any, **kwargs: Any) -> Any:
            self._n_launches += 1
            try:
                return run(executor, *args, **kwargs)
            finally:
                self._n_launches -= 1

        return launch
