"""Transactions by both of Kafka's protocols against Apache Kafka, judged by librdkafka's reader."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.integration.client.committed import committed, ended, written
from tests.integration.client.conftest import Cluster
from tests.support.patience import patient

from busway import (
    Admin,
    BrokerError,
    Consumer,
    GroupMetadata,
    InvalidTransactionState,
    NewTopic,
    Producer,
    ProducerFenced,
    TopicPartition,
    TransactionAbortable,
)
from busway_protocol.errors import ErrorCode

pytestmark = pytest.mark.slow


class Wrong(Exception):
    """What goes wrong in a transaction."""


def producer(cluster: Cluster, topic: str, **options: object) -> Producer:
    """With a transactional id of the test's own."""
    return Producer(cluster.bootstrap_servers, transactional_id=f"x-{topic}", linger_ms=0, **options)


async def read(cluster: Cluster, topic: str, isolation: str, partitions: int = 1) -> list[bytes | None]:
    """Everything up to the end as this isolation level knows it, by our own consumer."""
    values = []
    async with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", isolation_level=isolation
    ) as consumer:
        where = [TopicPartition(topic, number) for number in range(partitions)]
        await consumer.assign(where)
        ends = await consumer.end_offsets(where)
        async with asyncio.timeout(patient(30)):
            while any([await consumer.position(partition) < ends[partition] for partition in where]):
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    values += [record.value for record in records]
    return values


async def test_what_is_committed_is_read_and_what_is_aborted_is_not(transactional: Cluster, topic: str) -> None:
    """Transactions that end either way in turn, over three partitions; what they sent is in the log, and half of it is read."""
    async with Admin(transactional.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(topic, 3)])
    expected = []
    async with producer(transactional, topic) as sending:
        for number in range(12):
            try:
                async with sending.transaction():
                    for part in range(5):
                        await sending.send_and_wait(topic, b"%d-%d" % (number, part), partition=part % 3)
                    if number % 3 == 1:
                        raise Wrong
                expected += [b"%d-%d" % (number, part) for part in range(5)]
            except Wrong:
                pass
    address = transactional.bootstrap_servers
    assert sorted(await committed(address, topic, 3)) == sorted(expected)
    assert len(await written(address, topic, 3)) == 60
    assert sorted(await read(transactional, topic, "read_committed", 3)) == sorted(expected)
    assert len(await read(transactional, topic, "read_uncommitted", 3)) == 60


async def test_an_open_transaction_holds_its_readers(transactional: Cluster, topic: str) -> None:
    """Nothing behind its first record is read by those who read what is committed, until it ends."""
    async with producer(transactional, topic) as sending, Producer(transactional.bootstrap_servers) as plain:
        await plain.send_and_wait(topic, b"before", partition=0)
        async with sending.transaction():
            await sending.send_and_wait(topic, b"inside", partition=0)
            await plain.send_and_wait(topic, b"behind", partition=0)
            assert await read(transactional, topic, "read_committed") == [b"before"]
            assert await read(transactional, topic, "read_uncommitted") == [b"before", b"inside", b"behind"]
        await ended(transactional.bootstrap_servers, topic)
        assert await read(transactional, topic, "read_committed") == [b"before", b"inside", b"behind"]


async def test_records_need_not_be_awaited(transactional: Cluster, topic: str) -> None:
    """The commit waits for them, whatever their linger."""
    async with Producer(transactional.bootstrap_servers, transactional_id=topic, linger_ms=600_000) as sending:
        async with asyncio.timeout(patient(30)), sending.transaction():
            sent = [await sending.send(topic, b"%d" % number, partition=0) for number in range(100)]
        assert all(future.done() for future in sent)
    assert await committed(transactional.bootstrap_servers, topic) == [b"%d" % number for number in range(100)]


