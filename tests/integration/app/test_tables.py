"""Tables on a real broker and registry: reading back, retries, replays, partitions that go, the whole topic in every instance."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.patience import patient, patient_ms

from busway import (
    Admin,
    App,
    BadDeclaration,
    Batch,
    Consumer,
    ConsumerRecord,
    NotRunning,
    Producer,
    Retry,
    TopicPartition,
    Unencodable,
)
from busway.app.tables.copies import BadRow
from busway.app.tables.table import NotHere, Table
from busway.testing import TestBus
from busway.types import OffsetAndMetadata
from busway_bus.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.slow
FAST = {"heartbeat_interval_ms": 50, "session_timeout_ms": patient_ms(6_000)}


@dataclasses.dataclass
class Sale:
    shop: str
    amount: int


class Shops:
    """A service that adds up sales."""

    def __init__(self, name: str = "shops", **options: Any) -> None:
        self.app = App(name, **{"consumer": FAST, "commit_interval_s": 0.02, **options})
        self.sales = self.app.topic("sales", value=Sale, format="json", partitions=4)
        self.totals = self.app.table("totals", value=int, format="json")
        self.failing = 0
        self.calls = 0
        self.app.subscribe(self.sales, retry=Retry(attempts=3))(self.add)

    async def add(self, sale: Sale, record: ConsumerRecord[str, Sale]) -> None:
        """The handler: counts each sale once, however often it comes."""
        self.calls += 1
        if self.totals.includes(sale.shop, record):
            return
        await self.totals.put(sale.shop, self.totals.get(sale.shop, 0) + sale.amount)
        if self.failing:
            self.failing -= 1
            raise ConnectionError("the till is away")


async def sell(bus: TestBus, shops: Shops, *sales: tuple[str, int]) -> None:
    """Write sales and wait until they are handled."""
    for shop, amount in sales:
        await bus.send(shops.sales, Sale(shop, amount), key=shop)
    await bus.settle()


@contextlib.asynccontextmanager
async def on_one_bus(*apps: App) -> AsyncIterator[LocalCluster]:
    """Apps without Avro on one broker, not started."""
    async with LocalCluster() as cluster:
        for app in apps:
            app.bootstrap_servers = cluster.bootstrap_servers
        yield cluster


async def test_rows_are_read_back_before_the_first_record() -> None:
    """A restart loses the memory, not the rows; a deleted one stays away."""
    shops = Shops()

    @shops.app.subscribe(shops.sales)
    async def close(sale: Sale) -> None:
        if sale.amount == 0:
            await shops.totals.delete(sale.shop)

    async with shops.app.test() as bus:
        await sell(bus, shops, *((f"s{number % 10}", number) for number in range(1, 41)), ("s3", 0))
        before = dict(shops.totals)
        assert sum(before.values()) == sum(number for number in range(1, 41) if number % 10 != 3)
        assert len(before) == 9
        await shops.app.stop()
        assert dict(shops.totals) == {}
        await shops.app.start()
        await sell(bus, shops, ("s1", 1000))
        assert dict(shops.totals) == {**before, "s1": before["s1"] + 1000}
        assert shops.totals.held == {0, 1, 2, 3}


async def test_what_a_failed_attempt_put_is_taken_back() -> None:
    """The next attempt finds the row as it was, and a record that fails for good changes neither memory nor topic."""
    shops = Shops()
    async with shops.app.test() as bus:
        shops.failing = 2
        await sell(bus, shops, ("a", 5))
        assert (dict(shops.totals), shops.calls) == ({"a": 5}, 3)
        assert [record.value for record in await bus.records(shops.totals.topic)] == [5]
        shops.failing = 3
        await sell(bus, shops, ("a", 7), ("b", 1))
        assert dict(shops.totals) == {"a": 5, "b": 1}
        assert len(await bus.dead_letters(shops.sales)) == 1
        await bus.restart()
        await bus.settle()
        assert dict(shops.totals) == {"a": 5, "b": 1}


async def test_a_value_that_cannot_be_written_changes_nothing() -> None:
    """The second of two puts is of another type: the first one is taken back too, in memory and in the topic."""
    app = App("shops", consumer=FAST)
    sales = app.topic("sales", value=Sale, format="json", partitions=1)
    totals = app.table("totals", value=int, format="json")
    wrong: Any = object()

    @app.subscribe(sales, retry=Retry(attempts=1))
    async def add(sale: Sale) -> None:
        await totals.put("a", sale.amount)
        await totals.put("b", wrong if sale.amount == 2 else sale.amount)

    async with app.test() as bus:
        for amount in (1, 2):
            await bus.send(sales, Sale("a", amount))
        await bus.settle()
        (letter,) = await bus.dead_letters(sales)
        assert "Unencodable" in letter.error
        assert dict(totals) == {"a": 1, "b": 1}
        await bus.restart()
        await bus.settle()
        assert dict(totals) == {"a": 1, "b": 1}
        with pytest.raises(Unencodable):
            await totals.put("a", wrong)
        assert totals["a"] == 1


async def test_who_gives_up_waiting_for_a_flush_cancels_nothing() -> None:
    """The handler goes on without the acknowledgement; its record is finished all the same once that has come."""
    app = App("shops", consumer=FAST)
    sales = app.topic("sales", value=Sale, format="json", partitions=1)
    totals = app.table("totals", value=int, format="json")
    given_up: list[int] = []

    @app.subscribe(sales)
    async def add(sale: Sale) -> None:
        await totals.put("a", sale.amount)
        if sale.amount == 1:
            return  # the producer learns where the topic is
        try:
            async with asyncio.timeout(0):
                await totals.flush()
        except TimeoutError:
            given_up.append(sale.amount)

    async with app.test() as bus:
        for amount in (1, 2):
            await bus.send(sales, Sale("a", amount))
            await bus.settle()
        assert given_up == [2]
        assert dict(totals) == {"a": 2}
        assert {record.value for record in await bus.records(totals.topic)} == {1, 2}


async def test_a_record_that_comes_again_changes_nothing() -> None:
    """Handled but not committed, as after a crash: each row tells which event is in it, by partition."""
    shops = Shops()
    async with shops.app.test() as bus:
        await sell(bus, shops, *((f"s{number % 7}", 1) for number in range(50)))
        before = dict(shops.totals)
        await shops.app.stop()
        async with Admin(shops.app.bootstrap_servers) as admin:
            committed = await admin.list_group_offsets(shops.app.group_id)
            await admin.alter_group_offsets(shops.app.group_id, dict.fromkeys(committed, 0))
        await shops.app.start()
        calls = shops.calls
        await bus.settle()
        assert (dict(shops.totals), shops.calls - calls) == (before, 50)


async def test_a_row_of_another_partition_is_refused_with_the_way_out() -> None:
    """In a handler, where it would work until a second instance comes; outside, where the instance does not have it."""
    app = App("rides", consumer=FAST)
    rides = app.topic("rides", value=Sale, format="json", partitions=4)
    drivers = app.table("drivers", key=int, value=int, format="json")

    @app.subscribe(rides, retry=Retry(attempts=1))
    async def take(ride: Sale) -> None:
        for driver in range(20):
            await drivers.put(driver, ride.amount)

    with pytest.raises(NotRunning, match="drivers"):
        await drivers.put(1, 1)
    async with app.test() as bus:
        await bus.send(rides, Sale("z", 1), key="z")
        await bus.settle()
        (letter,) = await bus.dead_letters(rides)
        assert "NotHere: table drivers" in letter.error
        assert "another instance may have" in letter.error
        assert dict(drivers) == {}
        await drivers.put(5, 7)  # no handler: this instance has all partitions
        assert drivers[5] == 7
        home = drivers.home(5)
        assert home is not None
        await drivers.revoked([TopicPartition("rides", home.partition)])
        assert drivers[5] == 7  # until it is known who has the partition
        with pytest.raises(NotHere, match="does not have"):
            await drivers.put(5, 8)
        await drivers.assigned([])
        assert 5 not in drivers


async def test_partitions_that_do_not_go_together_stop_the_start() -> None:
    """The message names both counts; as many as the topics have is the default."""
    many = App("many", consumer=FAST)
    sales = many.topic("sales", value=Sale, format="json", partitions=4)
    many.subscribe(sales)(_nothing)
    many.table("totals", value=int, format="json", partitions=3)
    async with on_one_bus(many):
        with pytest.raises(BadDeclaration, match="table totals has 3 partitions and sales 4"):
            await many.start()
    two = App("two", consumer=FAST)
    orders, items = (
        two.topic(name, value=Sale, format="json", partitions=n) for name, n in (("orders", 2), ("items", 3))
    )
    two.subscribe(orders, items)(_nothing)
    two.table("totals", value=int, format="json")
    async with on_one_bus(two):
        with pytest.raises(BadDeclaration, match="items has 3, orders has 2"):
            await two.start()
    bare = App("bare")
    bare.table("totals", value=int, format="json")
    async with on_one_bus(bare):
        with pytest.raises(BadDeclaration, match="has no handlers"):
            await bare.start()
    with pytest.raises(BadDeclaration, match="frozen=True"):
        bare.table("others", key=Sale, value=int, format="json")


async def test_a_table_of_several_topics_keeps_their_partitions_together() -> None:
    """In a classic group only the strategy "range" does, so such an app offers no other; all others share cooperatively where they can."""
    for names, expected in ((("orders",), "cooperative-sticky"), (("orders", "items"), "range")):
        app = App("-".join(names), consumer=FAST)
        app.subscribe(*(app.topic(name, value=Sale, format="json", partitions=2) for name in names))(_nothing)
        app.table("totals", value=int, format="json")
        async with on_one_bus(app), app:
            assert app.worker is not None
            group = app.worker.consumer._group
            assert group is not None
            async with asyncio.timeout(patient(20)):
                while not group.membership.owned:
                    await app.worker.progress.wait()
                    app.worker.progress.clear()
            assert group.membership.protocol == expected


def _joining(*, table: bool, consumer: dict[str, Any]) -> App:
    app = App("joining", consumer=consumer)
    topics = (app.topic(name, value=Sale, format="json", partitions=2) for name in ("orders", "items"))
    app.subscribe(*topics)(_nothing)
    if table:
        app.table("totals", value=int, format="json")
    return app


def _owned(app: App) -> dict[str, set[int]]:
    assert app.worker is not None
    owned: dict[str, set[int]] = {}
    for topic, number in app.worker.consumer.assignment():
        owned.setdefault(topic, set()).add(number)
    return owned


@pytest.mark.slow
@pytest.mark.parametrize("before", [{}, {"group_protocol": "classic"}], ids=["consumer", "classic"])
async def test_its_partitions_are_kept_together_among_members_that_ask_for_nothing(before: dict[str, Any]) -> None:
    """A deployment rolls from a version without the table, in either protocol: what shares is the assignor that the new members name. The
    coordinator's own, `uniform`, would give one the orders and the other the items."""
    old, new = _joining(table=False, consumer=before), _joining(table=True, consumer={})
    async with on_one_bus(old, new), old:
        async with asyncio.timeout(patient(40)):
            while {topic: len(numbers) for topic, numbers in _owned(old).items()} != {"orders": 2, "items": 2}:
                await asyncio.sleep(0.02)
            async with new:
                while _owned(new).keys() != {"orders", "items"} or _owned(old).keys() != {"orders", "items"}:
                    await asyncio.sleep(0.02)
                for app in (old, new):
                    assert _owned(app)["orders"] == _owned(app)["items"]
                    assert len(_owned(app)["orders"]) == 1


