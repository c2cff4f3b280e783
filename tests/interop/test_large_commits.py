"""librdkafka commits the offsets of ten thousand partitions at once, in a transaction and without: all of them or none."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.broker import Broker, chosen_broker
from tests.support.patience import patient

pytestmark = [pytest.mark.foreign, pytest.mark.slow, pytest.mark.timeout(300)]
TOPICS, PARTITIONS = 10, 1_000
INVALID_COMMIT_OFFSET_SIZE = 28


@pytest.fixture(scope="module")
def wide() -> Iterator[Broker]:
    """A broker with ten thousand partitions."""
    running = chosen_broker()
    try:
        running.start()
        topics = [NewTopic(f"wide-{number}", PARTITIONS, 1) for number in range(TOPICS)]
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        for creation in admin.create_topics(
            topics, operation_timeout=patient(120), request_timeout=patient(120)
        ).values():
            creation.result(patient(150))
        yield running
        for deletion in admin.delete_topics([topic.topic for topic in topics], request_timeout=patient(120)).values():
            deletion.result(patient(150))  # else the broker's end waits for the disk ten thousand times
    finally:
        running.stop()


def offsets(offset: int, metadata: str = "") -> list[TopicPartition]:
    """One for each partition; it may lie behind the end, which no broker looks at."""
    return [
        TopicPartition(f"wide-{topic}", partition, offset, metadata)
        for topic in range(TOPICS)
        for partition in range(PARTITIONS)
    ]


def consumer(broker: Broker, group: str) -> Consumer:
    """One that only commits and asks."""
    return Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "enable.auto.commit": False})


def committed(consumer: Consumer) -> set[int]:
    """Every offset that is in force, each once."""
    return {place.offset for place in consumer.committed(offsets(0), patient(60))}


def test_offsets_in_a_transaction(wide: Broker) -> None:
    """In force together when it is committed, gone together when it is aborted; too many bytes are refused whole."""
    reader = consumer(wide, "wide-tx")
    producer = Producer({"bootstrap.servers": wide.bootstrap_servers, "transactional.id": "wide"})
    producer.init_transactions(patient(60))
    producer.begin_transaction()
    producer.send_offsets_to_transaction(offsets(5), reader.consumer_group_metadata(), patient(60))
    producer.commit_transaction(patient(60))
    assert committed(reader) == {5}
    producer.begin_transaction()
    producer.send_offsets_to_transaction(offsets(6), reader.consumer_group_metadata(), patient(60))
    producer.abort_transaction(patient(60))
    assert committed(reader) == {5}
    producer.begin_transaction()
    with pytest.raises(KafkaException) as refused:
        producer.send_offsets_to_transaction(offsets(7, "m" * 500), reader.consumer_group_metadata(), patient(60))
    assert refused.value.args[0].code() == INVALID_COMMIT_OFFSET_SIZE
    producer.abort_transaction(patient(60))
    assert committed(reader) == {5}
    reader.close()


def test_offsets_without_one(wide: Broker) -> None:
    """One batch, too."""
    reader = consumer(wide, "wide-plain")
    reader.commit(offsets=offsets(5), asynchronous=False)
    assert committed(reader) == {5}
    with pytest.raises(KafkaException) as refused:
        reader.commit(offsets=offsets(6, "m" * 500), asynchronous=False)
    assert refused.value.args[0].code() == INVALID_COMMIT_OFFSET_SIZE
    assert committed(reader) == {5}
    reader.close()
