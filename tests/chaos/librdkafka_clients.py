"""Clients of librdkafka, in threads: an idempotent writer, one in transactions, and readers.

Here: what they do until they are asked to stop.
Not here: the SDK's (`sdk_clients`), what their outcomes mean (`ledger`).
"""

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.chaos.ledger import Ledger, Place
from tests.chaos.sdk_clients import ABORTED, DELIVERY_MS, IN_FLIGHT, TRANSACTION_MS
from tests.support.patience import patient, patient_ms

CALL_S: Final = 10.0
"""Time-out of a call of the transactional API; a retriable one is repeated."""


def write(servers: str, topic: str, partitions: int, writer: str, ledger: Ledger, over: threading.Event) -> None:
    """Write with acks=all and idempotence until `over`."""
    numbers = itertools.count()
    while not over.is_set():
        producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "delivery.timeout.ms": patient_ms(DELIVERY_MS),
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        fatal = threading.Event()
        with contextlib.suppress(KafkaException):  # fatal: poll or produce raises it, if no callback came before
            while not (over.is_set() or fatal.is_set()):
                for _ in range(IN_FLIGHT):
                    number = next(numbers)
                    value = f"{writer}:{number}"
                    ledger.tried([value])
                    producer.produce(
                        topic,
                        value=value,
                        partition=number % partitions,
                        on_delivery=_delivery(value, writer, ledger, fatal),
                    )
                while len(producer):
                    producer.poll(0.1)


def _delivery(
    value: str, writer: str, ledger: Ledger, fatal: threading.Event
) -> Callable[[KafkaError | None, Message], None]:
    def delivered(problem: KafkaError | None, _: Message) -> None:
        if problem is None:
            ledger.acknowledged(writer, value)
        else:
            ledger.failed()
            if problem.fatal():
                fatal.set()

    return delivered


def write_in_transactions(
    servers: str, topic: str, partitions: int, writer: str, ledger: Ledger, over: threading.Event, drawn: random.Random
) -> None:
    """Write transactions over several partitions until `over`; some are aborted."""
    numbers = itertools.count()
    while not over.is_set():
        producer = Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": writer,
                "transaction.timeout.ms": TRANSACTION_MS,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        try:
            _again(lambda made=producer: made.init_transactions(CALL_S), over)  # type: ignore[misc]
            while not over.is_set():
                values = [f"{writer}:{next(numbers)}" for _ in range(drawn.randrange(2, 9))]
                ledger.tried(values)
                _transaction(producer, topic, partitions, writer, values, ledger, over, drawn.random() < ABORTED)
        except (KafkaException, _GivenUp):
            continue


class _GivenUp(Exception):
    """A call was not successful before the end of the run's grace."""


def _again(call: Callable[[], object], over: threading.Event) -> None:
    """Repeat a call while it is retriable, after `over` for a grace time only."""
    grace_until = None
    while True:
        try:
            call()
        except KafkaException as problem:
            if not problem.args[0].retriable():
                raise
        else:
            return
        if over.is_set():
            grace_until = grace_until or time.monotonic() + patient(30)
            if time.monotonic() > grace_until:
                raise _GivenUp


def _transaction(
    producer: Producer,
    topic: str,
    partitions: int,
    writer: str,
    values: list[str],
    ledger: Ledger,
    over: threading.Event,
    abort: bool,
) -> None:
    """Write a transaction; raise if the producer cannot continue."""
    call = "produce"
    try:
        try:
            producer.begin_transaction()
            for value in values:
                producer.produce(topic, value=value, partition=int(value.rpartition(":")[2]) % partitions)
            if not abort:
                call = "commit"
                _again(lambda: producer.commit_transaction(CALL_S), over)
                ledger.committed(writer, values)
                return
            producer.flush(1)
        except KafkaException as problem:
            if not problem.args[0].txn_requires_abort():
                raise
            call = f"{call} ({problem.args[0].name()})"
        call = f"abort after {call}"
        _again(lambda: producer.abort_transaction(CALL_S), over)
        ledger.aborted(writer, values)
    except KafkaException as problem:
        ledger.unknown(values, f"librdkafka, {call}, {problem.args[0].name()}")
        raise
    except _GivenUp:
        ledger.unknown(values, f"librdkafka, {call}, not in time")
        raise


def _reader(servers: str, topics: dict[str, int]) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign(
        [
            TopicPartition(topic, partition, OFFSET_BEGINNING)
            for topic, count in topics.items()
            for partition in range(count)
        ]
    )
    return consumer


def _place(message: Message) -> Place:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return topic, partition, offset


def read(servers: str, topics: dict[str, int], ledger: Ledger, over: threading.Event) -> None:
    """Read committed records from the beginning until `over`."""
    consumer = _reader(servers, topics)
    while not over.is_set():
        for message in consumer.consume(500, 0.2):
            if message.error() is None:
                value = message.value()
                assert value is not None
                ledger.seen(_place(message), value.decode())
    consumer.close()


def read_all(servers: str, topics: dict[str, int]) -> dict[Place, str]:
    """Read all committed records up to the last stable offsets.

    Raises:
        TimeoutError: the end was not reached.
    """
    consumer = _reader(servers, topics)
    left = {(topic, partition) for topic, count in topics.items() for partition in range(count)}
    result: dict[Place, str] = {}
    until = time.monotonic() + patient(90)
    while left:
        if time.monotonic() > until:
            raise TimeoutError(f"librdkafka did not reach the end of {sorted(left)}")
        for message in consumer.consume(500, 0.2):
            problem = message.error()
            if problem is None:
                value = message.value()
                assert value is not None
                result[_place(message)] = value.decode()
            elif problem.code() == KafkaError._PARTITION_EOF:
                topic, partition, _ = _place(message)
                left.discard((topic, partition))
    consumer.close()
    return result