async def _nothing(sale: Sale) -> None:
    pass


async def test_rows_go_with_their_partitions_to_another_instance() -> None:
    """A second instance takes half of the partitions: its rows are read back there and gone here, and each is in one place."""
    first, second = Shops(), Shops()
    async with on_one_bus(first.app, second.app), first.app:
        for number in range(40):
            await first.sales.send(Sale(f"s{number}", 1), key=f"s{number}")
        bus = TestBus(first.app)
        await bus.settle()
        before = dict(first.totals)
        assert len(before) == 40
        with first.totals.changes() as gone:
            async with second.app:
                async with asyncio.timeout(patient(20)):
                    while len(first.totals.held) != 2 or len(second.totals.held) != 2:
                        await gone.get() if len(first.totals.held) == 4 else await asyncio.sleep(0.01)
                assert first.totals.held | second.totals.held == {0, 1, 2, 3}
                assert not first.totals.keys() & second.totals.keys()
                assert {**first.totals, **second.totals} == before
        async with asyncio.timeout(patient(20)):
            while len(first.totals.held) != 4:
                await asyncio.sleep(0.01)
        assert dict(first.totals) == before


async def test_rows_stay_while_a_rebalance_gives_their_partitions_back(caplog: pytest.LogCaptureFixture) -> None:
    """No reader finds a row gone meanwhile, and none is read again but for what another instance has written since."""
    caplog.set_level("INFO", "busway.app")
    shops = Shops(consumer={**FAST, "partition_assignment_strategy": ("range",)})  # which gives everything up first
    async with on_one_bus(shops.app), shops.app:
        bus = TestBus(shops.app)
        for amount in (1, 2, 3):
            await sell(bus, shops, *((f"s{number}", amount) for number in range(20)))
        before = dict(shops.totals)
        assert len(before) == 20
        assert shops.app.worker is not None
        group = shops.app.worker.consumer._group
        assert group is not None
        with shops.totals.changes() as changes:
            for other in (0, 1):
                if other:
                    home = shops.totals.home("s1")
                    assert home is not None
                    async with Producer(shops.app.bootstrap_servers) as producer:
                        await producer.send_and_wait("totals", b"7", b"s1", partition=home.partition)
                reads = caplog.text.count("records read")
                group.subscribe(["sales"])
                async with asyncio.timeout(patient(20)):
                    while caplog.text.count("records read") == reads:
                        await asyncio.sleep(0.01)
                assert f"20 rows, {other} records read, partitions [0, 1, 2, 3]" in caplog.text
            assert changes.get_nowait() == ("s1", 7)
            assert changes.empty()
        assert dict(shops.totals) == {**before, "s1": 7}
        await sell(bus, shops, ("s1", 1))
        assert shops.totals["s1"] == 8


