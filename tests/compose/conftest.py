"""One stack for all tests of this folder: building it takes longest."""

from collections.abc import Iterator

import pytest
from tests.compose.stack import Stack


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """All services, healthy."""
    with Stack() as running:
        yield running
