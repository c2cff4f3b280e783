"""librdkafka's producer and consumer under faults; arguments and output: see `events`."""

import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer

_lock = threading.Lock()


def say(kind: str, *words: object) -> None:
    with _lock:
        sys.stdout.write(" ".join(map(str, (kind, time.monotonic_ns(), *words))) + "\n")
        sys.stdout.flush()


def write(bootstrap: str, topic: str, partitions: int, pause_s: float, timeout_ms: int, over: threading.Event) -> None:
    """Send until `over`."""

    def delivered(problem: KafkaError | None, message: Message) -> None:
        value = (message.value() or b"").decode()
        if problem is None:
            say("acknowledged", value)
        else:
            say("failed", value, problem.name())

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "delivery.timeout.ms": 300_000,
            "request.timeout.ms": timeout_ms,
            "socket.timeout.ms": timeout_ms,
            "log_level": 0,
        }
    )
    number = 0
    while not over.is_set():
        producer.produce(topic, value=str(number), partition=number % partitions, on_delivery=delivered)
        number += 1
        end = time.monotonic() + pause_s
        while (left := end - time.monotonic()) > 0:
            producer.poll(left)
    while len(producer):
        producer.poll(0.1)


def read(bootstrap: str, topic: str, group: str, timeout_ms: int, protocol: str, over: threading.Event) -> None:
    """Read until `over`."""
    options: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 1_000,
        "socket.timeout.ms": timeout_ms,
        "log_level": 0,
    }
    consumer = Consumer(options)
    consumer.subscribe(
        [topic],
        on_assign=lambda _, partitions: say("assigned", len(partitions)),
        on_revoke=lambda _, partitions: say("revoked", len(partitions)),
        on_lost=lambda _, partitions: say("lost", len(partitions)),
    )
    while not over.is_set():
        message = consumer.poll(0.1)
        if message is None:
            continue
        if (problem := message.error()) is None:
            say("read", (message.value() or b"").decode(), message.partition(), message.offset())
        elif problem.fatal():
            say("ended", "consumer", problem.name())
            break
    consumer.close()


def main(bootstrap: str, topic: str, group: str, *others: str) -> None:
    partitions, pause_ms, timeout_ms = map(int, others[:3])
    written, over = threading.Event(), threading.Event()
    writer = threading.Thread(target=write, args=(bootstrap, topic, partitions, pause_ms / 1000, timeout_ms, written))
    reader = threading.Thread(target=read, args=(bootstrap, topic, group, timeout_ms, others[3], over))
    writer.start()
    reader.start()
    sys.stdin.readline()
    written.set()
    writer.join()
    say("done")
    sys.stdin.readline()
    over.set()
    reader.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