async def test_rows_stay_while_the_broker_restarts() -> None:
    """The group's members outlive it, so nothing is given up: the only change is that of the next event."""
    shops = Shops()
    async with shops.app.test() as bus:
        await sell(bus, shops, *((f"s{number}", 1) for number in range(20)))
        with shops.totals.changes() as changes:
            await bus.crash_broker()
            await sell(bus, shops, ("s1", 1))
            assert changes.get_nowait() == ("s1", 2)
            assert changes.empty()
        assert len(shops.totals) == 20


async def test_rows_whose_write_failed_are_read_again() -> None:
    """What is in memory may not be in the topic, so it is not kept."""
    shops = Shops()
    async with shops.app.test() as bus:
        await sell(bus, shops, ("a", 5), ("b", 6))
        home = shops.totals.home("a")
        assert home is not None
        copy = shops.totals._copies.of(home.partition)
        failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        copy.sent([failed])
        failed.set_exception(ConnectionError("the till is away"))
        await asyncio.sleep(0)
        await shops.totals.revoked([TopicPartition("sales", home.partition)])
        assert "a" not in shops.totals
        await shops.totals.assigned([TopicPartition("sales", home.partition)])
        assert shops.totals["a"] == 5


async def test_a_row_that_cannot_be_read_stops_the_app() -> None:
    """State that is lost silently would be worse: the error names partition and offset."""
    shops = Shops()
    async with shops.app.test() as bus:
        await sell(bus, shops, ("a", 1))
        await shops.app.stop()
        async with Producer(shops.app.bootstrap_servers) as producer:
            await producer.send_and_wait("totals", b"{", b"x", partition=2)
        await shops.app.start()
        with pytest.raises(BadRow, match="totals-2 offset 0"):
            await shops.app.wait()


