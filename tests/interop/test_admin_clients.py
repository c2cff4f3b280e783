"""Administration with clients that are not ours."""

import asyncio
from collections.abc import Iterator

import confluent_kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from kafka import KafkaAdminClient

from tests.interop.broker import Broker
from tests.support.patience import patient

pytestmark = [pytest.mark.foreign, pytest.mark.slow]


@pytest.fixture
def kafka_python(broker: Broker) -> Iterator[KafkaAdminClient]:
    """kafka-python's administration."""
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    yield client
    client.close()


def test_librdkafka_describes_settings(admin: AdminClient) -> None:
    """Sources and synonyms arrive."""
    for made in admin.create_topics([NewTopic("described-by-librdkafka", 1, 1)]).values():
        made.result(patient(20))
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "described-by-librdkafka")]).values()
    entry = future.result(patient(20))["min.insync.replicas"]
    assert (entry.value, entry.source, entry.is_default) == ("1", 3, False)


def test_librdkafka_elects_leaders(admin: AdminClient) -> None:
    """No election is needed, which it takes for success."""
    for made in admin.create_topics([NewTopic("elected-by-librdkafka", 1, 1)]).values():
        made.result(patient(20))
    partition = confluent_kafka.TopicPartition("elected-by-librdkafka", 0)
    outcomes = admin.elect_leaders(confluent_kafka.ElectionType.PREFERRED, [partition]).result(patient(20))
    (problem,) = outcomes.values()
    assert problem is None or problem.code() == confluent_kafka.KafkaError.ELECTION_NOT_NEEDED


def test_kafka_python_describes_log_directories(kafka_python: KafkaAdminClient, admin: AdminClient) -> None:
    """The partition is in the one directory."""
    for made in admin.create_topics([NewTopic("sized-by-kafka-python", 1, 1)]).values():
        made.result(patient(20))
    assert "sized-by-kafka-python" in str(kafka_python.describe_log_dirs())


def test_aiokafka_describes_the_cluster(broker: Broker) -> None:
    """And a topic's settings."""

    async def ask() -> dict[str, object]:
        client = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        await client.start()
        try:
            description: dict[str, object] = await client.describe_cluster()
            return description
        finally:
            await client.close()

    assert len(asyncio.run(ask())["brokers"]) == 1
