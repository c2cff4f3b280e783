"""Reading `server.properties`."""

from pathlib import Path

import pytest

from busway_bus.kernel.config_def import ConfigError
from busway_bus.run import read_properties


def read(tmp_path: Path, text: str) -> dict[str, str]:
    """The settings in a file with this text."""
    file = tmp_path / "server.properties"
    file.write_text(text)
    return read_properties(str(file))


def test_both_separators_comments_and_continued_lines(tmp_path: Path) -> None:
    """What Java's property files allow and Kafka's examples use."""
    text = "# a comment\n! another\n\nnode.id=3\nlog.dirs: /data\nlisteners=PLAINTEXT://a:1,\\\n   X://b:2\n num.partitions = 4 \n"
    assert read(tmp_path, text) == {
        "node.id": "3", "log.dirs": "/data", "listeners": "PLAINTEXT://a:1,X://b:2", "num.partitions": "4",
    }  # fmt: skip


def test_a_value_may_be_empty_and_may_hold_the_separator(tmp_path: Path) -> None:
    """Only the first separator counts."""
    assert read(tmp_path, "a=\nb=c=d\n") == {"a": "", "b": "c=d"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("node.id=1\nnonsense\n", "line 2"),
        ("=x\n", "line 1"),
        ("node.id=1\nnode.id=2\n", "given twice"),
        ("node.id=1\nlog.dirs=/a\\\n", "backslash"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: str, said: str) -> None:
    """The refusal tells which line, or what about it."""
    with pytest.raises(ConfigError, match=said):
        read(tmp_path, text)
