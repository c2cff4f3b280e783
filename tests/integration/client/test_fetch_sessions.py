"""Fetch sessions (KIP-227), nearer replicas (KIP-392) and leader hints (KIP-951), as a consumer uses them."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.patience import patient
from tests.support.proxy import Fate, Proxy
from tests.support.waiting import until

from busway import Admin, Consumer, NewTopic, Producer, TopicPartition
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.fetch import FetchResponse, LeaderIdAndEpoch, NodeEndpoint
from busway_protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from busway_protocol.messages.produce import LeaderIdAndEpoch as ProduceLeader
from busway_protocol.messages.produce import NodeEndpoint as ProduceEndpoint
from busway_protocol.messages.produce import ProduceResponse

pytestmark = pytest.mark.slow


def once(edit: Callable[[Any], None]) -> Callable[[Any], None]:
    """The edit of the first answer alone."""
    left = [edit]
    return lambda answer: left.pop()(answer) if left else None


async def test_an_idle_consumer_sends_only_changes(topic: str) -> None:
    """Of 60 partitions: the first request names all, the later ones none; a new record costs one."""
    async with LocalCluster() as node, Proxy(node.bootstrap_servers) as proxy:
        async with Admin(node.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(topic, 60)])
        options: dict[str, Any] = {"fetch_max_wait_ms": 20, "auto_offset_reset": "earliest"}
        async with Consumer(topic, bootstrap_servers=proxy.address, **options) as consumer:
            await proxy.asked(ApiKey.FETCH, 4)
            first, *later = proxy.sizes[ApiKey.FETCH]
            assert first > 60 * 20
            assert max(later) < 100
            async with Producer(node.bootstrap_servers) as producer:
                await producer.send_and_wait(topic, b"v", partition=7)
            assert (await consumer.getone()).partition == 7
            consumer.pause(TopicPartition(topic, 0))
            count = len(proxy.sizes[ApiKey.FETCH])
            await proxy.asked(ApiKey.FETCH, count + 3)
            assert max(proxy.sizes[ApiKey.FETCH][1:]) < 200
        assert node.node is not None
        assert len(node.node.services.sessions) == 0  # closed with the consumer


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ],
)
async def test_a_lost_session_is_no_event_for_the_reader(node: LocalCluster, topic: str, code: ErrorCode) -> None:
    """The consumer begins another; each record comes once."""

    def refuse(answer: FetchResponse) -> None:
        answer.error_code, answer.session_id, answer.responses = code, 0, []

    async with (
        Proxy(node.bootstrap_servers) as proxy,
        Producer(node.bootstrap_servers) as producer,
        Consumer(bootstrap_servers=proxy.address, auto_offset_reset="earliest") as consumer,
        asyncio.timeout(patient(20)),
    ):
        for value in range(3):
            await producer.send_and_wait(topic, b"%d" % value, partition=0)
            if value == 0:
                await consumer.assign([(topic, 0)])
            assert (await consumer.getone()).value == b"%d" % value
            proxy.edits[ApiKey.FETCH] = once(refuse)


async def test_a_replica_without_the_offset_leads_back_to_the_leader(node: LocalCluster, topic: str) -> None:
    """The leader names it, it lags behind: no reset, and the leader is not asked for a replica for a while."""
    async with Proxy(node.bootstrap_servers) as leader, Proxy(node.bootstrap_servers) as follower:

        def two_brokers(answer: MetadataResponse) -> None:
            answer.brokers = [
                MetadataResponseBroker(node_id=number, host="127.0.0.1", port=proxied.port)
                for number, proxied in ((1, leader), (2, follower))
            ]

        def name_the_other(answer: FetchResponse) -> None:
            for data in answer.responses[0].partitions:
                data.preferred_read_replica, data.records = 2, None

        def out_of_range(answer: FetchResponse) -> None:
            for data in answer.responses[0].partitions:
                data.error_code, data.records = ErrorCode.OFFSET_OUT_OF_RANGE, None

        for proxied in (leader, follower):
            proxied.edits[ApiKey.METADATA] = two_brokers
        leader.edits[ApiKey.FETCH] = once(name_the_other)
        follower.edits[ApiKey.FETCH] = out_of_range
        async with Producer(node.bootstrap_servers) as producer:
            await producer.send_and_wait(topic, b"v", partition=0)
        async with (
            Consumer(bootstrap_servers=leader.address, auto_offset_reset="none", client_rack="near") as consumer,
            asyncio.timeout(patient(20)),
        ):
            await consumer.assign([(topic, 0)])
            consumer.seek(TopicPartition(topic, 0), 0)
            assert (await consumer.getone()).value == b"v"
            assert follower.requests.count(ApiKey.FETCH) == 1


async def test_a_response_that_names_the_new_leader_needs_no_metadata(node: LocalCluster, topic: str) -> None:
    """The producer and the consumer go on there while every request for metadata is held."""
    host, _, port = node.bootstrap_servers.rpartition(":")

    def of_an_earlier_epoch(answer: MetadataResponse) -> None:
        for described in answer.topics:
            for partition in described.partitions:
                partition.leader_epoch = -1

    old = Proxy(node.bootstrap_servers)
    old.edits[ApiKey.METADATA] = of_an_earlier_epoch
    async with (
        old,
        Producer(old.address, linger_ms=0) as producer,
        Consumer(bootstrap_servers=old.address, auto_offset_reset="earliest") as consumer,
        asyncio.timeout(patient(20)),
    ):
        await producer.send_and_wait(topic, b"0", partition=0)
        await consumer.assign([(topic, 0)])
        assert (await consumer.getone()).value == b"0"
        old.strike(Fate.HOLD, ApiKey.METADATA)

        def produced_elsewhere(answer: ProduceResponse) -> None:
            for partition in answer.responses[0].partition_responses:
                partition.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                partition.current_leader = ProduceLeader(leader_id=7, leader_epoch=0)
            answer.node_endpoints = [ProduceEndpoint(node_id=7, host=host, port=int(port))]

        def fetched_elsewhere(answer: FetchResponse) -> None:
            for topic_answer in answer.responses:
                for data in topic_answer.partitions:
                    data.error_code, data.records = ErrorCode.NOT_LEADER_OR_FOLLOWER, None
                    data.current_leader = LeaderIdAndEpoch(leader_id=7, leader_epoch=0)
            answer.node_endpoints = [NodeEndpoint(node_id=7, host=host, port=int(port))]

        old.edits |= {ApiKey.PRODUCE: produced_elsewhere, ApiKey.FETCH: fetched_elsewhere}
        for value in (b"1", b"2"):
            await producer.send_and_wait(topic, value, partition=0)
            assert (await consumer.getone()).value == value
        assert old.requests.count(ApiKey.PRODUCE) == 2
        await until(lambda: old.requests.count(ApiKey.METADATA) > 2)  # asked for meanwhile


async def test_a_seek_while_a_connection_is_made_does_not_change_the_request(node: LocalCluster, topic: str) -> None:
    """The session knows what was sent: the position of before, which the response must not answer."""
    async with Proxy(node.bootstrap_servers) as proxy, Producer(node.bootstrap_servers) as producer:
        for value in range(3):
            await producer.send_and_wait(topic, b"%d" % value, partition=0)
        async with Consumer(bootstrap_servers=proxy.address) as consumer, asyncio.timeout(patient(20)):
            where = TopicPartition(topic, 0)
            await consumer.assign([where])
            held = proxy.strike(Fate.HOLD, ApiKey.API_VERSIONS)
            consumer.seek(where, 0)
            await held.happened.wait()
            consumer.seek(where, 2)
            fetched: list[tuple[bool, int]] = []

            def note(answer: FetchResponse) -> None:
                fetched.extend((each.topic_id.int != 0, each.partitions[0].error_code) for each in answer.responses)

            proxy.edits[ApiKey.FETCH] = note
            held.lift()
            assert (await consumer.getone()).value == b"2"
            assert set(fetched) == {(True, 0)}
