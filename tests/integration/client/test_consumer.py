"""The consumer against a real node: alone, in groups, through rebalances and restarts."""

import asyncio

import pytest
from tests.integration.client.conftest import Cluster
from tests.support.patience import patient, patient_ms
from tests.support.variants import with_variants

from busway.consumer.consumer import Consumer
from busway.consumer.listener import RebalanceListener
from busway.errors import OffsetReset
from busway.producer.producer import Producer
from busway.types import TopicPartition
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.compile import Chunk

pytestmark = pytest.mark.slow
FAST = {"heartbeat_interval_ms": 50, "session_timeout_ms": patient_ms(2_000)}


async def fill(bootstrap: str, topic: str, count: int, first: int = 0, codec: str = "none") -> None:
    """Produce numbered records, spread by key."""
    async with Producer(bootstrap, compression_type=codec) as producer:
        for number in range(first, first + count):
            await producer.send(topic, b"%d" % number, b"%d" % number, headers=[("n", b"%d" % number), ("null", None)])


async def read(consumer: Consumer, count: int) -> list[bytes]:
    """`count` values."""
    values: list[bytes] = []
    async with asyncio.timeout(patient(30)):
        while len(values) < count:
            for records in (await consumer.getmany(timeout_ms=1_000)).values():
                values += [record.value or b"" for record in records]
    return values


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_what_was_sent_is_read_in_order(cluster: Cluster, codec: str, topic: str) -> None:
    """Values, keys, headers and offsets of a partition come back as they were sent."""
    await fill(cluster.bootstrap_servers, topic, 500, codec=codec)
    async with Consumer(topic, bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        records = [await consumer.getone() for _ in range(500)]
    assert [record.offset for record in records] == list(range(500))
    assert [record.value for record in records] == [b"%d" % number for number in range(500)]
    assert records[7].key == b"7"
    assert records[7].headers == (("n", b"7"), ("null", None))


async def test_a_long_poll_wakes_when_a_record_comes(cluster: Cluster, topic: str) -> None:
    """A reader at the end gets what is written later."""
    await fill(cluster.bootstrap_servers, topic, 1)
    async with Consumer(topic, bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="latest") as consumer:
        assert await consumer.position(TopicPartition(topic, 0)) == 1
        waiting = asyncio.ensure_future(consumer.getone())
        await fill(cluster.bootstrap_servers, topic, 1, first=1)
        async with asyncio.timeout(patient(10)):
            assert (await waiting).value == b"1"


async def test_a_group_goes_on_where_it_committed(node: LocalCluster, topic: str, group: str) -> None:
    """Commits survive the member and a restart of the broker."""
    await fill(node.bootstrap_servers, topic, 100)
    options = {"bootstrap_servers": node.bootstrap_servers, "group_id": group, "auto_offset_reset": "earliest", **FAST}
    async with Consumer(topic, enable_auto_commit=False, **options) as consumer:
        partition = TopicPartition(topic, 0)
        polled = await consumer.getmany(timeout_ms=patient_ms(10_000), max_records=40)
        assert len(polled[partition]) == 40
        await consumer.commit()
        committed = await consumer.committed(partition)
        assert committed is not None
        assert committed.offset == 40
    await node.stop()
    await node.start()
    async with Consumer(topic, **options) as consumer:
        values = await read(consumer, 60)
    assert values == [b"%d" % number for number in range(40, 100)]


@pytest.mark.parametrize(
    "strategy",
    with_variants(["range", "roundrobin", "sticky", "cooperative-sticky"], gate=["range", "cooperative-sticky"]),
)
async def test_three_members_share_and_one_is_killed(cluster: Cluster, strategy: str, topic: str, group: str) -> None:
    """Every record is read by someone; after a member is gone without a word the others have all partitions."""
    from busway.admin.admin import Admin
    from busway.admin.new_topic import NewTopic

    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(topic, 6)])
    members = [
        Consumer(
            topic,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id=group,
            auto_offset_reset="earliest",
            partition_assignment_strategy=(strategy,),
            **FAST,
        )
        for _ in range(3)
    ]
    for member in members:
        await member.start()
    try:
        async with asyncio.timeout(patient(40)):
            while sorted(len(member.assignment()) for member in members) != [2, 2, 2]:
                await asyncio.gather(*(member.getmany(timeout_ms=20) for member in members))
            await fill(cluster.bootstrap_servers, topic, 300)
            seen: set[bytes] = set()
            while len(seen) < 300:
                for member in members:
                    for records in (await member.getmany(timeout_ms=20)).values():
                        seen.update(record.value or b"" for record in records)
            killed = members.pop()
            await killed.abort()  # no leave, no commit: the process is gone
            await fill(cluster.bootstrap_servers, topic, 300, first=300)
            while len(seen) < 600:
                for member in members:
                    for records in (await member.getmany(timeout_ms=20)).values():
                        seen.update(record.value or b"" for record in records)
        assert sum(len(member.assignment()) for member in members) == 6
    finally:
        for member in members:
            await member.stop()