async def test_nothing_is_sent_outside_of_a_transaction(transactional: Cluster, topic: str) -> None:
    """Neither before, nor behind, nor by who began to send within; each error says what to do."""
    async with producer(transactional, topic) as sending:
        for call in (sending.commit_transaction, sending.abort_transaction):
            with pytest.raises(InvalidTransactionState, match=r"no transaction is open|in transactions only"):
                await call()
        with pytest.raises(InvalidTransactionState, match=r"no transaction is open|in transactions only"):
            await sending.send(topic, b"outside")
        with pytest.raises(InvalidTransactionState, match=r"no transaction is open|in transactions only"):
            await sending.send_many(topic, [(None, b"outside", ())], partition=0)
        with pytest.raises(InvalidTransactionState, match=r"no transaction is open|in transactions only"):
            await sending.send_offsets_to_transaction({}, GroupMetadata(group_id="g"))
        async with sending.transaction():
            await sending.send(topic, b"inside", partition=0)
            with pytest.raises(InvalidTransactionState, match="open already"):
                await sending.begin_transaction()
        with pytest.raises(InvalidTransactionState, match=r"no transaction is open|in transactions only"):
            await sending.send(topic, b"outside")
    assert await written(transactional.bootstrap_servers, topic) == [b"inside"]


async def test_an_empty_transaction_ends_either_way(transactional: Cluster, topic: str) -> None:
    """The coordinator knows nothing of it and is asked nothing."""
    async with producer(transactional, topic) as sending:
        async with sending.transaction():
            pass
        with pytest.raises(Wrong):
            async with sending.transaction():
                raise Wrong
        async with sending.transaction():
            await sending.send(topic, b"then", partition=0)
    assert await committed(transactional.bootstrap_servers, topic) == [b"then"]


async def test_a_cancelled_transaction_is_aborted(transactional: Cluster, topic: str) -> None:
    """And the producer goes on."""
    async with producer(transactional, topic) as sending:
        inside = asyncio.Event()

        async def work() -> None:
            async with sending.transaction():
                await sending.send_and_wait(topic, b"cancelled", partition=0)
                inside.set()
                await asyncio.get_running_loop().create_future()

        task = asyncio.ensure_future(work())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with sending.transaction():
            await sending.send(topic, b"after", partition=0)
    assert await committed(transactional.bootstrap_servers, topic) == [b"after"]
    assert await written(transactional.bootstrap_servers, topic) == [b"cancelled", b"after"]


async def test_a_producer_that_stops_aborts_what_is_open(transactional: Cluster, topic: str) -> None:
    """Its readers need not wait for the timeout of the transaction."""
    async with producer(transactional, topic) as sending:
        await sending.begin_transaction()
        await sending.send_and_wait(topic, b"open", partition=0)
    async with Producer(transactional.bootstrap_servers) as plain:
        await plain.send_and_wait(topic, b"behind", partition=0)
    assert await committed(transactional.bootstrap_servers, topic) == [b"behind"]


async def test_what_is_not_written_fails_the_commit(transactional: Cluster, topic: str) -> None:
    """Though no caller looked at the record; the whole transaction is aborted, and the next one is none the worse."""
    async with Admin(transactional.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(topic, 1, configs={"max.message.bytes": "1000"})])
    async with producer(transactional, topic) as sending:

        async def send_both() -> None:
            async with sending.transaction():
                await sending.send_and_wait(topic, b"small", partition=0)
                await sending.send(topic, b"x" * 5_000, partition=0)

        with pytest.raises(TransactionAbortable, match=r"max\.message\.bytes") as caught:
            await send_both()
        assert isinstance(caught.value.__cause__, BrokerError)
        assert caught.value.__cause__.code is ErrorCode.MESSAGE_TOO_LARGE
        await sending.begin_transaction()
        with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
            await sending.send_and_wait(topic, b"x" * 5_000, partition=0)
        for _ in range(2):
            with pytest.raises(TransactionAbortable, match="abort it and begin again"):
                await sending.send(topic, b"small", partition=0)
            with pytest.raises(TransactionAbortable, match="abort it and begin again"):
                await sending.commit_transaction()
        await sending.abort_transaction()
        async with sending.transaction():
            await sending.send(topic, b"fine", partition=0)
    assert await committed(transactional.bootstrap_servers, topic) == [b"fine"]


