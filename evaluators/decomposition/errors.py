"""The one error of taking a model apart."""

from __future__ import annotations

from db.errors import EvolveError


class DecompositionError(EvolveError, ValueError):
    """A model, or one of its kernels, that cannot be taken apart or put together again. `message` says why."""
