"""One zygote that interprets, with no shim installed."""

from collections.abc import Iterator

import pytest

from evaluators.sandbox import Zygote


@pytest.fixture(scope="package")
def zygote() -> Iterator[Zygote]:
    with Zygote(interpret=True) as zygote:
        yield zygote
