"""Two zygotes for all tests of capture and model: one compiles, one interprets."""

import importlib.util
from collections.abc import Iterator

import pytest

from evaluators.capture.capture import CAPTURE_PRELOAD, TRACE_PRELOAD
from evaluators.sandbox import Zygote


@pytest.fixture(scope="session")
def compiling() -> Iterator[Zygote]:
    liger = ["liger_kernel.ops"] if importlib.util.find_spec("liger_kernel") else []
    with Zygote(interpret=False, preload=[*CAPTURE_PRELOAD, *liger]) as zygote:
        yield zygote


@pytest.fixture(scope="session")
def interpreting() -> Iterator[Zygote]:
    with Zygote(interpret=True, preload=TRACE_PRELOAD) as zygote:
        yield zygote
