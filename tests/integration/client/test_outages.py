"""The producer behind a network that fails: what is written is written once and in order, and no record fails for another's sake."""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.integration.client.conftest import Cluster
from tests.support.patience import patient, patient_ms
from tests.support.proxy import Fate, Proxy

from busway import Admin, Consumer, NewTopic
from busway.errors import DeliveryFailed
from busway.producer.producer import Producer
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from busway_protocol.messages.produce import ProduceResponse

pytestmark = pytest.mark.slow


@pytest.fixture
async def proxy(cluster: Cluster) -> AsyncIterator[Proxy]:
    """Between the producer and each of the two brokers."""
    async with Proxy(cluster.bootstrap_servers) as running:
        yield running


async def values(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    """The first values of partition 0."""
    async with (
        Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer,
        asyncio.timeout(patient(20)),
    ):
        await consumer.assign([(topic, 0)])
        return [(await consumer.getone()).value for _ in range(count)]


async def test_a_record_after_an_outage_is_written_though_those_before_it_expired(
    cluster: Cluster, proxy: Proxy, topic: str
) -> None:
    """No broker could be reached for longer than the delivery timeout; the expired record had a sequence number, the next one is innocent."""
    async with Producer(proxy.address, delivery_timeout_ms=300) as producer:
        await producer.send_and_wait(topic, b"before", partition=0)
        await proxy.refuse()
        with pytest.raises(DeliveryFailed, match="300 ms"):
            await producer.send_and_wait(topic, b"lost", partition=0)
        await proxy.accept()
        assert (await producer.send_and_wait(topic, b"after", partition=0)).offset == 1
    assert await values(cluster.bootstrap_servers, topic, 2) == [b"before", b"after"]


async def test_a_lost_answer_doubles_nothing(cluster: Cluster, proxy: Proxy, topic: str) -> None:
    """The batch is sent again with the sequence numbers that it had, so the broker knows it."""
    async with Producer(proxy.address, linger_ms=0) as producer:
        lost = proxy.strike(Fate.CUT, ApiKey.PRODUCE, answers=True, times=3)
        sent = [await producer.send(topic, b"%d" % number, partition=0) for number in range(5)]
        placed = await asyncio.gather(*sent)
        assert lost.count == 3
    assert [metadata.offset for metadata in placed] == list(range(5))
    assert await values(cluster.bootstrap_servers, topic, 5) == [b"%d" % number for number in range(5)]


@pytest.mark.parametrize("written", [True, False])
async def test_what_follows_a_batch_that_is_given_up_is_not_taken_for_it(
    cluster: Cluster, proxy: Proxy, topic: str, written: bool
) -> None:
    """A batch that timed out may have been written, so the next one needs another epoch: in the old one it would pass for a repetition."""
    async with Producer(proxy.address, delivery_timeout_ms=400, linger_ms=0) as producer:
        await producer.send_and_wait(topic, b"first", partition=0)
        fault = proxy.strike(Fate.SWALLOW, ApiKey.PRODUCE, answers=written, times=1)
        with pytest.raises(DeliveryFailed, match="whether it was written is not known"):
            await producer.send_and_wait(topic, b"given up", partition=0)
        assert fault.count == 1
        proxy.cut()
        sent = [await producer.send_and_wait(topic, value, partition=0) for value in (b"next", b"last")]
    expected = [b"first", b"given up", b"next", b"last"] if written else [b"first", b"next", b"last"]
    assert await values(cluster.bootstrap_servers, topic, len(expected)) == expected
    assert [metadata.offset for metadata in sent] == [len(expected) - 2, len(expected) - 1]


async def test_a_broker_that_has_lost_its_memory_gets_the_batch_anew(node: LocalCluster, topic: str) -> None:
    """The end of its log was lost: it refuses the sequence number, and the batch is written under the next epoch, those behind it too."""
    async with Producer(node.bootstrap_servers, linger_ms=0, batch_size=100) as producer:
        await producer.send_and_wait(topic, b"kept", partition=0)
        await node.stop()
        shutil.copytree(node.data_dir, f"{node.data_dir}-before")
        await node.start()
        for value in (b"lost", b"lost too"):
            await producer.send_and_wait(topic, value, partition=0)
        await node.stop()
        shutil.rmtree(node.data_dir)
        shutil.move(f"{node.data_dir}-before", node.data_dir)
        await node.start()
        sent = [await producer.send(topic, b"%099d" % number, partition=0) for number in range(5)]
        placed = await asyncio.gather(*sent)
    assert [metadata.offset for metadata in placed] == [1, 2, 3, 4, 5]
    assert await values(node.bootstrap_servers, topic, 6) == [b"kept", *(b"%099d" % number for number in range(5))]


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNKNOWN_PRODUCER_ID])
async def test_a_producer_that_is_unknown_or_outdated_goes_on(
    cluster: Cluster, proxy: Proxy, topic: str, code: ErrorCode
) -> None:
    """Its batch was refused, so it is sent again: in the next epoch, or by another producer id."""
    async with Producer(proxy.address, linger_ms=0) as producer:
        await producer.send_and_wait(topic, b"first", partition=0)
        lies = [code]

        def refuse(answer: ProduceResponse) -> None:
            if lies:
                answer.responses[0].partition_responses[0].error_code = lies.pop()

        proxy.edits[ApiKey.PRODUCE] = refuse
        assert await producer.send_and_wait(topic, b"second", partition=0)
    # The edited answer lied about a batch that was written, so it is there twice: it was sent again.
    assert await values(cluster.bootstrap_servers, topic, 3) == [b"first", b"second", b"second"]


