"""One zygote for the tests of a module, in each kind of isolation."""

from collections.abc import Iterator

import pytest

from evaluators.sandbox import Zygote
from tests.evaluators.sandbox.aftermath import TEST_LIMITS


@pytest.fixture(scope="module", params=["namespaces", "subreaper"])
def zygote(request: pytest.FixtureRequest) -> Iterator[Zygote]:
    with Zygote(interpret=True, limits=TEST_LIMITS, isolation=request.param) as zygote:
        yield zygote
