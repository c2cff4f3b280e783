"""The inbox by itself and in a service: handled once, whatever is redelivered, by whomever, and wherever the group stands."""

import asyncio
import itertools
import random
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, insert, select, text
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool
from tests.support.patience import patient, patient_ms
from tests.support.seeds import seed
from tests.support.waiting import until

from busway import Admin, App, BadDeclaration, BrokerError, ConsumerRecord, NewTopic, Retry, TopicPartition
from busway.sql import TABLES, DatabaseUnreachable, Sql, Tables, create_all
from busway_protocol.errors import ErrorCode

pytestmark = pytest.mark.slow
FAST: dict[str, Any] = {"heartbeat_interval_ms": 50, "session_timeout_ms": patient_ms(6_000)}
INBOX, FLOORS = TABLES.inbox, TABLES.floors


def record(offset: int, topic: str = "payments", partition: int = 0) -> ConsumerRecord[str, Any]:
    """As a handler gets it."""
    return ConsumerRecord(
        topic=topic, partition=partition, offset=offset, timestamp_ms=0, key="k", value=None, headers=()
    )


@pytest.fixture
async def store(engine: AsyncEngine) -> Sql:
    """A store with its tables, and a table of the service's own."""
    made = Sql(engine)
    await made.create_tables()
    await _own_table(engine)
    return made


