"""One nursery, and one zygote for the tests of a module in each kind of isolation."""

from collections.abc import Iterator

import pytest

from evaluators.sandbox import Nursery, Zygote
from evaluators.sandbox.client import zygote_environment
from tests.evaluators.sandbox.aftermath import TEST_LIMITS


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery(zygote_environment(interpret=False)) as nursery:
        yield nursery


@pytest.fixture(scope="module", params=["namespaces", "subreaper"])
def zygote(request: pytest.FixtureRequest, nursery: Nursery) -> Iterator[Zygote]:
    with Zygote(interpret=True, limits=TEST_LIMITS, isolation=request.param, start=nursery.fork) as zygote:
        yield zygote
