"""Dead letters found, replayed and discarded on a real bus."""

from typing import Any

import pytest

from busway import Admin, App, DeadLetters, DeadLetterSelection, Exponential, NewTopic, Producer, Retry, TopicPartition
from busway.app.dead_letters.replay import WINDOW, TooManyGaps
from busway.consumer.snapshot import read_to_end
from busway.testing.bus import TestBus
from busway_bus.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.slow
DLT = "rides.surge.dlt"


class Bug:
    """A handler that fails until it is mended."""

    def __init__(self, name: str = "surge") -> None:
        self.handled: list[int] = []
        self.broken = True
        self.app = App(name, commit_interval_s=0.01)
        self.rides = self.app.topic("rides", value=dict, format="json", partitions=2)
        self.records: list[Any] = []

        @self.app.subscribe(self.rides, retry=Retry(attempts=2, backoff=Exponential(0)))
        async def handle(ride: dict, headers: Any) -> None:  # type: ignore[type-arg]
            if self.broken and ride["id"] % 3 == 0:
                raise ValueError(f"no zone for ride {ride['id']}") if ride["id"] % 2 else KeyError("zone")
            self.handled.append(ride["id"])
            self.records.append(headers)


async def test_from_the_bug_to_the_replay() -> None:
    """Counted by handler and exception, shown with reasons, replayed once the bug is mended: to the same place, each once."""
    bug = Bug()
    async with bug.app.test() as bus, DeadLetters(bug.app.bootstrap_servers) as letters:
        for number in range(12):
            await bug.app.send(
                bug.rides, {"id": number}, str(number), headers=[("trace", b"t%d" % number)], partition=number % 2
            )
        await bus.settle()
        handler = bug.app.routes[0].name
        assert await letters.topics() == await letters.topics("surge") == [DLT]
        assert await letters.topics("other") == []
        counts = [
            (summary.group, summary.handler, summary.error, summary.records, summary.open)
            for summary in await letters.summaries([DLT])
        ]
        assert counts == [
            ("surge", handler, "builtins.KeyError", 2, 2),
            ("surge", handler, "builtins.ValueError", 2, 2),
        ]
        (ninth,) = [letter async for letter in letters.read(DLT, DeadLetterSelection(key=b"9"))]
        assert (ninth.original, ninth.original_offset) == (TopicPartition("rides", 1), 4)
        assert (ninth.message, ninth.attempts, ninth.headers) == ("no zone for ride 9", 2, (("trace", b"t9"),))
        assert 'raise ValueError(f"no zone' in ninth.stack

        plan = await letters.replay(DLT, dry_run=True)
        assert (len(plan.done), plan.refused) == (4, [])
        bug.broken = False
        before = sorted(bug.handled)
        done = await letters.replay(DLT, DeadLetterSelection(error="ValueError"), rate=1000)
        assert sorted(letter.key or b"" for letter in done.done) == [b"3", b"9"]
        await bus.settle()
        assert sorted(bug.handled) == sorted([*before, 3, 9])
        assert [(summary.error, summary.open) for summary in await letters.summaries([DLT])] == [
            ("builtins.KeyError", 2),
            ("builtins.ValueError", 0),
        ]
        assert len((await letters.replay(DLT)).done) == 2
        assert (await letters.replay(DLT)).done == []
        await bus.settle()
        assert sorted(bug.handled) == list(range(12))
        back = [record for record in await bus.records(bug.rides) if record.header("busway_replay-of") is not None]
        assert sorted((record.partition, record.value["id"]) for record in back) == [(0, 0), (0, 6), (1, 3), (1, 9)]
        for record in back:
            assert [name for name, _ in record.headers] == [
                "trace",
                "busway_replay-for-group",
                "busway_replay-for-handler",
                "busway_replay-of",
            ]
            assert record.header("busway_replay-for-group") == b"surge"


