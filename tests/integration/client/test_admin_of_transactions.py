"""Transactions as an administrator sees them, at Apache Kafka: listed, described, aborted, and found where no coordinator knows them."""

import asyncio
import json
import os
import subprocess
import sys

import pytest
from tests.integration.client.committed import committed
from tests.integration.client.conftest import Cluster

from busway import Admin, BrokerError, NewTopic, Producer, ProducerFenced, TopicPartition
from busway.cluster.client import ClusterClient
from busway.net.machine import OS
from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from busway_protocol.messages.transactions import InitProducerIdRequest
from busway_protocol.records.builder import BatchBuilder

pytestmark = pytest.mark.slow


async def command(cluster: Cluster, *arguments: str, group: str = "transactions") -> tuple[int, str]:
    """`busway transactions …` or another group of commands: its code, and what it said."""
    environment = {**os.environ, "BUSWAY_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "busway.cli", group, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


async def hang(cluster: Cluster, topic: str) -> tuple[int, int]:
    """Leave a transaction hanging: a record of an id that has added no partition, as a late one is. Its producer and offset."""
    client = ClusterClient(cluster.bootstrap_servers, client_id="hang")
    try:
        await client.ensure_topics([topic])
        name = f"hang-{topic}"
        async with Producer(cluster.bootstrap_servers, transactional_id=name):
            pass
        coordinated = await client.any_connection()
        answer = await coordinated.request(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000))
        batch = BatchBuilder(
            producer_id=answer.producer_id,
            producer_epoch=answer.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        batch.append(OS.wall_ms(), None, b"hanging")
        partition = PartitionProduceData(index=0, records=batch.build())
        # Version 10 and before say nothing of what their sender could do, so that brokers have to believe it or not.
        response = await coordinated.request(
            ProduceRequest(
                transactional_id=name,
                acks=-1,
                timeout_ms=30_000,
                topic_data=[TopicProduceData(name=topic, partition_data=[partition])],
            ),
            at_most=10,
        )
        produced = response.responses[0].partition_responses[0]
        assert produced.error_code == 0, produced
        return answer.producer_id, produced.base_offset
    finally:
        await client.close()


async def test_transactions_are_listed_described_and_aborted(transactional: Cluster, topic: str) -> None:
    """By Kafka's names; the producer whose transaction is aborted so is fenced."""
    name = f"x-{topic}"
    async with (
        Producer(transactional.bootstrap_servers, transactional_id=name, transaction_timeout_ms=50_000) as producer,
        Admin(transactional.bootstrap_servers) as admin,
    ):
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"open", partition=0)
        (listed,) = [
            transaction
            for transaction in await admin.list_transactions(states=["Ongoing"])
            if transaction.transactional_id == name
        ]
        described = await admin.describe_transaction(name)
        assert described.partitions == (TopicPartition(topic, 0),)
        assert (described.state, described.timeout_ms, described.coordinator) == ("Ongoing", 50_000, 1)
        assert listed.producer_id == described.producer_id
        (known,) = (await admin.describe_producers([TopicPartition(topic, 0)]))[TopicPartition(topic, 0)]
        assert (known.producer_id, known.last_sequence, known.open_from) == (described.producer_id, 0, 0)
        assert await admin.find_hanging_transactions([TopicPartition(topic, 0)], idle_ms=0) == []
        assert [
            transaction
            for transaction in await admin.list_transactions(open_for_ms=600_000)
            if transaction.transactional_id == name
        ] == []
        code, said = await command(transactional, "list", "--state", "Ongoing")
        assert code == 0
        assert f"{name}\tOngoing\t{described.producer_id}" in said
        code, said = await command(transactional, "describe", name, "--json")
        assert json.loads(said)["partitions"] == [f"{topic}-0"]
        for isolation, read in ((("--read-committed",), ""), ((), "open\n")):
            seen = await command(transactional, topic, "--from-beginning", "--until-end", *isolation, group="consume")
            assert seen == (0, read)
        code, said = await command(transactional, "abort", name)
        assert (code, said) == (0, f"aborted {name}\n")
        with pytest.raises(ProducerFenced, match="same transactional_id has taken over"):
            await producer.commit_transaction()
        with pytest.raises(BrokerError, match="no such state"):
            await admin.list_transactions(states=["Nonsense"])
    assert await committed(transactional.bootstrap_servers, topic) == []


async def test_what_is_not_there_is_refused_by_name(transactional: Cluster) -> None:
    """And is not made by asking for it."""
    for arguments in (("describe", "nobody"), ("abort", "nobody")):
        code, said = await command(transactional, *arguments)
        assert code == 1
        assert "nobody" in said
        assert "TRANSACTIONAL_ID_NOT_FOUND" in said
    for wrong in ([], ["x", "--topic", "t"], ["--topic", "t"]):
        code, said = await command(transactional, "abort", *wrong)
        assert code == 1
        assert "give a transactional id, or --topic, --partition and --open-from" in said


@pytest.mark.java
async def test_a_hanging_transaction_is_found_and_aborted(unverified: Cluster, topic: str) -> None:
    """Its readers get on; one that its coordinator knows is none, and a second abort finds nothing."""
    where = TopicPartition(topic, 0)
    async with Admin(unverified.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(topic, 1)])
        producer_id, offset = await hang(unverified, topic)
        async with Producer(unverified.bootstrap_servers) as plain:
            await plain.send_and_wait(topic, b"behind", partition=0)
        assert await committed(unverified.bootstrap_servers, topic, one_is_open=True) == []
        assert await admin.find_hanging_transactions([where]) == []
        (hanging,) = await admin.find_hanging_transactions([where], idle_ms=0)
        assert (hanging.producer_id, hanging.open_from, hanging.partition) == (producer_id, offset, where)
        assert hanging.transactional_id == f"hang-{topic}"
        code, said = await command(unverified, "hanging", "--idle-minutes", "0")
        assert code == 0
        assert f"{topic}\t0\t{offset}\t{producer_id}" in said
        place = ("--topic", topic, "--partition", "0", "--open-from", str(offset), "--idle-minutes", "0")
        code, said = await command(unverified, "abort", *place)
        assert (code, said) == (0, f"aborted the transaction at offset {offset} of {topic}-0\n")
        assert await committed(unverified.bootstrap_servers, topic) == [b"behind"]
        code, said = await command(unverified, "abort", *place)
        assert code == 1
        assert "no transaction hangs" in said
