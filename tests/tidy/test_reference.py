"""The reference pages are what the code says."""

import pytest
from tools.reference.pages import PAGES, ROOT


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_fresh(name: str) -> None:
    """`python -m tools.reference` writes them."""
    assert (ROOT / name).read_text() == PAGES[name](), f"{name} is stale: run python -m tools.reference"
