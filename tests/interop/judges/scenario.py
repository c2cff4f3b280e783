"""A scenario: records are fed in, passed on by members that come and go, and the broker is killed; at fixed points of the way.

Here: the feeder, the one who watches the output, and the deeds.
Not here: the programs (`loops`), the verdict.

Nothing waits for a time: each deed is done when so many of the records have been passed on, and the next ones are fed then.
"""

import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.broker import Broker
from tests.interop.judges import final_state
from tests.interop.judges.history_file import HistoryFile, HistoryProgram
from tests.interop.judges.loops import Arguments, Loop
from tests.simulation.history import Partition, value_of
from tests.support.patience import patient

PATIENCE_SECONDS = patient(60.0)
IN_ORDER = (0, 128 + signal.SIGTERM)
"""What a member ends with that was asked to; Java's end with the latter."""
REPLACED_MAX = 24
"""Members that may end because they were fenced or could not know how a commit ended; a new one takes over."""


def _as_it_is(text: str) -> str | None:
    return text


def _nothing(_: str) -> str | None:
    return None


class Feeder:
    """Writes values that no other writes; each is reported when it is acknowledged."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, history: HistoryFile) -> None:
        self._topic, self._partitions, self._history = topic, partitions, history
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 10,
                "log_level": 0,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        self.fed = 0

    def feed(self, count: int) -> None:
        """Hand over so many more."""
        for number in range(self.fed, self.fed + count):
            partition = Partition(self._topic, number % self._partitions)
            value = value_of("feeder", number, partition)
            since = time.monotonic_ns()

            def on_delivery(problem: object, message: object, value: bytes = value, since: int = since) -> None:
                self._told(problem, message, value, since)

            self._producer.produce(self._topic, value, partition=partition.number, on_delivery=on_delivery)
            self._producer.poll(0)
        self.fed += count

    def _told(self, problem: object, message: object, value: bytes, since: int) -> None:
        place = f"{message.topic()}-{message.partition()}"  # type: ignore[attr-defined]
        known = {"outcome": "info", "problem": str(problem)} if problem else {"offset": message.offset()}  # type: ignore[attr-defined]
        self._history.record("send", "feeder", since=since, partition=place, value=value.decode(), **known)

    def finish(self) -> None:
        """All is acknowledged."""
        assert self._producer.flush(PATIENCE_SECONDS) == 0


class Watcher:
    """Reads the committed records of the output as they come."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, history: HistoryFile) -> None:
        self._consumer = final_state.consumer(bootstrap, "read_committed", **{"auto.offset.reset": "earliest"})
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self._history = history
        self._seen: set[bytes] = set()
        self._more = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended:
            since = time.monotonic_ns()
            messages = [each for each in self._consumer.consume(1000, 0.2) if each.error() is None]
            if not messages:
                continue
            records = [
                [f"{each.topic()}-{each.partition()}", each.offset(), each.value().decode()] for each in messages
            ]
            self._history.record("committed_poll", "watcher", since=since, records=records)
            with self._more:
                self._seen.update(each.value().partition(b"~")[0] for each in messages)
                self._more.notify_all()
        self._consumer.close()

    @property
    def count(self) -> int:
        """How many different records were passed on."""
        return len(self._seen)

    def wait(self, count: int, alive: Callable[[], None] = lambda: None, said: Callable[[], str] = lambda: "") -> None:
        """Return when so many have been passed on.

        Raises:
            AssertionError: for a long time none was.
        """
        with self._more:
            before, deadline = -1, 0.0
            while len(self._seen) < count:
                if len(self._seen) > before:
                    before, deadline = len(self._seen), time.monotonic() + PATIENCE_SECONDS
                assert time.monotonic() < deadline, f"{before} of {count} records were passed on, then none:\n{said()}"
                alive()
                self._more.wait(0.5)

    def close(self) -> None:
        """Stop reading."""
        self._ended = True
        self._thread.join()


