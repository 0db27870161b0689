"""torch._dynamo, imported when somebody compiles and not before.

Fake tensors and dispatch modes import it, for a handful of settings and a decorator that does nothing unless something
is compiled. It is the larger half of what importing torch costs: 0.5 s of a core, in every process of a search.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.util
import sys
import threading
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_NAME = "torch._dynamo"
_SETTINGS = f"{_NAME}.config"  # stands by itself: it imports nothing of the package
_WAKING = threading.Lock()


def delay_dynamo() -> None:
    """From here on torch._dynamo is a package that imports itself when more than its settings is asked for.

    Nothing changes where it is imported already.
    """
    import torch

    if _NAME in sys.modules:
        return
    spec = importlib.util.find_spec(_NAME)
    assert spec is not None
    package = importlib.util.module_from_spec(spec)
    package.__class__ = _Late
    package.__dict__["disable"] = _disable_late
    sys.modules[_NAME] = torch._dynamo = package
    importlib.import_module(_SETTINGS)
    sys.meta_path.insert(0, _Waker())


def is_delayed() -> bool:
    """Whether torch._dynamo still waits for somebody who needs it."""
    return isinstance(sys.modules.get(_NAME), _Late)


def import_dynamo() -> ModuleType:
    """The package itself, imported now if it was delayed. Settings keep the values that somebody gave them."""
    with _WAKING:
        if is_delayed():
            del sys.modules[_NAME]
    return importlib.import_module(_NAME)


class _Late(ModuleType):
    """The package before it is imported: settings, and what becomes of it when another name is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(import_dynamo(), name)


def _disable_late(function: Callable[..., Any] | None = None, recursive: bool = True, **options: Any) -> Any:
    """`torch._dynamo.disable`: what is to be left alone by the compiler is called as it is until there is one."""
    if function is None or not is_delayed():
        return import_dynamo().disable(function, recursive, **options)
    disabled: list[Callable[..., Any]] = []

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_delayed():
            return function(*args, **kwargs)
        if not disabled:
            disabled.append(import_dynamo().disable(function, recursive, **options))
        return disabled[0](*args, **kwargs)

    return call


class _Waker(importlib.abc.MetaPathFinder):
    """Imports the package before the first of its modules is."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if not name.startswith(f"{_NAME}.") or name == _SETTINGS or not is_delayed():
            return None
        import_dynamo()
        loaded = sys.modules.get(name)
        if loaded is not None:  # by its package: the import that is under way takes what the module says it is
            loaded.__spec__ = importlib.util.spec_from_loader(name, _Loaded(loaded))
        return loaded.__spec__ if loaded is not None else None


class _Loaded(importlib.abc.Loader):
    """For a module that is there already: it is not made a second time."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._spec = module.__spec__

    def create_module(self, _: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec
