"""Tables are declared like topics, and refused like them."""

from dataclasses import dataclass
from typing import Any

import pytest

from busway import App, BadDeclaration


@dataclass
class Seat:
    row: int
    name: str


@dataclass
class Mutable:
    items: list[str]


def test_a_table_and_its_topic() -> None:
    """The key is a text by default; table and topic have one name."""
    app = App("cinema")
    table = app.table("seats", value=Seat, partitions=3, configs={"segment.bytes": "1000000"})
    assert (table.topic.name, table.topic.key, table.topic.value) == ("seats", str, Seat)
    assert app.topics["seats"] is table.topic


def test_a_global_table_of_another_service() -> None:
    """Read only: the app neither creates nor changes its topic."""
    app = App("cinema")
    table = app.global_table("films", key=int, value=str, format="json", read_only=True)
    assert (table.topic.key, table.topic.read_only) == (int, True)


@pytest.mark.parametrize("declare", ["table", "global_table"])
@pytest.mark.parametrize(
    "options",
    [{"value": Seat, "key": Mutable}, {"value": Seat, "partitions": 0}, {"value": Seat, "format": "xml"}],
)
def test_what_cannot_be_declared(declare: str, options: dict[str, Any]) -> None:
    """Before anything starts; the text names the table."""
    with pytest.raises(BadDeclaration, match="seats"):
        getattr(App("cinema"), declare)("seats", **options)


def test_a_table_is_declared_once() -> None:
    """Two would have the rows of one topic in memory twice."""
    app = App("cinema")
    app.table("seats", value=Seat)
    with pytest.raises(BadDeclaration, match="seats"):
        app.table("seats", value=Seat)