@dataclass(slots=True)
class Scenario:
    """One run: its topics are `{name}-in` and `{name}-out`."""

    name: str
    broker: Broker
    loop: Loop
    history: HistoryFile
    records: int
    protocol: str = "classic"
    slots: int = 3
    partitions: int = 6
    size: int = 500
    members: dict[int, HistoryProgram] = field(default_factory=dict)
    begun: int = 0
    deeds: list[str] = field(default_factory=list)

    def start(self, slot: int) -> None:
        """A new member under the transactional id of a slot."""
        protocol = self.protocol if self.loop.in_group else f"assigned:{self._share(slot)}"
        self.begun += 1
        process = f"{self.loop.name}-{slot}-{self.begun}"
        arguments = Arguments(
            bootstrap=self.broker.bootstrap_servers,
            source=f"{self.name}-in",
            target=f"{self.name}-out",
            group=self.name,
            transactional_id=f"{self.name}-{slot}",
            process=process,
            size=self.size,
            protocol=protocol,
        )
        translate = _as_it_is if self.loop.tells else _nothing
        command = self.loop.command(arguments)
        self.members[slot] = HistoryProgram(process, command, self.history, self.loop.environment, translate)
        self.deeds.append(f"start {slot}")

    def _share(self, slot: int) -> str:
        return ",".join(str(number) for number in range(slot, self.partitions, self.slots))

    def kill(self, slot: int) -> None:
        """SIGKILL, if it has not ended by itself."""
        if slot in self.members:
            self.members.pop(slot).kill()
        self.deeds.append(f"kill {slot}")

    def replace(self, slot: int) -> None:
        """SIGKILL; another takes over the id, and aborts what was open."""
        self.kill(slot)
        self.start(slot)

    def leave(self, slot: int) -> None:
        """SIGTERM: it ends in order, if it has not by itself."""
        if slot not in self.members:
            return
        member = self.members.pop(slot)
        code = member.leave()
        assert code in (*IN_ORDER, *self.loop.gives_up), f"{member.name} ended with {code}:\n{member.errors}"
        self.deeds.append(f"leave {slot}")

    def kill_broker(self, *_: int) -> None:
        """SIGKILL, and start on the same data."""
        self.broker.kill()
        self.broker.start()
        self.deeds.append("kill broker")

    def alive(self) -> None:
        """A member that had to end is replaced; one that ended otherwise has failed."""
        for slot, member in list(self.members.items()):
            if member.code == 0 and self.loop.ends:
                self.members.pop(slot).kill()
                self.deeds.append(f"{slot} is done")
                if not self.members:
                    self.start(slot)
            elif member.code is not None:
                assert member.code in self.loop.gives_up, f"{member.name} ended with {member.code}:\n{member.errors}"
                member.kill()
                self.deeds.append(f"{slot} ended with {member.code}")
                self.start(slot)
                assert self.begun < REPLACED_MAX, f"members end again and again:\n{member.errors}"

    def said(self) -> str:
        """What happened, and what the members complain of."""
        return "\n".join(
            [", ".join(self.deeds), *(f"{member.name}: {member.errors}" for member in self.members.values())]
        )

    def run(self, deeds: Sequence[tuple[Callable[[int], None], int]]) -> None:
        """Feed a part, do a deed, and so on; then all is passed on and read."""
        bootstrap = self.broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        topics = [f"{self.name}-in", f"{self.name}-out"]
        for done in admin.create_topics([NewTopic(topic, self.partitions) for topic in topics]).values():
            done.result(patient(20))
        feeder = Feeder(bootstrap, topics[0], self.partitions, self.history)
        watcher = Watcher(bootstrap, topics[1], self.partitions, self.history)
        try:
            if self.loop.ends:
                feeder.feed(self.records)
                feeder.finish()
            for slot in range(self.slots):
                self.start(slot)
            part = self.records // (len(deeds) + 1)
            for at, (deed, slot) in enumerate(deeds):
                feeder.feed(min(part, self.records - feeder.fed))
                watcher.wait(part * at + part // 2, self.alive, self.said)
                if at == 0:  # none has been killed yet, so it is there
                    self._look_at_protocol(admin)
                deed(slot)
            feeder.feed(self.records - feeder.fed)
            feeder.finish()
            watcher.wait(self.records, self.alive, self.said)
            for slot in list(self.members):
                self.leave(slot)
        finally:
            for member in self.members.values():
                member.kill()
            watcher.close()
        self._read(admin)

    def _look_at_protocol(self, admin: AdminClient) -> None:
        """A client that does not like its protocol may take another protocol without a word."""
        if self.loop.in_group:
            listed = admin.list_consumer_groups().result(patient(20)).valid
            (kind,) = [each.type for each in listed if each.group_id == self.name]
            assert kind.name.lower() == self.protocol, f"the group is a {kind} one, not {self.protocol}"

    def _read(self, admin: AdminClient) -> None:
        bootstrap = self.broker.bootstrap_servers
        self.history.record("copy", "scenario", source=f"{self.name}-in", target=f"{self.name}-out")
        final_state.read_all(bootstrap, f"{self.name}-out", self.partitions, self.history)
        final_state.read_input(bootstrap, f"{self.name}-in", self.partitions, self.history)
        if self.loop.tells:  # which offsets are right is known by the transactions that are reported
            final_state.look_at_offsets(admin, self.name, f"{self.name}-in", self.partitions, self.history)
