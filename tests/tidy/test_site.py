"""The navigation of the manual (`mkdocs.yml`), without its generator.

Here: each page is in the navigation once, and each entry is a page.
Not here: links between pages (`test_pages`); the build of the site (`make docs`).
"""

import re

from tests.tidy.test_pages import ROOT, pages

OUTSIDE = {"tests/simulation/planted.md"}
"""Pages that are not part of the manual."""


def test_the_navigation_has_every_page_once() -> None:
    """Also the README, the case studies and the decisions."""
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    entries = re.findall(r"^ *- (?:[^:\n]+: )?(\S+\.md)$", navigation, re.MULTILINE)
    assert sorted(entries) == sorted(set(pages()) - OUTSIDE)


def test_the_navigation_begins_with_the_readme() -> None:
    """It is the first page of the site."""
    assert "nav:\n  - Start:\n      - Busway: README.md\n" in (ROOT / "mkdocs.yml").read_text()