async def test_a_global_table_is_whole_in_every_instance() -> None:
    """Loaded before the first record is handled, followed from then on, also by an app without handlers."""
    writer, reader = App("writer"), App("reader")
    rates = writer.global_table("rates", value=int, format="json", partitions=3)
    seen = reader.global_table("rates", value=int, format="json")
    rides = reader.topic("rides", value=Sale, format="json", partitions=1)
    at_first: list[dict[str, int]] = []

    @reader.subscribe(rides)
    async def handle(ride: Sale) -> None:
        at_first.append(dict(seen))

    async with on_one_bus(writer, reader), writer:
        with pytest.raises(NotRunning):
            await seen.caught_up()
        for number in range(30):
            await rates.put(f"z{number}", number)
        await rates.delete("z0")
        await rates.caught_up()
        assert dict(rates) == {f"z{number}": number for number in range(1, 30)}
        async with reader:
            await rides.send(Sale("z", 1))
            await TestBus(reader).settle()
            assert at_first == [dict(rates)]
            with seen.changes() as changes:
                await rates.put("z1", 99)
                async with asyncio.timeout(patient(5)):
                    assert await changes.get() == ("z1", 99)
                await rates.delete("z2")
                async with asyncio.timeout(patient(5)):
                    assert await changes.get() == ("z2", None)
        assert not seen