@pytest.mark.parametrize("last", ["send", "commit", "abort", "stop"])
async def test_a_zombie_is_fenced(transactional: Cluster, topic: str, last: str) -> None:
    """Who takes the id over aborts what was open; the one before gets the error, whatever it does next, and can do nothing more."""
    async with producer(transactional, topic) as zombie:
        await zombie.begin_transaction()
        await zombie.send_and_wait(topic, b"zombie", partition=0)
        async with producer(transactional, topic) as heir:
            async with heir.transaction():
                await heir.send_and_wait(topic, b"heir", partition=0)
            calls: dict[str, Callable[[], Awaitable[None]]] = {
                "commit": zombie.commit_transaction,
                "abort": zombie.abort_transaction,
            }
            if last == "send":
                with pytest.raises(BrokerError, match="same transactional_id has taken over"):
                    await zombie.send_and_wait(topic, b"late", partition=0)
                calls["send"] = zombie.abort_transaction
            if last in calls:
                with pytest.raises(ProducerFenced, match=r"same transactional_id has taken over.*PRODUCER_FENCED"):
                    await calls[last]()
                for call in (zombie.begin_transaction, zombie.commit_transaction, zombie.abort_transaction):
                    with pytest.raises(ProducerFenced, match="Stop this producer"):
                        await call()
    assert await committed(transactional.bootstrap_servers, topic) == [b"heir"]
    assert await written(transactional.bootstrap_servers, topic) == [b"zombie", b"heir"]


async def test_a_block_of_a_zombie_ends_with_the_word_that_it_is_one(transactional: Cluster, topic: str) -> None:
    """Not with that its record was refused: what to do is another thing."""
    async with producer(transactional, topic) as zombie, producer(transactional, topic):
        with pytest.raises(ProducerFenced, match="same transactional_id has taken over"):
            async with zombie.transaction():
                await zombie.send_and_wait(topic, b"zombie", partition=0)
    assert await written(transactional.bootstrap_servers, topic) == []


async def test_a_transaction_that_is_open_for_too_long_is_told_so(transactional: Cluster, topic: str) -> None:
    """Its coordinator aborts it. Where an epoch belongs to one transaction, the producer goes on; else it cannot tell it from a zombie's."""
    async with producer(transactional, topic, transaction_timeout_ms=1_000) as sending:
        await sending.begin_transaction()
        await sending.send_and_wait(topic, b"late", partition=0)
        async with asyncio.timeout(patient(60)):
            while not await aborted(transactional, topic):
                await asyncio.sleep(0.2)
        problem = TransactionAbortable if transactional.implicit else ProducerFenced
        with pytest.raises(problem, match="longer than transaction_timeout_ms=1000"):
            await sending.commit_transaction()
        if transactional.implicit:
            await sending.abort_transaction()
            async with sending.transaction():
                await sending.send(topic, b"next", partition=0)
    expected = [b"next"] if transactional.implicit else []
    assert await committed(transactional.bootstrap_servers, topic) == expected


async def aborted(cluster: Cluster, topic: str) -> bool:
    """Whether the last stable offset has passed the record."""
    async with Consumer(bootstrap_servers=cluster.bootstrap_servers, isolation_level="read_committed") as consumer:
        (end,) = (await consumer.end_offsets([TopicPartition(topic, 0)])).values()
    return end > 0


async def test_a_timeout_above_the_brokers_is_refused_by_name(transactional: Cluster, topic: str) -> None:
    """With what to change."""
    with pytest.raises(Exception, match=r"transaction_timeout_ms=9000000 is above .*transaction\.max\.timeout\.ms"):
        await producer(transactional, topic, transaction_timeout_ms=9_000_000).start()


