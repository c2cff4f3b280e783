"""The code spans of the README and the docs, those in tables too: each that is Python of names that are known is run."""

import ast
import inspect
import re
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

import busway
from busway import otel, sql, testing, web
from busway.app.tables.table import Table

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")))
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"`([^`\n]+)`")
WRAPPED = re.compile(r"@(.+)|async with (.+?):|await (.+)")


def code_of(span: str) -> str | None:
    """What can be run of a span: an import, or what has a call in it, `name=Call(…)` too; None for everything else."""
    if quoted := WRAPPED.fullmatch(span):
        span = quoted[1] or quoted[2] or quoted[3]
    try:
        parsed = ast.parse(span)
    except SyntaxError:
        return None
    return span if any(isinstance(node, ast.Call | ast.ImportFrom) for node in ast.walk(parsed)) else None


def synchronous(kind: type) -> Any:
    """An object whose methods take what those of the class take, and return nothing awaitable."""
    made = create_autospec(kind, instance=True)
    for name, method in inspect.getmembers(kind, inspect.iscoroutinefunction):
        taken = inspect.signature(method)
        setattr(made, name, lambda *given, _taken=taken, **named: _taken.bind(made, *given, **named) and None)
    return made


def namespace() -> dict[str, Any]:
    """What spans may name: everything public, and an app, a topic, a bus and the like."""
    names = {name: getattr(package, name) for package in (busway, otel, sql, testing, web) for name in package.__all__}
    app = busway.App("spans")

    async def asgi(*_: Any) -> None: ...

    return names | {
        "app": app,
        "topic": app.topic("topic", value=bytes, format="raw"),
        "bus": synchronous(testing.TestBus),
        "producer": synchronous(busway.Producer),
        "table": synchronous(Table),
        "engine": create_async_engine("postgresql+psycopg://nobody@localhost/none"),
        "asgi": asgi,
    }


SPANS = sorted(
    {
        (page, code)
        for page in PAGES
        for span in SPAN.findall(FENCED.sub("", (ROOT / page).read_text()))
        if (code := code_of(span)) is not None
    }
)


@pytest.mark.parametrize(("page", "code"), SPANS, ids=[f"{page} {code}" for page, code in SPANS])
async def test_a_code_span_runs(page: str, code: str) -> None:
    """What is no name here, such as a method without its object, is prose."""
    known = namespace()
    names = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    names -= {
        node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    if names <= known.keys():
        exec(code, known)


def test_spans_are_found() -> None:
    """Those of the README's table among them."""
    assert ("README.md", "batch=Batch(max_records=500)") in SPANS
    assert ("README.md", "from busway.sql import Sql, Outbox") in SPANS
