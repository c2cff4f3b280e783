"""The outbox: sent if committed, in order by key, by one relay, woken at once, and nothing stands in the way of the rest."""

import asyncio
import contextlib
import dataclasses
import json
import random
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import create_engine, func, insert, select, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from tests.support.patience import patient
from tests.support.seeds import seed

from busway import Admin, App, BadDeclaration, NewTopic, NotRunning, Record, Unencodable
from busway.consumer.snapshot import read_to_end
from busway.sql import OUTBOX_ID, TABLES, Outbox, Relay

pytestmark = pytest.mark.slow
OUTBOX = TABLES.outbox
LONG_S = patient(30.0)
"""An interval of polling that no test waits for."""


@dataclasses.dataclass
class Paid:
    account: str
    amount: int


class Shop:
    """An app with an outbox, which need not run."""

    def __init__(self, engine: AsyncEngine, bootstrap: str, **options: Any) -> None:
        self.engine = engine
        self.app = App("shop", bootstrap)
        self.paid = self.app.topic("paid", value=Paid, format="json", partitions=4)
        self.outbox = Outbox(engine, **{"poll_interval_s": LONG_S, **options})

    async def pay(self, account: str, amount: int) -> None:
        async with self.engine.begin() as tx:
            await self.outbox.send(tx, self.paid, Paid(account, amount), key=account)

    async def published(self, count: int) -> list[Record]:
        """The topic's records, once there are so many and none waits."""
        async with asyncio.timeout(patient(20)):
            while True:
                records = [record async for record in read_to_end(str(self.app.bootstrap_servers), "paid")]
                if len(records) >= count and not await waiting(self.engine):
                    return records
                await asyncio.sleep(0.01)


async def waiting(engine: AsyncEngine) -> int:
    """Rows that are not published."""
    async with engine.connect() as connection:
        unpublished = select(func.count()).select_from(OUTBOX).where(OUTBOX.c.published_ms.is_(None))
        return int(await connection.scalar(unpublished) or 0)


@contextlib.asynccontextmanager
async def relaying(shop: Shop) -> AsyncIterator[Relay]:
    """A relay that leads."""
    async with shop.outbox.relay(shop.app) as relay:
        async with asyncio.timeout(patient(20)):
            await relay.leading.wait()
        yield relay


@pytest.fixture
async def shop(engine: AsyncEngine, bootstrap: str) -> Shop:
    """With its tables and its topic; nothing runs."""
    made = Shop(engine, bootstrap)
    await made.outbox.create_tables()
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic("paid", 4)])
    return made


def amounts(records: list[Record]) -> list[int]:
    """In the order of offsets, for one key."""
    return [json.loads(record.value or b"")["amount"] for record in sorted(records, key=lambda record: record.offset)]


async def test_what_commits_is_sent_and_what_rolls_back_is_not(shop: Shop) -> None:
    """The record is typed, keyed, with its headers and the id that send returned; its row is gone."""
    async with relaying(shop):
        with pytest.raises(RuntimeError):  # noqa: PT012 - it is the transaction that raises
            async with shop.engine.begin() as tx:
                await shop.outbox.send(tx, shop.paid, Paid("a", 1), key="a")
                raise RuntimeError
        async with shop.engine.begin() as tx:
            sent = await shop.outbox.send(
                tx,
                shop.paid,
                Paid("a", 2),
                key="a",
                headers=[("trace", b"\xff\x00"), ("none", None)],
                timestamp_ms=1234,
            )
        (record,) = await shop.published(1)
    assert record.value == b'{"account":"a","amount":2}'
    assert (record.key, record.timestamp_ms) == (b"a", 1234)
    assert record.headers == ((OUTBOX_ID, str(sent).encode()), ("trace", b"\xff\x00"), ("none", None))
    async with shop.engine.connect() as connection:
        assert await connection.scalar(select(func.count()).select_from(OUTBOX)) == 0


async def test_sessions_and_tombstones_and_partitions(shop: Shop) -> None:
    """An ORM session sends in its own transaction; a None is a tombstone; a partition given is used."""
    async with relaying(shop):
        async with AsyncSession(shop.engine) as session, session.begin():
            await shop.outbox.send(session, shop.paid, None, key="a", partition=3)
        (record,) = await shop.published(1)
    assert (record.key, record.value, record.partition) == (b"a", None, 3)


