"""What waits between the connector's thread and the event loop is bounded, in records and in bytes."""

import asyncio
import threading

import pytest
from tests.support.patience import patient

from busway_connect.connector import SourceRecord
from busway_connect.postgres.handover import Handover, Stopped, size_of

SECONDS = patient(20.0)


def change(number: int, text: str = "") -> SourceRecord:
    """A row that came."""
    value = {"before": None, "after": {"id": number, "text": text}, "source": {"name": "not counted"}, "op": "c"}
    return SourceRecord(
        topic="t", key={"id": number}, value=value, value_schema=None, partition={}, offset={"number": number}
    )


def sized(count: int, size: int) -> list[tuple[SourceRecord, int]]:
    """So many records of a size."""
    return [(change(number), size) for number in range(count)]


@pytest.mark.parametrize(("limit", "limit_bytes"), [(3, 0), (100, 300), (3, 10_000)])
async def test_who_puts_waits_for_room(limit: int, limit_bytes: int) -> None:
    """At either bound, until enough was taken; meanwhile it can tell that it lives. Nothing is lost and the order stays."""
    handover = Handover(limit, limit_bytes)
    full = threading.Event()
    putting = asyncio.ensure_future(asyncio.to_thread(handover.put, sized(3, 100), 0.001, full.set))
    assert await asyncio.to_thread(full.wait, SECONDS)
    assert (handover.waiting, putting.done()) == (3, False)
    first = await handover.take(1, SECONDS)
    await putting
    handover.stop()
    assert [record.offset["number"] for record in [*first, *await handover.take(100, SECONDS)]] == [0, 1, 2]


async def test_below_both_bounds_nobody_waits() -> None:
    """Also with one record that is larger than the bound, once it is taken; and 0 is no bound."""

    def never() -> None:
        raise AssertionError("it waited")

    handover = Handover(100, 300)
    handover.put(sized(2, 100), SECONDS, never)
    assert len(await handover.take(100, SECONDS)) == 2
    handover.put(sized(2, 149), SECONDS, never)
    await handover.take(100, SECONDS)
    Handover(100, 0).put(sized(99, 10**9), SECONDS, never)
    full = threading.Event()
    putting = asyncio.ensure_future(asyncio.to_thread(handover.put, sized(1, 5000), 0.001, full.set))
    assert await asyncio.to_thread(full.wait, SECONDS)
    assert len(await handover.take(1, SECONDS)) == 1
    await putting


async def test_who_waits_for_room_ends_with_the_reader() -> None:
    """`stop` wakes it."""
    handover = Handover(100, 1)
    putting = asyncio.ensure_future(asyncio.to_thread(handover.put, sized(1, 1), SECONDS, lambda: None))
    while not handover.waiting:
        await asyncio.sleep(0)
    handover.stop()
    with pytest.raises(Stopped):
        await putting


def test_the_size_of_a_record() -> None:
    """Texts by their length, what is nested too; a tombstone and a heartbeat count as well."""
    small, large = size_of(change(1)), size_of(change(1, "x" * 1000))
    assert large == small + 1000
    nested = change(1)
    nested.value["after"]["text"] = ["x" * 500, {"key": b"y" * 500}]
    assert size_of(nested) == small + 1000
    tombstone = SourceRecord(topic="t", key={"id": 1}, value=None, value_schema=None, partition={}, offset={})
    assert 0 < size_of(tombstone) < small
