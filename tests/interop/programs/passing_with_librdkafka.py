"""librdkafka passes records on, exactly once (see `tests.interop.judges.loops`).

Where its coordinator goes away while `send_offsets_to_transaction` runs, librdkafka 2.16.0 may never come back from that call, past its own
timeout, with any broker: nothing looks at the time-out of requests to a coordinator (https://github.com/confluentinc/librdkafka/issues/5456, open). Then an alarm ends the process, as an operator would.
"""

import math
import signal
import sys
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.support.judging.lines import line
from tests.support.patience import patient

PATIENCE_S = patient(60)
HANGS_S = math.ceil(patient(12))


class Loop:
    """One member."""

    def __init__(self, *arguments: str) -> None:
        bootstrap, self.source, self.target, self.group, self.id, self.process, size, protocol = arguments
        self.size = int(size)
        self.ending = False
        session = {} if protocol == "consumer" else {"session.timeout.ms": 3000, "heartbeat.interval.ms": 300}
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": self.group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
                "isolation.level": "read_committed",
                **session,
            }
        )
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": self.id,
                "transaction.timeout.ms": 5_000,
                "linger.ms": 5,
                "log_level": 0,
            }
        )

    def tell(self, f: str = "transaction", **fields: Any) -> None:
        """A line of the history."""
        sys.stdout.write(line(f, self.process, **fields))
        sys.stdout.flush()

    def end(self, *_: object) -> None:
        """After the transaction under way."""
        self.ending = True

    def run(self) -> None:
        """Until stopped."""
        signal.signal(signal.SIGTERM, self.end)
        self.tell("init_producer", event="invoke", id="init", transactional_id=self.id)
        self.producer.init_transactions(PATIENCE_S)
        self.tell("init_producer", event="ok", id="init")
        self.consumer.subscribe([self.source])
        attempt = 0
        while not self.ending:
            messages = [each for each in self.consumer.consume(self.size, 0.2) if each.error() is None]
            if messages:
                attempt += 1
                self.pass_on(attempt, messages)
        self.consumer.close()

    def pass_on(self, attempt: int, messages: list[Message]) -> None:
        """All of it in one transaction, or nothing."""
        values, offsets = [], {}
        for each in messages:
            place = f"{self.source}-{each.partition()}"
            value = f"{each.value().decode()}~{self.process}.{attempt}"
            values.append([f"{self.target}-{each.partition()}", value, f"{place}@{each.offset()}"])
            offsets[place] = each.offset() + 1
        fields: dict[str, Any] = {"values": values, "group": self.group, "offsets": offsets}
        self.tell(event="invoke", id=attempt, transactional_id=self.id, **fields)
        signal.alarm(HANGS_S)
        try:
            self.producer.begin_transaction()
            for each, (_, value, _) in zip(messages, values, strict=True):
                self.producer.produce(self.target, value=value, key=each.key(), partition=each.partition())
            self.send_offsets(offsets)
            self.tell(event="asked", id=attempt)
            self.commit()
        except KafkaException as problem:
            self.undo(attempt, messages, problem)
        else:
            self.tell(event="ok", id=attempt)
        signal.alarm(0)

    def send_offsets(self, offsets: dict[str, int]) -> None:
        """Again while it may be done again."""
        places = [TopicPartition(self.source, int(place.rpartition("-")[2]), at) for place, at in offsets.items()]
        self._again(
            lambda: self.producer.send_offsets_to_transaction(places, self.consumer.consumer_group_metadata(), 5)
        )

    def commit(self) -> None:
        """Again while it may be done again."""
        self._again(lambda: self.producer.commit_transaction(10))

    def _again(self, do: Any) -> None:
        while True:
            try:
                do()
            except KafkaException as problem:
                if not problem.args[0].retriable():
                    raise
                sys.stderr.write(f"{self.process}: again: {problem}\n")
            else:
                return

    def undo(self, attempt: int, messages: list[Message], problem: KafkaException) -> None:
        """Abort, and go back; what is fenced ends."""
        if not problem.args[0].txn_requires_abort():
            self.tell(event="info", id=attempt, problem=str(problem))
            sys.stderr.write(f"{self.process}: {problem}\n")
            sys.exit(3)
        self._again(lambda: self.producer.abort_transaction(10))
        self.tell(event="fail", id=attempt, problem=str(problem))
        first: dict[int, int] = {}
        for each in messages:
            first.setdefault(each.partition(), each.offset())
        assigned = {each.partition for each in self.consumer.assignment()}
        for partition in assigned & first.keys():
            self.consumer.seek(TopicPartition(self.source, partition, first[partition]))


if __name__ == "__main__":
    Loop(*sys.argv[1:]).run()