async def test_a_bad_value_fails_in_the_transaction_of_who_sends(shop: Shop) -> None:
    """At once, where the mistake is; nothing is written. The header of the outbox cannot be forged."""
    async with shop.engine.connect() as tx:
        with pytest.raises(Unencodable):
            await shop.outbox.send(tx, shop.paid, "no payment", key="a")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="a header is a str and bytes or None"):
            await shop.outbox.send(tx, shop.paid, Paid("a", 1), headers=[("x", "text")])  # type: ignore[list-item]
        with pytest.raises(BadDeclaration, match="busway_outbox-id"):
            await shop.outbox.send(tx, shop.paid, Paid("a", 1), headers=[(OUTBOX_ID, b"1")])
    assert await waiting(shop.engine) == 0


async def test_plain_code_sends_too(shop: Shop, url: str) -> None:
    """With an engine of its own, without an event loop, once the topic is prepared."""
    engine = create_engine(url.replace("+aiosqlite", ""))
    with engine.begin() as tx, pytest.raises(NotRunning, match=r"topic paid is not prepared; await outbox\.prepare"):
        shop.outbox.send_sync(tx, shop.paid, Paid("a", 1), key="a")
    await shop.outbox.prepare(shop.paid)

    def plain() -> None:
        with engine.begin() as tx:
            shop.outbox.send_sync(tx, shop.paid, Paid("a", 1), key="a")

    await asyncio.to_thread(plain)
    engine.dispose()
    async with relaying(shop):
        assert amounts(await shop.published(1)) == [1]


async def test_the_relay_catches_up_and_keeps_the_order_of_keys(shop: Shop) -> None:
    """Rows from before it began, several rounds of them, keys mixed at random."""
    chance = random.Random(seed(1))
    async with shop.engine.begin() as tx:
        for number in range(1200):
            account = chance.choice("abcdefgh")
            await shop.outbox.send(tx, shop.paid, Paid(account, number), key=account)
    async with relaying(shop) as relay:
        records = await shop.published(1200)
    assert relay.published == 1200
    for account in "abcdefgh":
        own_amounts = amounts([record for record in records if record.key == account.encode()])
        assert own_amounts == sorted(own_amounts)
    assert len({dict(record.headers)[OUTBOX_ID] for record in records}) == 1200


async def test_a_transaction_that_commits_late_is_not_missed(shop: Shop, url: str) -> None:
    """Its rows have lower positions than others that were published long ago."""
    if url.startswith("sqlite"):
        # One writer at a time: positions are in the order of commits. What would be missed by a cursor is written by hand.
        await shop.pay("early", 1)
        async with relaying(shop):
            await shop.published(1)
            async with shop.engine.begin() as tx:
                await shop.outbox.send(tx, shop.paid, Paid("late", 2), key="late")
                await tx.execute(text("UPDATE busway_outbox SET position = -5"))
            assert len(await shop.published(2)) == 2
        return
    async with relaying(shop), shop.engine.connect() as late:
        transaction = await late.begin()
        await shop.outbox.send(late, shop.paid, Paid("late", 1), key="late")
        await shop.pay("other", 2)
        await shop.published(1)
        await transaction.commit()
        await late.close()
        assert sorted(amounts(await shop.published(2))) == [1, 2]


@pytest.mark.postgres
async def test_other_processes_wake_the_relay_by_notify(postgres: Any, bootstrap: str) -> None:
    """A commit through another engine, with polling as good as off."""
    from tests.integration.sql.conftest import emptied

    await emptied(postgres)
    engine, elsewhere = create_async_engine(postgres.url), create_async_engine(postgres.url)
    shop = Shop(engine, bootstrap)
    await shop.outbox.create_tables()
    async with relaying(shop):
        other = Shop(elsewhere, bootstrap)
        for number in range(5):
            await other.pay("a", number)
            await shop.published(number + 1)
    for used_engine in (engine, elsewhere):
        await used_engine.dispose()


