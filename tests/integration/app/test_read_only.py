"""Topics that another service writes: their schemas are read, never registered; and many who wait for a global table at once."""

import asyncio
import logging
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated

import pytest
from tests.support.patience import patient

from busway import Admin, App, BadDeclaration, BuswayError, NewTopic, Precision, Producer, RegistryClient
from busway_bus.testing.local_cluster import LocalCluster
from busway_registry.config import RegistryConfig
from busway_registry.server import RegistryServer

pytestmark = pytest.mark.slow


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    __avro_namespace__ = "bank.public.accounts"

    id: str


@dataclass(slots=True, kw_only=True)
class Value:
    __avro_namespace__ = "bank.public.accounts"

    id: str
    balance: Annotated[Decimal, Precision(14, 2)]
    note: str | None = None


@dataclass(slots=True, kw_only=True)
class Envelope:
    __avro_namespace__ = "bank.public.accounts"

    before: Value | None = None
    after: Value | None = None
    op: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountKey:
    __avro_aliases__ = ("bank.public.accounts.Key",)

    id: str


@dataclass(slots=True, kw_only=True)
class Account:
    __avro_aliases__ = ("bank.public.accounts.Value",)

    id: str
    balance: Annotated[Decimal, Precision(14, 2)]


@dataclass(slots=True, kw_only=True)
class AccountChange:
    __avro_aliases__ = ("bank.public.accounts.Envelope",)

    before: Account | None
    after: Account | None


async def test_records_of_another_writer_are_read_into_own_classes() -> None:
    """Other names, other namespaces, fewer fields: read by aliases; the writer's subjects stay as they were, and sending is refused."""
    async with LocalCluster() as broker, RegistryServer(RegistryConfig(port=0, database="memory:")) as registry:
        writer = App("writer", broker.bootstrap_servers, registry.url)
        written = writer.topic("bank.public.accounts", key=Key, key_format="avro", value=Envelope, partitions=1)
        reader = App("reader", broker.bootstrap_servers, registry.url)
        read = reader.topic(
            "bank.public.accounts", key=AccountKey, key_format="avro", value=AccountChange, read_only=True
        )
        accounts = reader.global_table(
            "bank.public.accounts", key=AccountKey, key_format="avro", value=AccountChange, read_only=True
        )
        got: asyncio.Queue[AccountChange] = asyncio.Queue()

        @reader.subscribe(read)
        async def handle(change: AccountChange) -> None:
            got.put_nowait(change)

        async with writer, reader, RegistryClient(registry.url) as schemas:
            before = await schemas.request("GET", "/subjects/bank.public.accounts-value/versions")
            after = Value(id="a", balance=Decimal("12.30"), note="hidden")
            await written.send(Envelope(op="c", after=after), Key(id="a"))
            expected = AccountChange(before=None, after=Account(id="a", balance=Decimal("12.30")))
            async with asyncio.timeout(patient(10)):
                assert await got.get() == expected
                await accounts.caught_up()
            assert accounts[AccountKey(id="a")] == expected
            assert await schemas.request("GET", "/subjects/bank.public.accounts-value/versions") == before == [1]
            with pytest.raises(BadDeclaration, match=r"topic bank\.public\.accounts is read_only in app reader"):
                await read.send(None, AccountKey(id="a"))


async def test_a_handler_cannot_publish_to_a_read_only_topic() -> None:
    """It is refused at start, with the handler's line."""
    app = App("reader")
    source = app.topic("in", value=str, format="json")
    target = app.topic("out", value=str, format="json", read_only=True)

    @app.publish(target)
    @app.subscribe(source)
    async def handle(value: str) -> str:
        return value

    with pytest.raises(BadDeclaration, match="publishes to out, which is read_only"):
        async with app.test():
            pass


async def test_a_read_only_topic_that_does_not_exist_stops_the_start(caplog: pytest.LogCaptureFixture) -> None:
    """It is not created: the error names it, a similar one, and what helps. With partitions it is created, which the log says."""
    caplog.set_level(logging.INFO, "busway.app")
    async with LocalCluster() as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic("bank.accounts")])
        app = App("reader", bootstrap_servers=cluster.bootstrap_servers)

        @app.subscribe(app.topic("bank.acounts", value=str, format="json", read_only=True))
        async def handle(value: str) -> None:
            pass

        with pytest.raises(
            BuswayError, match=r"topic bank.acounts, .* does not exist; did you mean bank.accounts\? .*partitions="
        ):
            await app.start()
        assert list(await admin.list_topics()) == ["bank.accounts"]

        app = App("reader", bootstrap_servers=cluster.bootstrap_servers)
        app.topic("rates", value=str, format="json", read_only=True, partitions=2)
        async with app:
            assert "created topic rates with 2 partitions" in caplog.messages


async def test_a_test_stands_in_for_what_writes_a_read_only_topic() -> None:
    """`app.test()` creates it."""
    app = App("reader")
    source = app.topic("theirs", value=str, format="json", read_only=True)
    came = asyncio.Event()

    @app.subscribe(source)
    async def handle(value: str) -> None:
        came.set()

    async with app.test(), Producer(app.bootstrap_servers) as producer:
        await producer.send_and_wait("theirs", b'"a"')
        await came.wait()


def test_a_topic_is_read_only_or_not() -> None:
    """The same topic declared both ways is refused: it would depend on the order which one holds."""
    app = App("reader")
    app.topic("in", value=str, format="json", read_only=True)
    with pytest.raises(BadDeclaration, match="in was declared before with other settings"):
        app.topic("in", value=str, format="json")


async def test_everyone_who_waits_for_a_global_table_sees_what_was_there_when_they_called() -> None:
    """Two hundred wait at once, each after its own change: each finds it, and they share the questions to the broker."""
    app = App("prices")
    prices = app.global_table("prices", value=int, format="json")

    async def put(number: int) -> None:
        await prices.put(str(number), number)
        await prices.caught_up()
        assert prices[str(number)] == number

    async with app.test():
        await asyncio.gather(*(put(number) for number in range(200)))
        before = prices._answered
        await asyncio.gather(*(prices.caught_up() for _ in range(200)))
        assert prices._answered - before <= 2


def test_a_global_table_is_of_the_event_loop_that_the_app_runs_in() -> None:
    """An app that ran in one loop runs in another; a handler that waits for the table waits there."""
    app = App("prices")
    prices = app.global_table("prices", value=int, format="json")

    async def run() -> None:
        async with app.test():
            await asyncio.gather(*(prices.put(str(number), number) for number in range(5)))
            await asyncio.gather(*(prices.caught_up() for _ in range(5)))
            assert len(prices) == 5

    asyncio.run(run())
    asyncio.run(run())