async def test_what_fails_again_is_a_new_dead_letter() -> None:
    """Its headers are those of the second failure alone; the first one stays done."""
    bug = Bug()
    async with bug.app.test() as bus, DeadLetters(bug.app.bootstrap_servers) as letters:
        await bus.send(bug.rides, {"id": 3}, "3")
        await bus.settle()
        await letters.replay(DLT)
        await bus.settle()
        letters_read = [letter async for letter in letters.read(DLT)]
        assert [(letter.done, letter.original_offset) for letter in letters_read] == [(True, 0), (False, 1)]
        (record,) = [record async for record in read_to_end(bug.app.bootstrap_servers, DLT) if record.offset == 1]
        names = [name for name, _ in record.headers]
        assert names.count("kafka_dlt-original-offset") == 1
        assert len((await letters.replay(DLT)).done) == 1
        await bus.settle()
        (record,) = [record for record in await bus.records(bug.rides) if record.offset == 2]
        assert [name for name, _ in record.headers] == [
            "busway_replay-for-group",
            "busway_replay-for-handler",
            "busway_replay-of",
        ]


async def test_discarded_is_done() -> None:
    """Nothing is sent, nothing is open; the records are still there."""
    bug = Bug()
    async with bug.app.test() as bus, DeadLetters(bug.app.bootstrap_servers) as letters:
        for number in (0, 3, 6, 9):
            await bus.send(bug.rides, {"id": number}, "k")
        await bus.settle()
        (first,) = [letter async for letter in letters.read(DLT, DeadLetterSelection(limit=1), open_only=True)]
        number = first.partition.partition
        assert [
            letter.offset for letter in await letters.discard(DLT, DeadLetterSelection(partition=number, offset=2))
        ] == [2]
        assert [letter.offset async for letter in letters.read(DLT, open_only=True)] == [0, 1, 3]
        assert len(await letters.discard(DLT, DeadLetterSelection(limit=2))) == 2
        assert [letter.offset for letter in (await letters.replay(DLT, dry_run=True)).done] == [3]
        assert len(await letters.discard(DLT)) == 1
        assert [letter.offset async for letter in letters.read(DLT)] == [0, 1, 2, 3]
        assert len(await bus.records(bug.rides)) == 4


def reasons(error: str, topic: str = "rides", partition: bytes = b"0", offset: bytes = b"0") -> list[tuple[str, bytes]]:
    """The headers of a dead letter."""
    return [
        ("kafka_dlt-original-topic", topic.encode()),
        ("kafka_dlt-original-partition", partition),
        ("kafka_dlt-original-offset", offset),
        ("kafka_dlt-original-consumer-group", b"surge"),
        ("kafka_dlt-exception-fqcn", error.encode()),
    ]


async def test_gaps_are_remembered_as_long_as_there_is_room() -> None:
    """Every second of thousands: the replay stops before it sends what could not be remembered, and goes on once the gaps are closed."""
    async with LocalCluster() as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic("rides", 1), NewTopic(DLT, 1)])
        async with Producer(cluster.bootstrap_servers) as producer:
            for number in range(4 * WINDOW):
                await producer.send(DLT, b"%d" % number, headers=reasons("AB"[number % 2]))
        async with DeadLetters(cluster.bootstrap_servers) as letters:
            with pytest.raises(TooManyGaps, match=f"{DLT}-0 has too many gaps .* open from offset 0 on"):
                await letters.replay(DLT, DeadLetterSelection(error="B"))
            sent = [record async for record in read_to_end(cluster.bootstrap_servers, "rides")]
            open_ones = [letter async for letter in letters.read(DLT, open_only=True)]
            assert len(sent) == WINDOW  # a gap takes four characters, and those of two windows do not fit
            assert len(open_ones) == 3 * WINDOW
            assert {letter.error for letter in open_ones} == {"A", "B"}
            await letters.replay(DLT)
            values = [int(record.value or b"") async for record in read_to_end(cluster.bootstrap_servers, "rides")]
            assert sorted(values) == list(range(4 * WINDOW))
        committed = await admin.list_group_offsets(f"{DLT}.replayed")
        assert [(committed_offset.offset, committed_offset.metadata) for committed_offset in committed.values()] == [
            (4 * WINDOW, "")
        ]