async def _own_table(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE done (n INTEGER NOT NULL)"))


async def written(engine: AsyncEngine) -> list[int]:
    """What handlers wrote."""
    async with engine.connect() as connection:
        return list(await connection.scalars(text("SELECT n FROM done ORDER BY n")))


async def write(tx: AsyncConnection, number: int) -> None:
    """What a handler does."""
    await tx.execute(text("INSERT INTO done VALUES (:n)"), {"n": number})


async def rows(engine: AsyncEngine) -> int:
    """How many records the inbox holds."""
    async with engine.connect() as connection:
        return int(await connection.scalar(select(func.count()).select_from(INBOX)) or 0)


def test_one_that_a_module_declares_runs_in_one_event_loop_after_another(tmp_path: Path) -> None:
    """As in tests: those that write to SQLite wait for each other, in each loop by a lock of its own."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'service.db'}", poolclass=NullPool)
    store = Sql(engine)

    async def work(loop: int) -> None:
        await store.create_tables()

        async def handle(number: int) -> bool:
            async with store.handling("g", record(number)) as tx:
                return tx is not None

        assert await asyncio.gather(*(handle(number) for number in range(3))) == [loop == 0] * 3

    for loop in range(2):
        asyncio.run(work(loop))


async def test_a_record_is_handled_once_for_each_group(store: Sql, engine: AsyncEngine) -> None:
    """The second time it enters as None; another group, partition or offset is another record."""
    for group, handled in itertools.product(("a", "b"), (record(0), record(1), record(0, partition=1))):
        async with store.handling(group, handled) as tx:
            assert tx is not None
            await write(tx, handled.offset)
    async with store.handling("a", record(0)) as tx:
        assert tx is None
    assert await written(engine) == [0, 0, 0, 0, 1, 1]


async def test_what_raises_leaves_nothing(store: Sql, engine: AsyncEngine) -> None:
    """Neither what the handler wrote nor the claim; the next attempt is fresh. Cancelling is the same."""
    for problem in (RuntimeError("no"), asyncio.CancelledError()):
        with pytest.raises(type(problem)):  # noqa: PT012 - it is the transaction that raises
            async with store.handling("g", record(7)) as tx:
                assert tx is not None
                await write(tx, 7)
                raise problem
    assert (await written(engine), await rows(engine)) == ([], 0)
    async with store.handling("g", record(7)) as tx:
        assert tx is not None
        await write(tx, 7)
    assert await written(engine) == [7]


async def test_a_mistake_of_the_handler_is_its_own_exception(store: Sql, engine: AsyncEngine) -> None:
    """A constraint that does not hold is no outage: it comes through as it is."""
    with pytest.raises(IntegrityError):  # noqa: PT012 - it is the transaction that raises
        async with store.handling("g", record(0)) as tx:
            assert tx is not None
            await tx.execute(text("INSERT INTO done VALUES (NULL)"))
    assert await rows(engine) == 0


async def test_a_handler_cannot_commit_half(store: Sql, engine: AsyncEngine) -> None:
    """After a commit of its own the transaction takes no more statements."""
    with pytest.raises(Exception, match="closed transaction"):  # noqa: PT012 - it is the transaction that raises
        async with store.handling("g", record(0)) as tx:
            assert tx is not None
            await tx.commit()
            await write(tx, 0)
    assert await written(engine) == []


async def test_a_late_owner_and_the_new_one_cannot_both_write(store: Sql, engine: AsyncEngine, url: str) -> None:
    """Two instances with the same record at once: the second waits for the first, and is then given a duplicate."""
    other_engine = create_async_engine(url)
    other = Sql(other_engine)
    inside, may_end = asyncio.Event(), asyncio.Event()

    async def late() -> None:
        async with store.handling("g", record(3)) as tx:
            assert tx is not None
            await write(tx, 1)
            inside.set()
            await may_end.wait()

    async def new() -> bool:
        async with other.handling("g", record(3)) as tx:
            if tx is not None:
                await write(tx, 2)
            return tx is not None

    async with asyncio.TaskGroup() as group:
        first = group.create_task(late())
        await inside.wait()
        second = group.create_task(new())
        done, _ = await asyncio.wait([second], timeout=0.1)
        assert not done, "the second went on while the first held the record"
        may_end.set()
        await first
        assert not await second
    assert await written(engine) == [1]
    await other_engine.dispose()


async def test_when_the_late_owner_fails_it_is_the_new_ones_turn(store: Sql, engine: AsyncEngine, url: str) -> None:
    """The second waits for the first, which rolls back, and then handles the record."""
    other_engine = create_async_engine(url)
    other = Sql(other_engine)
    inside, may_end = asyncio.Event(), asyncio.Event()

    async def late() -> None:
        with pytest.raises(RuntimeError):  # noqa: PT012 - it is the transaction that raises
            async with store.handling("g", record(3)) as tx:
                assert tx is not None
                await write(tx, 1)
                inside.set()
                await may_end.wait()
                raise RuntimeError

    async def new() -> None:
        async with other.handling("g", record(3)) as tx:
            assert tx is not None
            await write(tx, 2)

    async with asyncio.TaskGroup() as group:
        group.create_task(late())
        await inside.wait()
        group.create_task(new())
        may_end.set()
    assert await written(engine) == [2]
    await other_engine.dispose()


async def test_a_late_owner_cannot_slip_in_while_its_row_is_pruned(store: Sql, engine: AsyncEngine, url: str) -> None:
    """The row is being deleted and the floor raised above it, in a transaction under way: once that commits, it is a duplicate.

    Also where the engine asks for a stricter isolation, under which the late owner would not see the new floor.
    """
    async with store.handling("g", record(3)) as tx:
        assert tx is not None
    strict = {} if url.startswith("sqlite") else {"isolation_level": "REPEATABLE READ"}
    late_engine = create_async_engine(url, **strict)
    late = Sql(late_engine)

    async def is_duplicate() -> bool:
        async with late.handling("g", record(3)) as tx:
            return tx is None

    async with engine.connect() as connection:
        async with connection.begin():
            await connection.execute(text("UPDATE busway_floors SET floor = 10"))
            await connection.execute(text("DELETE FROM busway_inbox"))
            asking = asyncio.ensure_future(is_duplicate())
            done, _ = await asyncio.wait([asking], timeout=0.1)
            assert not done, "it did not wait for the transaction that prunes"
        assert await asking
    await late_engine.dispose()


async def test_several_instances_create_the_tables_at_once(url: str) -> None:
    """And again, which changes nothing."""
    engines = [create_async_engine(url) for _ in range(6)]
    await asyncio.gather(*(create_all(engine) for engine in engines))
    await create_all(engines[0])
    assert await rows(engines[0]) == 0
    for engine in engines:
        await engine.dispose()


async def test_other_names(engine: AsyncEngine) -> None:
    """Tables under a prefix of one's own, in metadata of one's own."""
    tables = Tables(prefix="shop_")
    store = Sql(engine, tables=tables)
    await store.create_tables()
    async with store.handling("g", record(0)) as tx:
        assert tx is not None
    async with engine.connect() as connection:
        assert await connection.scalar(text("SELECT count(*) FROM shop_inbox")) == 1
    assert set(tables.metadata.tables) == {"shop_inbox", "shop_floors", "shop_outbox"}


def test_other_databases_are_refused() -> None:
    """With the two that work in the message."""
    from sqlalchemy.dialects.mysql.asyncmy import MySQLDialect_asyncmy

    class Elsewhere:
        dialect = MySQLDialect_asyncmy()

    with pytest.raises(BadDeclaration, match=r"PostgreSQL .* and SQLite .*, not with mysql"):
        Sql(Elsewhere())  # type: ignore[arg-type]


# In a service


class Service:
    """An app that writes the numbers it reads."""

    def __init__(self, engine: AsyncEngine, bootstrap: str, **options: Any) -> None:
        self.store = Sql(engine, **options)
        self.app = App("bank", bootstrap, commit_interval_s=0.02, drain_timeout_s=patient(5), consumer=FAST)
        self.payments = self.app.topic("payments", value=int, format="json", partitions=2)
        self.calls: list[int] = []

        @self.app.subscribe(self.payments, retry=Retry(attempts=1), sql=self.store, concurrency=4)
        async def handle(number: int, tx: AsyncConnection) -> None:
            self.calls.append(number)
            await write(tx, number)

    async def send(self, *numbers: int) -> None:
        for number in numbers:
            await self.app.send(self.payments, number, f"k{number}", partition=number % 2)


async def has_written(engine: AsyncEngine, numbers: list[int]) -> None:
    await until(lambda: _is(written(engine), numbers))


async def _assigned(service: Service) -> int:
    return len(service.store._topics)


async def _is(work: Any, wanted: Any) -> bool:
    return bool(await work == wanted)


async def test_committed_records_leave_the_inbox(engine: AsyncEngine, bootstrap: str) -> None:
    """The rows go when the group has committed past them, the floors say how far; a group set back repeats nothing."""
    await _own_table(engine)
    service = Service(engine, bootstrap)
    async with service.app:
        await service.send(*range(40))
        await has_written(engine, list(range(40)))
        await until(lambda: _is(rows(engine), 0))
    async with engine.connect() as connection:
        assert sorted((await connection.execute(select(FLOORS.c.partition, FLOORS.c.floor))).all()) == [
            (0, 20),
            (1, 20),
        ]
    async with Admin(bootstrap) as admin:
        both = [TopicPartition("payments", number) for number in (0, 1)]
        await admin.alter_group_offsets("bank", dict.fromkeys(both, 0))
    again = Service(engine, bootstrap)
    async with again.app:
        await again.send(40, 41)
        await has_written(engine, list(range(42)))
    assert sorted(again.calls) == [40, 41]
    # On purpose they are handled again.
    await again.store.forget("bank", "payments")
    async with Admin(bootstrap) as admin:
        await admin.alter_group_offsets("bank", {both[0]: 18})
    third = Service(engine, bootstrap)
    async with third.app:
        await has_written(engine, sorted([*range(42), 36, 38, 40]))


@pytest.mark.parametrize("resume", ["group", "database"])
async def test_a_database_that_was_set_back(engine: AsyncEngine, bootstrap: str, resume: Any) -> None:
    """With resume="database" what the backup lacks is handled again and nothing else; the group alone would lose it."""
    await _own_table(engine)
    service = Service(engine, bootstrap, resume=resume)
    async with service.app:
        await service.send(*range(20))
        await has_written(engine, list(range(20)))
        await until(lambda: _is(rows(engine), 0))
    async with engine.begin() as connection:  # to where 6 of each partition were handled, and one later on
        await connection.execute(text("DELETE FROM done WHERE n >= 12 AND n <> 16"))
        await connection.execute(text("UPDATE busway_floors SET floor = 4"))
        handled = [(0, 4), (0, 5), (1, 4), (1, 5), (0, 8)]
        partition_columns = {"group_id": "bank", "topic": "payments"}
        await connection.execute(
            insert(INBOX),
            [{**partition_columns, "partition": partition, "offset": offset} for partition, offset in handled],
        )
    again = Service(engine, bootstrap, resume=resume)
    async with again.app:
        await again.send(20)
        if resume == "group":
            await has_written(engine, [*range(12), 16, 20])
        else:
            await has_written(engine, list(range(21)))
            assert sorted(again.calls) == [12, 13, 14, 15, 17, 18, 19, 20]


async def test_a_topic_that_is_made_anew_is_read_from_its_beginning(engine: AsyncEngine, bootstrap: str) -> None:
    """While the service is down: the new topic's records have offsets that were handled, and are handled all the same."""
    await _own_table(engine)
    service = Service(engine, bootstrap)
    async with service.app:
        await service.send(*range(10))
        await has_written(engine, list(range(10)))
    async with Admin(bootstrap) as admin:
        await admin.delete_topics(["payments"])
        await admin.create_topics([NewTopic("payments", 2)])
        both = [TopicPartition("payments", number) for number in (0, 1)]
        await admin.alter_group_offsets("bank", dict.fromkeys(both, 0))
    again = Service(engine, bootstrap, resume="database")
    async with again.app:
        await again.send(100, 101, 102)
        await has_written(engine, [*range(10), 100, 101, 102])


async def test_offsets_that_go_back_while_it_runs_are_looked_into(engine: AsyncEngine, bootstrap: str) -> None:
    """The same without a rebalance in between, as the consumer goes on with the new topic by itself."""
    await _own_table(engine)
    service = Service(engine, bootstrap)
    async with service.app:
        await service.send(0, 2, 4)
        await has_written(engine, [0, 2, 4])
        await until(lambda: _is(rows(engine), 0))
        old = record(1)
        async with service.store.handling("bank", old) as tx:
            assert tx is None, "the topic is still the same"
        async with Admin(bootstrap) as admin:
            await admin.delete_topics(["payments"])
            try:
                await admin.create_topics([NewTopic("payments", 2)])
            except BrokerError as problem:  # the service asked for it in between, and so had it made with one partition
                if problem.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
                await admin.create_partitions({"payments": 2})
        await service.send(10)  # one alone, so that the consumer finds its position beyond the end
        await has_written(engine, [0, 2, 4, 10])
        await service.send(12)
        await has_written(engine, [0, 2, 4, 10, 12])


async def test_a_tail_that_was_lost_is_forgotten(engine: AsyncEngine, bootstrap: str) -> None:
    """A log that ends below what was handled gives those offsets to other records, which are handled."""
    await _own_table(engine)
    service = Service(engine, bootstrap)
    async with service.app:
        await service.send(0, 2, 4)
        await has_written(engine, [0, 2, 4])
        await until(lambda: _is(rows(engine), 0))
    async with engine.begin() as connection:  # as if there had been more
        await connection.execute(text("UPDATE busway_floors SET floor = 9 WHERE partition = 0"))
        partition_columns = {"group_id": "bank", "topic": "payments", "partition": 0}
        await connection.execute(insert(INBOX), [{**partition_columns, "offset": 11}])
    again = Service(engine, bootstrap, resume="database")
    async with again.app:
        await until(lambda: _is(_assigned(again), 2))
        await again.send(6, 8)
        await has_written(engine, [0, 2, 4, 6, 8])
        await until(lambda: _is(rows(engine), 0))


async def test_two_handlers_of_one_topic_need_two_names(engine: AsyncEngine, bootstrap: str) -> None:
    """Each has an inbox of its own under its own name."""
    await _own_table(engine)
    first, second = Sql(engine), Sql(engine, name="audit")
    await first.create_tables()
    app = App("bank", bootstrap, consumer=FAST)
    payments = app.topic("payments", value=int, format="json")

    async def book(payment: int, tx: AsyncConnection) -> None:
        await write(tx, payment)

    async def audit(payment: int, tx: AsyncConnection) -> None:
        await write(tx, -payment)

    app.subscribe(payments, sql=first)(book)
    app.subscribe(payments, sql=second)(audit)
    async with app:
        await app.send(payments, 1)
        await has_written(engine, [-1, 1])
    app = App("bank", bootstrap, consumer=FAST)
    payments = app.topic("payments", value=int, format="json")
    same = Sql(engine)
    for handler in (book, audit):
        app.subscribe(payments, sql=same)(handler)
    with pytest.raises(BadDeclaration, match=r"audit read payments with the same Sql .* give one of them"):
        await app.start()


async def test_an_outage_costs_a_record_none_of_its_attempts(engine: AsyncEngine, bootstrap: str) -> None:
    """The database goes away in the middle of the only attempt that a record has: it is handled again, not put aside."""
    await _own_table(engine)
    app = App("bank", bootstrap, consumer=FAST)
    payments = app.topic("payments", value=int, format="json")
    calls = 0

    @app.subscribe(payments, sql=Sql(engine), retry=Retry(attempts=1))
    async def book(payment: int, tx: AsyncConnection) -> None:
        nonlocal calls
        calls += 1
        await write(tx, payment)
        if calls <= 2:
            problem = OperationalError("UPDATE", {}, Exception("server closed the connection"))
            problem.connection_invalidated = True
            raise problem

    async with app:
        await app.send(payments, 1)
        await has_written(engine, [1])
        assert app.worker is not None
        assert app.worker.dead_lettered == 0
    assert calls == 3


async def test_a_store_belongs_to_one_app(engine: AsyncEngine, bootstrap: str) -> None:
    """The second app that starts with it is refused."""
    store = Sql(engine)
    apps = [App(name, bootstrap) for name in ("one", "two")]
    for app in apps:
        app.extend(store)
    async with apps[0]:
        with pytest.raises(BadDeclaration, match="app two: this Sql belongs to another app"):
            await apps[1].start()


async def test_handlers_at_once_and_failures_at_random(engine: AsyncEngine) -> None:
    """Many attempts at many records, in any order, twice each, by two instances, some failing: each counts once."""
    chance = random.Random(seed(1))
    stores = [Sql(engine), Sql(engine)]
    await stores[0].create_tables()
    await _own_table(engine)
    work = [(store, offset) for store in stores for offset in range(60)]
    chance.shuffle(work)
    limit = asyncio.Semaphore(8)

    async def attempt(store: Sql, offset: int) -> None:
        failures = chance.choice([0, 0, 0, 1, 2])
        async with limit:
            while True:
                try:
                    async with store.handling("g", record(offset)) as tx:
                        if tx is not None:
                            await write(tx, offset)
                            if failures:
                                failures -= 1
                                raise RuntimeError("an attempt that fails")
                except RuntimeError:
                    continue
                return

    await asyncio.gather(*(attempt(*attempted) for attempted in work))
    assert await written(engine) == list(range(60))
    assert issubclass(DatabaseUnreachable, Exception)
