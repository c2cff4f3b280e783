"""Stories of a quorum are as they were written down; `python -m tests.scenarios.test_quorum` writes them again, to be read before they are kept."""

from pathlib import Path

import pytest
from tests.scenarios.quorum_stage import played

STORIES = sorted((Path(__file__).parent / "quorum").glob("*.txt"))


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_a_story_goes_as_it_is_told(story: Path) -> None:
    """Each message, write and move of three nodes."""
    assert played(story.read_text()) == story.read_text()


def test_there_are_stories() -> None:
    """A folder that is not found tells none."""
    assert len(STORIES) >= 10


if __name__ == "__main__":
    for path in STORIES:
        path.write_text(played(path.read_text()))
