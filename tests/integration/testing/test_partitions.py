"""Nodes of a test whose network is cut: what is kept back, and what a cluster makes of it."""

import asyncio
from typing import Any

import pytest
from tests.support.patience import patient_ms
from tests.support.waiting import until

from busway import Admin, Consumer, NewTopic, Producer
from busway.net.connection import Connection
from busway.testing.cluster import Cluster
from busway_bus.testing.local_cluster import LocalCluster
from busway_bus.testing.local_network import LocalNetwork
from busway_bus.testing.local_nodes import LocalNodes
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.cluster import ApiVersionsRequest
from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from busway_protocol.records.builder import BatchBuilder

pytestmark = pytest.mark.slow


async def connected(address: str) -> Connection:
    host, _, port = address.rpartition(":")
    connection = Connection(host, int(port), client_id="test", timeout_s=patient_ms(20_000) / 1000)
    await connection.connect()
    return connection


async def test_what_is_sent_meanwhile_arrives_afterwards() -> None:
    """Each way by itself, on a connection that stays open; a second cut of one direction is healed by itself."""
    async with LocalCluster(network=LocalNetwork()) as node:
        cluster = Cluster(bootstrap_servers=node.bootstrap_servers, schema_registry="", broker=node)
        connection = await connected(node.bootstrap_servers)
        other = asyncio.ensure_future(connected(node.bootstrap_servers))
        async with Admin(node.bootstrap_servers) as admin:
            for groups in (("clients", 1), (1, "clients")):
                first, second = (cluster.partition(*groups, one_way=True) for _ in range(2))
                await first
                await second
                asked = asyncio.ensure_future(
                    connection.request(ApiVersionsRequest(client_software_name="test", client_software_version="1"))
                )
                created = asyncio.ensure_future(admin.create_topics([NewTopic(f"t{groups[0]}")]))
                assert node.node is not None
                if groups[0] == 1:  # only the answer is kept back
                    await until(lambda: "t1" in node.node.services.image.topics)
                await first.heal()
                assert not (await asyncio.wait([asked, created], timeout=0.05))[0]
                await second.heal()
                assert (await asked).error_code == ErrorCode.NONE
                await created
        connection.close()
        (await other).close()
        with pytest.raises(ValueError, match="cuts nothing"):
            cluster.partition(1)


async def test_a_leader_that_is_cut_off_acknowledges_nothing_and_is_fenced() -> None:
    """The others elect a leader and keep all that was acknowledged; the old one comes back and follows."""
    async with LocalNodes(properties={"broker.session.timeout.ms": str(patient_ms(1_000))}) as nodes:
        cluster = Cluster(bootstrap_servers=nodes.bootstrap_servers, schema_registry="", broker=nodes)
        timeouts: Any = {"request_timeout_ms": patient_ms(1_000), "linger_ms": 0}
        async with Producer(cluster.bootstrap_servers, **timeouts) as producer:
            await producer.send_and_wait("t", b"before", partition=0)

            def leader(node_id: int) -> int:
                partition = nodes.nodes[node_id].services.image.partition("t", 0)
                return -1 if partition is None else partition.leader

            first = leader(1)
            rest = [node_id for node_id in nodes.node_ids if node_id != first]
            direct = await connected(nodes.nodes[first].bootstrap_servers)
            async with cluster.partition(first):
                topic = nodes.nodes[first].services.image.topics["t"]
                batch = BatchBuilder()
                batch.append(0, None, b"minority")
                data = TopicProduceData(
                    topic_id=topic.topic_id,
                    partition_data=[PartitionProduceData(index=0, records=batch.build())],
                )
                refused: Any = await direct.request(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[data]))
                code = refused.responses[0].partition_responses[0].error_code
                assert code in {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
                await until(lambda: {leader(node_id) for node_id in rest} <= set(rest), seconds=30)
                assert all(nodes.nodes[node_id].services.image.brokers[first].fenced for node_id in rest)
                assert leader(first) == first
                async with cluster.partition(first, [*rest, "clients"]):
                    await producer.send_and_wait("t", b"during", partition=0)
            direct.close()
            await until(lambda: leader(first) in rest, seconds=30)
            await until(lambda: len(nodes.nodes[first].services.image.topics["t"].partitions[0].isr) == 3, seconds=30)
            await producer.send_and_wait("t", b"after", partition=0)
        async with Consumer("t", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            values: list[bytes | None] = []
            while len(values) < 3:
                polled = await consumer.getmany(timeout_ms=patient_ms(10_000))
                values += [record.value for records in polled.values() for record in records]
        assert values == [b"before", b"during", b"after"]