async def test_offsets_are_committed_with_the_transaction(transactional: Cluster, topic: str, group: str) -> None:
    """Read, sent on and committed as one; an abort leaves the group where it was, and the next reader begins there."""
    address, target = transactional.bootstrap_servers, f"{topic}-out"
    async with Producer(address) as plain:
        for number in range(6):
            await plain.send_and_wait(topic, b"%d" % number, partition=0)
    where = TopicPartition(topic, 0)
    options = {"group_id": group, "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    async with producer(transactional, topic) as sending:
        for wrong in (True, False, False):
            async with Consumer(
                topic, bootstrap_servers=address, isolation_level="read_committed", max_poll_records=2, **options
            ) as consumer:
                async with asyncio.timeout(patient(30)):
                    while not (polled := await consumer.getmany(timeout_ms=1_000)):
                        pass
                records = polled[where]
                try:
                    async with sending.transaction():
                        for record in records:
                            await sending.send(target, record.value, partition=0)
                        await sending.send_offsets_to_transaction(
                            {where: records[-1].offset + 1}, consumer.group_metadata()
                        )
                        if wrong:
                            raise Wrong
                except Wrong:
                    assert await consumer.committed(where) is None
                else:
                    at = await consumer.committed(where)
                    assert at is not None
                    assert at.offset == records[-1].offset + 1
    assert await committed(address, target) == [b"0", b"1", b"2", b"3"]


async def test_a_member_that_was_replaced_commits_nothing(transactional: Cluster, topic: str, group: str) -> None:
    """Its group's generation tells (KIP-447), and the producer goes on."""
    address = transactional.bootstrap_servers
    async with Producer(address) as plain:
        await plain.send_and_wait(topic, b"v", partition=0)
    async with (
        Consumer(
            topic, bootstrap_servers=address, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer,
        producer(transactional, topic) as sending,
    ):
        record = await consumer.getone()
        metadata = consumer.group_metadata()
        for theirs in (
            GroupMetadata(group_id=group, generation=metadata.generation + 1, member_id=metadata.member_id),
            GroupMetadata(group_id=group, generation=metadata.generation, member_id="somebody"),
        ):
            await sending.begin_transaction()
            await sending.send_and_wait(f"{topic}-out", b"stale", partition=0)
            with pytest.raises(TransactionAbortable, match=r"moved on.*assigned to others"):
                await sending.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, theirs)
            await sending.abort_transaction()
        async with sending.transaction():
            await sending.send(f"{topic}-out", b"fresh", partition=0)
            await sending.send_offsets_to_transaction({TopicPartition(topic, 0): record.offset + 1}, metadata)
    assert await committed(address, f"{topic}-out") == [b"fresh"]


async def test_offsets_of_an_open_transaction_are_waited_for(transactional: Cluster, topic: str, group: str) -> None:
    """By who reads what is committed: it would read again what is about to be committed."""
    address, where = transactional.bootstrap_servers, TopicPartition(topic, 0)
    async with Producer(address) as plain:
        for number in range(3):
            await plain.send_and_wait(topic, b"%d" % number, partition=0)
    async with producer(transactional, topic) as sending:
        await sending.begin_transaction()
        await sending.send_offsets_to_transaction({where: 2}, GroupMetadata(group_id=group))
        async with Consumer(
            bootstrap_servers=address, group_id=group, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            await consumer.assign([where])
            asked = asyncio.ensure_future(consumer.committed(where))
            assert await consumer.getmany(timeout_ms=500) == {}
            assert not asked.done()
            await sending.commit_transaction()
            at = await asked
            assert at is not None
            assert at.offset == 2
            assert (await consumer.getone()).value == b"2"


async def test_a_group_that_reads_to_the_end_has_no_lag(transactional: Cluster, topic: str, group: str) -> None:
    """Its committed offset is behind the last marker, as that of other clients."""
    address, where = transactional.bootstrap_servers, TopicPartition(topic, 0)
    async with producer(transactional, topic) as sending, sending.transaction():
        await sending.send(topic, b"v", partition=0)
    async with Consumer(topic, bootstrap_servers=address, group_id=group, auto_offset_reset="earliest") as consumer:
        await consumer.getone()
        async with asyncio.timeout(patient(30)):
            while await consumer.position(where) < 2:
                await consumer.getmany(timeout_ms=100)
    async with Admin(address) as admin:
        assert (await admin.list_group_offsets(group))[where].offset == 2