async def test_a_listener_may_commit_before_partitions_go(cluster: Cluster, topic: str, group: str) -> None:
    """Revoked partitions are still ours while the listener runs: its commit counts."""
    await fill(cluster.bootstrap_servers, topic, 50)
    options = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "partition_assignment_strategy": ("range",),  # gives up even what comes back
        **FAST,
    }

    class Committing(RebalanceListener):
        async def on_partitions_revoked(self, revoked: tuple[TopicPartition, ...]) -> None:
            await first.commit()

    first = Consumer(topic, listener=Committing(), **options)
    async with first:
        assert len(await read(first, 50)) == 50
        async with Consumer(topic, **options) as second, asyncio.timeout(patient(20)):
            while (
                len(first.assignment()) + len(second.assignment()) != 1
                or (await second.committed(TopicPartition(topic, 0))) is None
            ):
                await first.getmany(timeout_ms=20)
                await second.getmany(timeout_ms=20)


async def test_seek_pause_and_times(cluster: Cluster, topic: str) -> None:
    """Moving about in a partition."""
    await fill(cluster.bootstrap_servers, topic, 100)
    partition = TopicPartition(topic, 0)
    async with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        await consumer.assign([partition])
        consumer.seek(partition, 42)
        assert (await consumer.getone()).offset == 42
        consumer.seek_to_beginning(partition)
        assert (await consumer.getone()).offset == 0
        consumer.pause(partition)
        assert consumer.paused() == {partition}
        assert await consumer.getmany(timeout_ms=30) == {}
        consumer.resume(partition)
        record = await consumer.getone()
        assert record.offset == 1
        offsets = await consumer.offsets_for_times({partition: record.timestamp_ms})
        answer = offsets[partition]
        assert answer is not None
        assert answer.timestamp_ms >= record.timestamp_ms
        assert await consumer.end_offsets([partition]) == {partition: 100}
        assert await consumer.beginning_offsets([partition]) == {partition: 0}


async def test_without_an_offset_and_a_policy_the_reader_is_told(cluster: Cluster, topic: str, group: str) -> None:
    """auto_offset_reset="none" is an error that names the partition."""
    await fill(cluster.bootstrap_servers, topic, 1)
    async with Consumer(
        topic, bootstrap_servers=cluster.bootstrap_servers, group_id=group, auto_offset_reset="none", **FAST
    ) as consumer:
        with pytest.raises(OffsetReset, match=f"{topic}-0 has no committed offset"):
            await consumer.getmany(timeout_ms=patient_ms(10_000))


@pytest.mark.parametrize(
    "answer",
    [
        b"\x15\x03\x03\x00\x02\x02\x28",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x04\x00\x00\x00\x63",
        b"HTTP/1.1 400 Bad\r\n\r\n",
    ],
    ids=["tls-alert", "negative", "wrong-number", "http"],
)
async def test_a_server_that_is_no_broker_is_named(answer: Chunk) -> None:
    """TLS alerts, negative sizes, wrong correlation, HTTP: one typed error with the address, no hang."""
    from busway.errors import ConnectionFailed

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with asyncio.timeout(patient(10)):
        with pytest.raises(ConnectionFailed, match=str(port)):
            await Consumer("t", bootstrap_servers=f"127.0.0.1:{port}").start()
    server.close()
    await server.wait_closed()