@pytest.mark.postgres
async def test_one_relay_leads_and_another_takes_over(postgres: Any, bootstrap: str) -> None:
    """Three at once publish each row once; when the leader goes, the next one leads."""
    from tests.integration.sql.conftest import emptied

    await emptied(postgres)
    engines = [create_async_engine(postgres.url) for _ in range(3)]
    shops = [Shop(engine, bootstrap, poll_interval_s=0.05) for engine in engines]
    await shops[0].outbox.create_tables()
    stacks = [contextlib.AsyncExitStack() for _ in shops]
    relays = [
        await stack.enter_async_context(shop.outbox.relay(shop.app)) for stack, shop in zip(stacks, shops, strict=True)
    ]
    for turn in range(3):
        async with asyncio.timeout(patient(20)):
            leads = [asyncio.ensure_future(relay.leading.wait()) for relay in relays]
            await asyncio.wait(leads, return_when=asyncio.FIRST_COMPLETED)
            for lead in leads:
                lead.cancel()
        (leader,) = [number for number, relay in enumerate(relays) if relay.leading.is_set()]
        for number in range(20):
            await shops[0].pay(f"k{number}", turn)
        assert len(await shops[0].published(20 * (turn + 1))) == 20 * (turn + 1)
        await stacks.pop(leader).aclose()
        relays.pop(leader)
    for engine in engines:
        await engine.dispose()


async def test_a_row_that_cannot_be_published_holds_its_key_alone(shop: Shop) -> None:
    """Too large: its key waits behind it, others flow; a topic that is not there holds no other row. Both go on when they can."""
    big = shop.app.topic("big", value=bytes, format="raw")
    async with Admin(str(shop.app.bootstrap_servers)) as admin:
        await admin.create_topics([NewTopic("big", 1, configs={"max.message.bytes": "2000"})])
    async with shop.engine.begin() as tx:
        await shop.outbox.send(tx, big, b"x" * 5000, key="blocked")
        await shop.outbox.send(tx, big, b"behind", key="blocked")
        await shop.outbox.send(tx, big, b"flows", key="free")
        await tx.execute(
            insert(OUTBOX).values(
                id=uuid.uuid4(),
                aggregatetype="not/a/topic",
                type="x",
                headers="[]",
                timestamp_ms=0,
            )
        )
    await shop.pay("a", 1)

    async def of_big() -> list[bytes | None]:
        return [record.value async for record in read_to_end(str(shop.app.bootstrap_servers), "big")]

    async with relaying(shop), asyncio.timeout(patient(20)):
        while await waiting(shop.engine) > 3:
            await asyncio.sleep(0.01)
        assert await of_big() == [b"flows"]
        assert [(topic.topic, topic.waiting) for topic in await shop.outbox.status()] == [
            ("big", 2),
            ("not/a/topic", 1),
        ]
        async with Admin(str(shop.app.bootstrap_servers)) as admin:
            await admin.alter_configs("big", {"max.message.bytes": None})
        while await waiting(shop.engine) > 1:
            await asyncio.sleep(0.01)
        assert await of_big() == [b"flows", b"x" * 5000, b"behind"]


async def test_rows_may_be_kept(engine: AsyncEngine, bootstrap: str) -> None:
    """With the time they were published at, in Debezium's columns."""
    shop = Shop(engine, bootstrap, keep=True)
    await shop.outbox.create_tables()
    async with relaying(shop):
        await shop.pay("a", 1)
        await shop.published(1)
    async with engine.connect() as connection:
        columns = "aggregatetype, aggregateid, type, payload, published_ms > 0"
        (row,) = (await connection.execute(text(f"SELECT {columns} FROM busway_outbox"))).all()
    assert [bytes(value) if isinstance(value, memoryview) else value for value in row] == [
        "paid", b"a", "Paid", b'{"account":"a","amount":1}', True,
    ]  # fmt: skip


async def test_an_app_that_is_extended_relays_while_it_runs(engine: AsyncEngine, bootstrap: str) -> None:
    """It makes the tables; at a stop the round under way ends, so that nothing is published twice."""
    shop = Shop(engine, bootstrap)
    shop.app.extend(shop.outbox)
    for turn in range(2):
        async with shop.app:
            for number in range(30):
                await shop.pay("a", turn * 30 + number)
    async with shop.app:
        assert amounts(await shop.published(60)) == list(range(60))


async def test_a_broker_that_is_away_is_waited_for(engine: AsyncEngine) -> None:
    """Transactions go on meanwhile: the outbox asks no broker."""
    from busway_bus.testing.local_cluster import LocalCluster

    shop = Shop(engine, "127.0.0.1:1", poll_interval_s=0.05)
    await shop.outbox.create_tables()
    async with shop.outbox.relay(shop.app) as early:
        await shop.pay("a", 1)
        assert not early.leading.is_set()
    assert await waiting(engine) == 1
    async with LocalCluster() as cluster:
        shop.app.bootstrap_servers = cluster.bootstrap_servers
        async with relaying(shop):
            assert amounts(await shop.published(1)) == [1]