async def test_a_duplicate_counts_as_written(cluster: Cluster, proxy: Proxy, topic: str) -> None:
    """A broker that knows no more where it put the batch says so, and the record is acknowledged without an offset."""

    def forget(answer: ProduceResponse) -> None:
        partition = answer.responses[0].partition_responses[0]
        partition.error_code, partition.base_offset = ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1

    async with Producer(proxy.address) as producer:
        proxy.edits[ApiKey.PRODUCE] = forget
        assert (await producer.send_and_wait(topic, b"v", partition=0)).offset == -1
        del proxy.edits[ApiKey.PRODUCE]
        assert (await producer.send_and_wait(topic, b"w", partition=0)).offset == 1


async def test_the_last_epoch_is_followed_by_another_producer_id(
    cluster: Cluster, proxy: Proxy, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epochs are 16 bits; when a partition has used them up, the producer asks for another id and goes on."""
    monkeypatch.setattr("busway.producer.accumulator.EPOCH_MAX", 0)
    async with Producer(proxy.address, delivery_timeout_ms=400, linger_ms=0) as producer:
        await producer.send_and_wait(topic, b"first", partition=0)
        proxy.strike(Fate.SWALLOW, ApiKey.PRODUCE, answers=True, times=1)
        with pytest.raises(DeliveryFailed):
            await producer.send_and_wait(topic, b"given up", partition=0)
        proxy.cut()
        assert (await producer.send_and_wait(topic, b"next", partition=0)).offset == 2
    assert proxy.requests.count(ApiKey.INIT_PRODUCER_ID) == 2


@pytest.mark.parametrize("leader", [2, -1])
async def test_a_silent_broker_holds_its_own_partitions_alone(node: LocalCluster, topic: str, leader: int) -> None:
    """One of two brokers takes requests and answers none, and one partition is there or has no leader at all: the other one's go on."""
    async with Admin(node.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(topic, 2)])
    async with Proxy(node.bootstrap_servers) as silent, Proxy(node.bootstrap_servers) as proxy:
        leaders = [1, leader]

        def two_brokers(answer: MetadataResponse) -> None:
            answer.brokers = [
                MetadataResponseBroker(node_id=number, host="127.0.0.1", port=proxied.port)
                for number, proxied in ((1, proxy), (2, silent))
            ]
            for topic in answer.topics:
                for number, partition in enumerate(topic.partitions):
                    partition.leader_id = leaders[number]

        for proxied in (proxy, silent):
            proxied.edits[ApiKey.METADATA] = two_brokers
        waits = {"request_timeout_ms": patient_ms(30_000), "delivery_timeout_ms": patient_ms(120_000)}
        async with Producer(silent.address, linger_ms=0, **waits) as producer, asyncio.timeout(patient(10)):
            await producer.send_and_wait(topic, b"v", partition=0)
            deaf = silent.strike(Fate.SWALLOW)
            held = await producer.send(topic, b"held", partition=1)
            await deaf.happened.wait()
            for _ in range(3):
                await producer.send_and_wait(topic, b"v", partition=0)
            if leader == 2:  # what any broker can answer is asked where no request waits
                assert await producer.partitions_for(f"{topic}-new") == 1
            assert not held.done()
            leaders[1] = 1
            deaf.lift()
            silent.cut()
            assert (await held).offset == 0


