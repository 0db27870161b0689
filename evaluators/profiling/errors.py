"""The one error of reading a report."""

from __future__ import annotations

from db.errors import EvolveError


class ProfileError(EvolveError, ValueError):
    """A report of Nsight Compute that cannot be read. `message` says what was wrong with it."""