async def test_what_cannot_be_replayed_stays_open() -> None:
    """Its topic is gone, or its origin was not recorded; the others are replayed, Spring's with their binary numbers too."""
    async with LocalCluster() as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic("rides", 2), NewTopic(DLT, 1)])
        async with Producer(cluster.bootstrap_servers) as producer:
            for headers in (
                reasons("A", topic="gone"),
                [],
                reasons("A", partition=(1).to_bytes(4, "big"), offset=(7).to_bytes(8, "big")),
                reasons("A", partition=b"5"),
            ):
                await producer.send_and_wait(DLT, b"v", headers=headers)
        async with DeadLetters(cluster.bootstrap_servers) as letters:
            replayed = await letters.replay(DLT)
            assert [(letter.offset, letter.original_offset) for letter in replayed.done] == [(2, 7), (3, 0)]
            assert [(letter.offset, why) for letter, why in replayed.refused] == [
                (0, "its topic gone is not there any more"),
                (1, "its headers do not say which topic it came from and which group failed on it"),
            ]
            assert [letter.offset async for letter in letters.read(DLT, open_only=True)] == [0, 1]
            sent = [record async for record in read_to_end(cluster.bootstrap_servers, "rides")]
            assert {
                record.partition for record in sent if b"@2" in (dict(record.headers)["busway_replay-of"] or b"")
            } == {1}
            assert len(sent) == 2
            # What the brokers delete leaves no gap behind.
            await admin.delete_records({TopicPartition(DLT, 0): 1})
            assert [letter.offset for letter in await letters.discard(DLT)] == [1]
        committed = await admin.list_group_offsets(f"{DLT}.replayed")
        assert [(committed_offset.offset, committed_offset.metadata) for committed_offset in committed.values()] == [
            (4, "")
        ]


async def test_a_topic_made_anew_begins_with_nothing_done() -> None:
    """The offsets of the group are of a topic that is gone."""
    async with LocalCluster() as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic("rides", 1)])
        async with Producer(cluster.bootstrap_servers) as producer, DeadLetters(cluster.bootstrap_servers) as letters:
            for count in (3, 2):
                await admin.create_topics([NewTopic(DLT, 1)])
                for _ in range(count):
                    await producer.send_and_wait(DLT, b"v", headers=reasons("A"))
                assert len((await letters.replay(DLT)).done) == count
                await admin.delete_topics([DLT])


@pytest.mark.parametrize(
    ("wanted", "text"), [({"offset": 3}, "name the partition too"), ({"limit": 0}, "limit: 0 is not 1 or more")]
)
def test_selections_that_make_no_sense(wanted: dict[str, int], text: str) -> None:
    """Refused at once."""
    with pytest.raises(ValueError, match=text):
        DeadLetterSelection(**wanted)


@pytest.mark.parametrize("renamed", [False, True])
async def test_other_handlers_of_the_group_do_not_see_a_replay(renamed: bool) -> None:
    """They have handled the record; only if none has the name of the handler that failed, all get it, because none may be lost."""
    app = App("surge", commit_interval_s=0.01)
    orders = app.topic("orders", value=bytes, format="raw")
    billed, shipped = [], []
    broken = True

    async def bill(order: bytes) -> None:
        if broken:
            raise ValueError("a bug")
        billed.append(order)

    app.subscribe(orders, retry=Retry(attempts=1))(bill)

    @app.subscribe(orders)
    async def ship(order: bytes) -> None:
        shipped.append(order)

    async with app.test() as bus:
        await bus.send(orders, b"1")
        await bus.settle()
        broken = False
        if renamed:
            bill.__qualname__ = "invoice"
            await bus.restart()
        async with DeadLetters(app.bootstrap_servers) as letters:
            assert len((await letters.replay(f"orders.{app.group_id}.dlt")).done) == 1
        await bus.settle()
    assert billed == [b"1"]
    assert shipped == ([b"1", b"1"] if renamed else [b"1"])


async def test_other_groups_do_not_see_a_replay() -> None:
    """Two groups read the topic, one of them failed: only its handlers get the record again; the other one passes it and commits."""
    bug, other = Bug(), Bug("other")
    other.broken = False
    async with bug.app.test() as bus, DeadLetters(bug.app.bootstrap_servers) as letters:
        other.app.bootstrap_servers = bug.app.bootstrap_servers
        async with other.app:
            await bus.send(bug.rides, {"id": 3}, "k")
            await bus.settle()
            bug.broken = False
            await letters.replay(DLT)
            await bus.send(bug.rides, {"id": 4}, "k")
            await bus.settle()
            await TestBus(other.app).settle()
        assert (bug.handled, other.handled) == ([3, 4], [3, 4])
        assert [record.value["id"] for record in await bus.records(bug.rides)] == [3, 3, 4]
