"""Clients of the SDK: writers, one of them in transactions, and a reader.

Here: what they do until they are asked to stop.
Not here: librdkafka's (`librdkafka_clients`), what their outcomes mean (`ledger`).
"""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import Final

from busway import Consumer, Producer
from busway.errors import BuswayError, DeliveryFailed, TransactionAbortable, TransactionInDoubt
from busway.types import TopicPartition
from tests.chaos.ledger import Ledger, Place
from tests.support.patience import patient, patient_ms

DELIVERY_MS: Final = 60_000
TRANSACTION_MS: Final = 20_000
AGAIN_S: Final = 0.2
"""Pause before a client that failed is replaced."""
IN_FLIGHT: Final = 8
"""Records of a writer that are sent before one is awaited."""
ABORTED: Final = 0.2
"""Share of transactions that the program aborts."""


class _Aborted(Exception):
    """The program gives up this transaction."""


async def write(servers: str, topic: str, partitions: int, writer: str, ledger: Ledger, over: asyncio.Event) -> None:
    """Write with acks=all and idempotence until `over`; each record is sent by one call."""
    numbers = itertools.count()
    while not over.is_set():
        with contextlib.suppress(BuswayError):
            async with Producer(
                servers,
                linger_ms=0,
                delivery_timeout_ms=patient_ms(DELIVERY_MS),
                request_timeout_ms=10_000,
            ) as producer:
                while not over.is_set():
                    values = [f"{writer}:{next(numbers)}" for _ in range(IN_FLIGHT)]
                    ledger.tried(values)
                    await _written(producer, topic, partitions, writer, values, ledger)
        await asyncio.sleep(AGAIN_S)


async def _written(
    producer: Producer, topic: str, partitions: int, writer: str, values: list[str], ledger: Ledger
) -> None:
    sent = [
        await producer.send(topic, value.encode(), partition=int(value.rpartition(":")[2]) % partitions)
        for value in values
    ]
    for value, outcome in zip(values, await asyncio.gather(*sent, return_exceptions=True), strict=True):
        if not isinstance(outcome, BaseException):
            ledger.acknowledged(writer, value)
        elif isinstance(outcome, DeliveryFailed):
            ledger.failed()
        else:
            raise outcome


async def write_in_transactions(
    servers: str, topic: str, partitions: int, writer: str, ledger: Ledger, over: asyncio.Event, drawn: random.Random
) -> None:
    """Write transactions over several partitions until `over`; some are aborted."""
    numbers = itertools.count()
    while not over.is_set():
        with contextlib.suppress(BuswayError):
            async with Producer(
                servers,
                transactional_id=writer,
                transaction_timeout_ms=TRANSACTION_MS,
                delivery_timeout_ms=patient_ms(DELIVERY_MS),
                request_timeout_ms=10_000,
                linger_ms=0,
            ) as producer:
                while not over.is_set():
                    values = [f"{writer}:{next(numbers)}" for _ in range(drawn.randrange(2, 9))]
                    ledger.tried(values)
                    await _transaction(producer, topic, partitions, writer, values, ledger, drawn.random() < ABORTED)
        await asyncio.sleep(AGAIN_S)


async def _transaction(
    producer: Producer, topic: str, partitions: int, writer: str, values: list[str], ledger: Ledger, abort: bool
) -> None:
    """Write a transaction; raise if the producer cannot continue."""
    try:
        async with producer.transaction():
            for value in values:
                await producer.send(topic, value.encode(), partition=int(value.rpartition(":")[2]) % partitions)
            if abort:
                await producer.flush()
                raise _Aborted
    except (_Aborted, TransactionAbortable):
        ledger.aborted(writer, values)
    except TransactionInDoubt:
        try:
            await producer.commit_transaction()
        except TransactionAbortable:
            await producer.abort_transaction()
            ledger.aborted(writer, values)
        except BaseException as problem:
            ledger.unknown(values, f"SDK, commit in doubt, {type(problem).__name__}")
            raise
        else:
            ledger.committed(writer, values)
    except BaseException as problem:
        ledger.unknown(values, f"SDK, {type(problem).__name__}")
        raise
    else:
        ledger.committed(writer, values)


async def read(servers: str, topics: dict[str, int], ledger: Ledger, over: asyncio.Event) -> None:
    """Read committed records from the beginning until `over`; start again after an error."""
    while not over.is_set():
        with contextlib.suppress(BuswayError):
            async with Consumer(
                bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level="read_committed"
            ) as consumer:
                await consumer.assign(_places(topics))
                while not over.is_set():
                    for place, records in (await consumer.getmany(timeout_ms=200)).items():
                        for record in records:
                            ledger.seen((place.topic, place.partition, record.offset), (record.value or b"").decode())
        await asyncio.sleep(AGAIN_S)


def _places(topics: dict[str, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for topic, count in topics.items() for partition in range(count)]


async def read_all(servers: str, topics: dict[str, int]) -> dict[Place, str]:
    """Read all committed records, from the beginning to the ends of the logs.

    Raises:
        TimeoutError: the end was not reached, for one because a transaction stays open.
    """
    result: dict[Place, str] = {}
    async with Consumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        places = _places(topics)
        await consumer.assign(places)
        ends = await consumer.end_offsets(places, open_too=True)
        async with asyncio.timeout(patient(90)):
            while any([await consumer.position(place) < ends[place] for place in places]):
                for place, records in (await consumer.getmany(timeout_ms=100)).items():
                    for record in records:
                        result[place.topic, place.partition, record.offset] = (record.value or b"").decode()
    return result


Client = Callable[[], Awaitable[None]]
