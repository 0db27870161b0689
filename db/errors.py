"""What a user can mend: one line that says what is wrong, one hint that says what to do."""

from __future__ import annotations

from typing import Any


class EvolveError(Exception):
    """A fault that the user can mend. The command prints it with its hint, without a traceback, and exits with 2."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[type[EvolveError], tuple[Any, ...]]:
        return type(self), (self.message, self.hint)


class ProblemError(EvolveError, ValueError):
    """A file or name that is no problem, or a problem whose parts contradict each other."""


class SeedError(EvolveError, ValueError):
    """A seed program that does not compile or is wrong: a search cannot start from it."""


class ConfigError(EvolveError, ValueError):
    """An unknown key, a value out of range, two options that exclude each other."""


class ArchiveError(EvolveError, OSError):
    """The archive file cannot be used: truncated, read-only, of a newer schema, on a full disk."""


class OldSchemaError(ArchiveError):
    """An archive of an earlier version, which reading alone cannot bring up to date."""


class ArchiveBusyError(ArchiveError):
    """Another process owns the archive. `owner_pid` says which."""

    def __init__(self, message: str, hint: str = "", owner_pid: int | None = None) -> None:
        super().__init__(message, hint)
        self.owner_pid = owner_pid

    def __reduce__(self) -> tuple[type[EvolveError], tuple[Any, ...]]:
        return type(self), (self.message, self.hint, self.owner_pid)


class UntrustedError(EvolveError, PermissionError):
    """Code of an archive from elsewhere would run as the user, who has not said that it may."""


class QueryError(EvolveError, ValueError):
    """A question that the archive does not understand or may not answer: wrong SQL, or SQL that writes."""


class DeviceError(EvolveError, RuntimeError):
    """No GPU, not enough memory on it, or a driver that does not answer."""


class ClusterError(EvolveError, ConnectionError):
    """Ray cannot be started or reached."""


class NotFoundError(EvolveError, LookupError):
    """A run, program or problem that the archive does not hold."""
