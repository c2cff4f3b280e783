"""Rows that are put outside of handlers: what is taken back, and what is not any more."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from busway import App
from busway.app.handling.handler_output import HandlerOutput
from busway.app.tables.copies import Copy
from busway.app.tables.rows import NotHere, RowOrigin
from busway.types import TopicPartition


@pytest.mark.parametrize("stays", [False, True])
async def test_a_deletion_that_is_not_committed_brings_no_row_of_another_instance_back(*, stays: bool) -> None:
    """Rows go with their partition; while it is here the row is as it was."""
    app = App("shop")
    table = app.table("totals", key=str, value=int, format="json")
    table._guarantees, table._sources = frozenset({"exactly_once"}), frozenset({"sales"})
    table._held.add(0)
    table._copies._copies[0] = Copy(known=0)
    table._set_row("a", 1, RowOrigin(partition=0, included={}))
    added: list[HandlerOutput] = []
    app._serdes = cast("Any", SimpleNamespace(encode=lambda *_: b"encoded"))
    app._producer = cast("Any", object())
    app.worker = cast(
        "Any", SimpleNamespace(exactly_once_partition=lambda *_: object(), transactor=SimpleNamespace(add=added.append))
    )
    deleting = asyncio.ensure_future(table.delete("a"))
    while not added and not deleting.done():
        await asyncio.sleep(0)
    if not stays:
        await table.revoked([TopicPartition("sales", 0)])
    added[0].settle(committed=False)
    with pytest.raises(NotHere):
        await deleting
    assert dict(table) == ({"a": 1} if stays else {})