async def test_an_empty_global_table_holds_up_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to read, so no fetch is waited for; the broker would wait for records."""
    app = App("zones")
    zones = app.global_table("zones", value=int, format="json", partitions=2)

    async def no_record_comes(consumer: Consumer, **_: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(Consumer, "getmany", no_record_comes)
    async with on_one_bus(app), asyncio.timeout(patient(10)), app:
        assert not zones


async def test_a_global_table_passes_over_what_it_cannot_read(caplog: pytest.LogCaptureFixture) -> None:
    """The record is named in the log and counted; the others are there."""
    app = App("zones")
    zones = app.global_table("zones", value=int, format="json", partitions=1)
    async with on_one_bus(app), app, Producer(app.bootstrap_servers) as producer:
        await zones.put("a", 1)
        await producer.send_and_wait("zones", b"{", b"b")
        await zones.put("c", 3)
        await zones.caught_up()
        assert (dict(zones), zones.passed_over) == ({"a": 1, "c": 3}, 1)
        assert "zones-0 offset 1 is no row" in caplog.text


async def test_a_global_table_survives_a_restart_of_the_broker() -> None:
    """It goes on where it was, and learns what was written meanwhile."""
    app, other = App("zones"), App("other")
    zones = app.global_table("zones", value=int, format="json", partitions=2)
    theirs = other.global_table("zones", value=int, format="json")
    async with on_one_bus(app, other) as cluster, app:
        await zones.put("a", 1)
        await zones.caught_up()
        await cluster.stop()
        await cluster.start()
        async with other:
            await theirs.put("b", 2)
            async with asyncio.timeout(patient(20)):
                await zones.caught_up()
            assert dict(zones) == dict(theirs) == {"a": 1, "b": 2}


def test_types_of_a_table() -> None:
    """Keys are text unless said otherwise."""
    app = App("typed")
    table: Table[int, Sale] = app.table("sales", key=int, value=Sale, format="json")
    assert (table.topic.key, table.topic.value) == (int, Sale)


async def test_rows_by_another_key_need_their_events_in_order() -> None:
    """A record that is tried again comes after later ones of other keys, so what is in the row would be unknown."""
    refusals: list[str] = []
    app = App("shops", consumer=FAST)
    sales = app.topic("sales", value=Sale, format="json", partitions=1)
    totals = app.table("totals", value=int, format="json")

    async def add(sale: Sale, record: ConsumerRecord[str, Sale]) -> None:
        try:
            if not totals.includes(sale.shop, record):
                await totals.put(sale.shop, totals.get(sale.shop, 0) + sale.amount)
        except BadDeclaration as refusal:
            refusals.append(str(refusal))

    app.subscribe(sales)(add)
    app.subscribe(sales, ordering="partition")(add)
    async with app.test() as bus:
        for number in range(3):
            await bus.send(sales, Sale("a", 5), key=f"order {number}")
        await bus.settle()
        assert len(refusals) == 3
        assert 'ordering="partition"' in refusals[0]
        assert dict(totals) == {"a": 15}


async def test_rows_of_any_key_may_go_with_their_event() -> None:
    """With `partition=` rows are at home where their event is, whatever their key says; they are read back from there."""
    app = App("shops", consumer=FAST)
    sales = app.topic("sales", value=Sale, format="json", partitions=4)
    last = app.table("last", value=int, format="json")

    @app.subscribe(sales, ordering="partition")
    async def keep(sale: Sale, record: ConsumerRecord[str, Sale]) -> None:
        await last.put(f"{sale.shop}/{sale.amount}", sale.amount, partition=record.partition)

    async with app.test() as bus:
        for number in range(20):
            await app.send(sales, Sale("a", number), key="a", partition=2)
        await bus.settle()
        before = dict(last)
        assert len(before) == 20
        await bus.restart()
        assert dict(last) == before
        assert {record.partition for record in await bus.records(last.topic)} == {2}


async def test_a_row_that_moved_to_another_partition_is_there_after_a_restart() -> None:
    """Put through one partition, deleted there, put through another: the tombstone in the first log deletes its own row only."""
    app = App("taxis", consumer=FAST)
    pings = app.topic("pings", value=str, format="json", partitions=2)
    zones = app.table("zones", value=str, format="json")

    @app.subscribe(pings)
    async def track(value: str, record: ConsumerRecord[str, str]) -> None:
        driver, what = value.split()
        if what == "off":
            await zones.delete(driver)
        else:
            await zones.put(driver, f"{what} {record.partition}", partition=record.partition)

    async with app.test() as bus:
        # Whichever log is read first, one of the two drivers moved to it from the other.
        for driver, first, second in (("d1", 0, 1), ("d2", 1, 0)):
            for partition, what in ((first, "on"), (first, "off"), (second, "on")):
                await pings.send(f"{driver} {what}", driver, partition=partition)
                await bus.settle()
        before = dict(zones)
        assert before == {"d1": "on 1", "d2": "on 0"}
        await bus.restart()
        await bus.settle()
        assert dict(zones) == before


async def test_producers_with_different_partitioners_are_named_as_the_cause() -> None:
    """A key comes in a partition where its row is not: the refusal says what may have sent it there."""
    shops, refusals = Shops(), []

    @shops.app.subscribe(shops.sales)
    async def close(sale: Sale, record: ConsumerRecord[str, Sale]) -> None:
        try:
            await shops.totals.delete(sale.shop)
        except NotHere as refusal:
            refusals.append(str(refusal))

    async with shops.app.test() as bus:
        await sell(bus, shops, ("a", 1))
        home = shops.totals.home("a")
        if home is None:  # both handlers saw the sale, the second one closed the shop
            await shops.totals.put("a", 1)
            home = shops.totals.home("a")
        assert home is not None
        await shops.sales.send(Sale("a", 0), "a", partition=(home.partition + 1) % 4)
        await bus.settle()
        assert refusals
        assert "two producers choose them differently" in refusals[0]


async def test_a_deleted_row_of_a_global_table_is_gone_from_every_partition() -> None:
    """The topic has two rows of a key, as after more partitions: the newest is shown, in whatever order they are read; delete ends both."""
    app = App("zones")
    zones = app.global_table("zones", value=int, format="json", partitions=4)
    async with on_one_bus(app), app:
        first = await zones.put("a", 1)
        own_partition = first.partition
        for step, value in enumerate((2, 3), 1):
            await zones.topic.send(
                value, "a", partition=(own_partition + step) % 4, timestamp_ms=first.timestamp_ms + 5 - step
            )
        await zones.topic.send(4, "b", partition=0)
        await zones.topic.send(None, "b", partition=1)
        await zones.caught_up()
        assert dict(zones) == {"a": 2, "b": 4}
        await zones.delete("a")
        await zones.caught_up()
        assert dict(zones) == {"b": 4}
        await app.stop()
        await app.start()
        assert dict(zones) == {"b": 4}


async def test_what_was_flushed_stays_though_the_handler_fails() -> None:
    """The next attempt finds what the first one flushed, and not what it only put."""
    app = App("shops", consumer=FAST)
    sales = app.topic("sales", value=Sale, format="json", partitions=1)
    first, second = app.table("first", value=int, format="json"), app.table("second", value=int, format="json")
    values: list[tuple[int | None, int | None]] = []

    @app.subscribe(sales, retry=Retry(attempts=2))
    async def keep(sale: Sale) -> None:
        values.append((first.get(sale.shop), second.get(sale.shop)))
        await first.put(sale.shop, sale.amount)
        await first.flush()
        await second.put(sale.shop, sale.amount)
        if len(values) == 1:
            raise ConnectionError("the till is away")

    async with app.test() as bus:
        await bus.send(sales, Sale("a", 7), key="a")
        await bus.settle()
        assert values == [(None, None), (7, None)]
        assert (dict(first), dict(second)) == ({"a": 7}, {"a": 7})


async def test_a_batch_may_change_a_row_more_than_once() -> None:
    """Several records of one row in a batch: none of them takes what the batch itself put for its own, and a batch that comes again does."""
    app = App("shops", consumer=FAST)
    sales = app.topic("sales", value=Sale, format="json", partitions=1)
    totals = app.table("totals", value=int, format="json")
    failing = [True]

    @app.subscribe(sales, batch=Batch(max_records=10, max_wait_s=0.2), retry=Retry(attempts=2))
    async def add(records: list[ConsumerRecord[str, Sale]]) -> None:
        for record in records:
            assert record.value is not None
            if not totals.includes(record.value.shop, record):
                await totals.put(record.value.shop, totals.get(record.value.shop, 0) + record.value.amount)
        if failing:
            failing.pop()
            raise ConnectionError("the till is away")

    async with app.test() as bus:
        for number in range(10):
            await sales.send_soon(Sale("ab"[number % 2], number), key="k")
        await bus.settle()
        assert dict(totals) == {"a": 20, "b": 25}
        async with Admin(app.bootstrap_servers) as admin:
            await app.stop()
            await admin.alter_group_offsets("shops", {TopicPartition("sales", 0): OffsetAndMetadata(3)})
        await app.start()
        await bus.settle()
        assert dict(totals) == {"a": 20, "b": 25}


async def test_a_batch_that_asks_what_is_in_a_row_cannot_flush() -> None:
    """The last record of a row has its value, so half a batch that stays would pass for the whole; refused with the way out."""
    app = App("shops", consumer=FAST)
    sales = app.topic("sales", value=Sale, format="json", partitions=1)
    totals = app.table("totals", value=int, format="json")

    @app.subscribe(sales, batch=Batch(), retry=Retry(attempts=1))
    async def add(records: list[ConsumerRecord[str, Sale]]) -> None:
        assert not totals.includes("a", records[0])
        await totals.put("a", 1)
        await totals.flush()

    async with app.test() as bus:
        await bus.send(sales, Sale("a", 5), key="k")
        await bus.settle()
        (letter,) = await bus.dead_letters(sales)
        assert "without batch" in letter.error
        assert dict(totals) == {}


async def test_one_handler_tells_what_is_in_a_row() -> None:
    """Two handlers of a topic are at different records, so what one has put in says nothing about the other; refused with the way out."""
    app = App("shops", consumer=FAST)
    sales = app.topic("sales", value=Sale, format="json", partitions=1)
    totals = app.table("totals", value=int, format="json")

    async def add(sale: Sale, record: ConsumerRecord[str, Sale]) -> None:
        if not totals.includes(sale.shop, record):
            await totals.put(sale.shop, totals.get(sale.shop, 0) + sale.amount)

    @app.subscribe(sales, retry=Retry(attempts=1))
    async def first(sale: Sale, record: ConsumerRecord[str, Sale]) -> None:
        await add(sale, record)

    @app.subscribe(sales, retry=Retry(attempts=1))
    async def second(sale: Sale, record: ConsumerRecord[str, Sale]) -> None:
        await add(sale, record)

    async with app.test() as bus:
        await bus.send(sales, Sale("a", 5), key="a")
        await bus.settle()
        (letter,) = await bus.dead_letters(sales)
        assert "one handler" in letter.error
        assert dict(totals) == {"a": 5}


async def test_what_could_not_be_flushed_is_taken_back() -> None:
    """A row that the broker refuses is not in memory at the next attempt, nor is another one that was flushed with it: a handler that
    found it there would take its event for done, and nothing would ever write it."""
    app = App("shops", consumer=FAST)
    sales = app.topic("sales", value=Sale, format="json", partitions=1)
    notes = app.table("notes", value=str, format="json", configs={"max.message.bytes": "1000"})
    values: list[str | None] = []

    @app.subscribe(sales, retry=Retry(attempts=2))
    async def keep(sale: Sale) -> None:
        values.append(notes.get("small"))
        await notes.put("small", "written")
        if sale.amount > 1:
            await notes.put("large", "x" * 2000)
        await notes.flush()

    async with app.test() as bus:
        await bus.send(sales, Sale("a", 2), key="a")
        await bus.settle()
        assert (values, dict(notes), len(await bus.dead_letters(sales))) == ([None, None], {}, 1)
        await bus.send(sales, Sale("a", 1), key="a")
        await bus.settle()
        await bus.restart()
        assert (len(values), dict(notes)) == (3, {"small": "written"})
