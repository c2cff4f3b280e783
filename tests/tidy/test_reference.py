"""The reference pages are what the code says."""

import pytest
from tools.reference.pages import PAGES, is_fresh


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_fresh(name: str) -> None:
    """`python -m tools.reference` writes them."""
    assert is_fresh(name), f"{name} is stale: run python -m tools.reference"