async def test_only_an_address_that_never_answered_is_suspected(node: LocalCluster, topic: str) -> None:
    """A broker that worked is simply down; one that was never reached may advertise the wrong address."""
    async with Proxy(node.bootstrap_servers) as proxy:
        async with Producer(proxy.address, delivery_timeout_ms=300) as producer:
            await producer.send_and_wait(topic, b"v")
            await proxy.refuse()
            with pytest.raises(DeliveryFailed, match="cannot connect") as down:
                await producer.send_and_wait(topic, b"v")
            await proxy.accept()

        def astray(answer: MetadataResponse) -> None:
            answer.brokers[0].port = 1

        proxy.edits[ApiKey.METADATA] = astray
        async with Producer(proxy.address, delivery_timeout_ms=300) as producer:
            with pytest.raises(DeliveryFailed, match=r"127\.0\.0\.1:1.* advertised.listeners"):
                await producer.send_and_wait(topic, b"v")
    assert "advertised" not in str(down.value)


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_a_producer_without_idempotence_needs_no_id(node: LocalCluster, topic: str, acks: Any) -> None:
    """It asks for none, and its batches carry none."""
    async with (
        Proxy(node.bootstrap_servers) as proxy,
        Producer(proxy.address, acks=acks, enable_idempotence=False) as producer,
    ):
        for number in range(2):
            placed = await producer.send_and_wait(topic, b"v", partition=0)
            assert placed.offset == (number if acks else -1)
    assert ApiKey.INIT_PRODUCER_ID not in proxy.requests
    assert await values(node.bootstrap_servers, topic, 2) == [b"v", b"v"]


async def test_an_outage_can_be_followed_in_the_log(
    node: LocalCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Who cannot be reached, what failed for it, that the epoch ended, and that it is over; under the loggers' public names."""
    async with Proxy(node.bootstrap_servers) as proxy:
        with caplog.at_level(logging.INFO, "busway"):
            async with Producer(proxy.address, delivery_timeout_ms=300, linger_ms=0) as producer:
                await producer.send_and_wait(topic, b"first", partition=0)
                proxy.strike(Fate.CUT, ApiKey.PRODUCE, answers=True, times=1)
                late = await producer.send(topic, b"late", partition=0)
                await proxy.asked(ApiKey.PRODUCE, 2)
                await proxy.refuse()
                with pytest.raises(DeliveryFailed):
                    await late
                await proxy.accept()
                await producer.send_and_wait(topic, b"next", partition=0)
    records_logged = {(record.name, record.levelname) for record in caplog.records}
    assert {
        ("busway.producer", "WARNING"),
        ("busway.cluster", "WARNING"),
        ("busway.producer", "INFO"),
    } <= records_logged
    for text in (
        f"busway: cannot connect to {proxy.address}",
        f"1 records failed: {topic}-0: not acknowledged within 300 ms, whether it was written is not known",
        f"{topic}-0: continues in another epoch",
        f"busway: connected again to {proxy.address}; the connection to {proxy.address} ended",
    ):
        assert text in caplog.text
