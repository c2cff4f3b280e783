"""What `import busway` offers."""

import ast
from pathlib import Path

import pytest

import busway


def test_every_public_name_is_there_and_is_what_type_checkers_see() -> None:
    """The list, the table that loads names, and the imports for type checkers name the same things in the same modules."""
    assert set(busway.__all__) == set(busway._MODULE_OF)
    tree = ast.parse(Path(busway.__file__).read_text())
    seen = {
        alias.name: node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert {name: module for name, module in seen.items() if (module or "").startswith("busway")} == busway._MODULE_OF
    for name in busway.__all__:
        assert getattr(busway, name) is not None


def test_dir_lists_the_public_names_alone() -> None:
    """What an editor or a console offers after `busway.`: nothing that the module itself imports."""
    assert {name for name in dir(busway) if not name.startswith("__")} == set(busway.__all__)


def test_a_table_offers_what_handlers_use() -> None:
    """Not what the app calls, nor what changes its rows behind the topic's back, such as `clear` did."""
    app = busway.App("shop")
    shown = {"delete", "put", "get", "items", "keys", "values", "changes", "home", "topic"}
    for table in (
        app.table("totals", key=str, value=int, format="json"),
        app.global_table("rates", value=int, format="json"),
    ):
        offered = {name for name in dir(table) if not name.startswith("_")}
        own = {"caught_up", "covers", "flush", "held", "includes", "passed_over"}
        assert offered - own == shown
        assert not hasattr(table, "clear")


def test_other_names_are_refused() -> None:
    """As any module does."""
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = busway.Nothing  # type: ignore[attr-defined]
