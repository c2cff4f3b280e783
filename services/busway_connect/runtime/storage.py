"""The worker's persistent state: three compacted topics in Kafka Connect's formats.

Here: keys and values, read to the end at start, written through. One worker of a group writes, so memory equals the
topic. A source in transactions writes its offsets with its own producer, and reads them again when its task starts.
Not here: their use (`worker`).

`connect-configs`: Kafka Connect's `connector-NAME`, `target-state-NAME`, `task-NAME-0`, `commit-NAME`, and Busway's
`source-epoch-NAME` (see `exactly_once`), which Kafka Connect skips. `connect-offsets`: `["NAME",{partition}]`.
`connect-status`: `status-connector-NAME`, `status-task-NAME-0`, `status-topic-TOPIC:connector-NAME`.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from busway import Admin, NewTopic, Producer, RecordMetadata, SecurityOptions, read_to_end
from busway_connect.connector import Offset
from busway_connect.runtime.leader import Writer
from busway_connect.runtime.topics import create_if_missing

STATES: Final = ("STARTED", "PAUSED", "STOPPED")


class StorageUnfit(ValueError):
    """An existing storage topic is unusable; the text has its name and a remedy."""


class CompactedTopic:
    """The newest value of each key of a topic, writable.

    Args:
        writer: started; may be shared.
        security: of reading; None is that of the environment, or none.
    """

    def __init__(self, writer: Writer, topic: str, security: SecurityOptions | None = None) -> None:
        self._writer = writer
        self._security = security
        self.topic = topic
        self.values: dict[bytes, Any] = {}
        self._read: dict[int, int] = {}
        self._set_at: dict[bytes, tuple[int, int]] = {}
        """Partition and offset of values written here and not read back yet."""

    async def catch_up(self, bootstrap: str) -> list[bytes]:
        """Read new committed records to the end; return their keys."""
        came = []
        async for record in read_to_end(
            bootstrap,
            self.topic,
            starts=dict(self._read),
            isolation_level="read_committed",
            security=self._security,
        ):
            self._read[record.partition] = record.offset + 1
            if record.key is not None and self._set_at.get(record.key, (0, -1))[1] < record.offset:
                self.note(record.key, _parsed(record.value))
                came.append(record.key)
        self._set_at = {key: at for key, at in self._set_at.items() if at[1] >= self._read.get(at[0], 0)}
        return came

    async def put(self, key: bytes, value: Any) -> None:
        """Write durably; None is a tombstone."""
        await self._writer.send_and_wait(self.topic, None if value is None else encoded(value), key)
        self.note(key, value)

    def wrote(self, key: bytes, value: Any, where: RecordMetadata) -> None:
        """Note a committed write of another producer."""
        self._set_at[key] = (where.partition, where.offset)
        self.note(key, value)

    def note(self, key: bytes, value: Any) -> None:
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value


def encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _parsed(data: bytes | None) -> Any:
    try:
        return None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        return None


async def ensure_compacted(admin: Admin, topic: str, partitions: int, replication_factor: int, *, single: bool) -> None:
    """Create a storage topic, or check the existing one.

    Raises:
        StorageUnfit: not compacted, so records would expire; or several partitions where one is required.
    """
    wanted = NewTopic(
        topic, partitions=partitions, replication_factor=replication_factor, configs={"cleanup.policy": "compact"}
    )
    if await create_if_missing(admin, wanted):
        return
    described = (await admin.describe_topics([topic]))[topic]
    if single and len(described.partitions) != 1:
        raise StorageUnfit(
            f"the topic {topic} (config.storage.topic) has {len(described.partitions)} partitions and needs exactly one, "
            "as its records have one order; name another topic"
        ) from None
    policy = (await admin.describe_configs(topic))["cleanup.policy"].value
    if policy != "compact":
        raise StorageUnfit(
            f"the topic {topic} has cleanup.policy={policy}, so that what the worker keeps there would be deleted; run "
            f"busway topics alter {topic} --config cleanup.policy=compact, or name another topic"
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    config: Mapping[str, str]
    target_state: str


class ConfigStore:
    def __init__(self, topic: CompactedTopic) -> None:
        self._topic = topic

    def connectors(self) -> dict[str, Stored]:
        connectors = {}
        for key, value in self._topic.values.items():
            if key.startswith(b"connector-") and isinstance(value, dict) and isinstance(value.get("properties"), dict):
                name = key[len(b"connector-") :].decode(errors="replace")
                config = {setting: str(text) for setting, text in value["properties"].items() if text is not None}
                connectors[name] = Stored(config=config, target_state=self._target_state(name))
        return connectors

    def _target_state(self, name: str) -> str:
        value = self._value(f"target-state-{name}")
        state = value.get("state.v2") or value.get("state")
        return state if isinstance(state, str) and state in STATES else "STARTED"

    def _value(self, key: str) -> Mapping[str, Any]:
        """Return a key's value; empty for another format, which must not prevent the start."""
        value = self._topic.values.get(key.encode())
        return value if isinstance(value, dict) else {}

    def _number(self, key: str, name: str) -> int:
        number = self._value(key).get(name, 0)
        return number if isinstance(number, int) else 0

    async def put_config(self, name: str, config: Mapping[str, str]) -> None:
        await self._topic.put(f"connector-{name}".encode(), {"properties": dict(config)})

    async def put_tasks(self, name: str, tasks: list[Mapping[str, str]]) -> None:
        for number, config in enumerate(tasks):
            await self._topic.put(f"task-{name}-{number}".encode(), {"properties": dict(config)})
        await self._topic.put(f"commit-{name}".encode(), {"tasks": len(tasks)})

    def tasks(self, name: str) -> int:
        """Return its number of tasks: 0 before the start and while stopped."""
        return self._number(f"commit-{name}", "tasks")

    async def put_target_state(self, name: str, state: str) -> None:
        """Store the target state; older workers get PAUSED for STOPPED (KIP-875)."""
        older = "PAUSED" if state == "STOPPED" else state
        await self._topic.put(f"target-state-{name}".encode(), {"state": older, "state.v2": state})

    async def remove(self, name: str) -> None:
        """Remove a connector, but not its offsets: like in Kafka Connect, its successor continues from them."""
        await self._topic.put(f"connector-{name}".encode(), None)
        await self._topic.put(f"target-state-{name}".encode(), None)
        await self._topic.put(f"commit-{name}".encode(), {"tasks": 0})

    def epoch(self, name: str) -> int:
        """Return how often marks were invalidated, see `raise_epoch`."""
        return self._number(f"source-epoch-{name}", "epoch")

    async def raise_epoch(self, name: str) -> None:
        """Invalidate marks, after changed offsets or a hole of a refused record.

        Counts in memory even if storing fails: distrusting a valid mark duplicates a record, trusting an invalid one
        loses it.
        """
        key, raised = f"source-epoch-{name}".encode(), {"epoch": self.epoch(name) + 1}
        self._topic.values[key] = raised
        await self._topic.put(key, raised)


class Sent(NamedTuple):
    key: bytes
    value: dict[str, Any] | None
    waiter: "asyncio.Future[RecordMetadata]"


class OffsetStore:
    def __init__(self, topic: CompactedTopic) -> None:
        self._topic = topic
        self._keys: dict[tuple[str, str], bytes] = {}
        self._learn(topic.values)

    def _learn(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            parts = _parsed(key)
            if isinstance(parts, list) and len(parts) == 2 and isinstance(parts[1], dict):
                known = (str(parts[0]), _canonical(parts[1]))
                if key in self._topic.values:
                    self._keys[known] = key
                elif self._keys.get(known) == key:
                    del self._keys[known]

    @property
    def topic(self) -> str:
        return self._topic.topic

    async def catch_up(self, bootstrap: str) -> None:
        self._learn(await self._topic.catch_up(bootstrap))

    def __len__(self) -> int:
        return len(self._keys)

    def of(self, connector: str) -> list[tuple[Mapping[str, Any], Offset]]:
        return [
            (json.loads(partition), self._topic.values[key])
            for (name, partition), key in self._keys.items()
            if name == connector and isinstance(self._topic.values.get(key), dict)
        ]

    async def put(self, connector: str, partition: Mapping[str, Any], offset: Offset | None) -> None:
        """Store an offset; None removes it. The key is independent of the partition's member order."""
        key = self._key(connector, partition)
        await self._topic.put(key, None if offset is None else dict(offset))
        self._learn([key])

    def _key(self, connector: str, partition: Mapping[str, Any]) -> bytes:
        return self._keys.get((connector, _canonical(partition)), encoded([connector, dict(partition)]))

    async def send(
        self, producer: Producer, connector: str, partition: Mapping[str, Any], offset: Offset | None
    ) -> "Sent":
        key, value = self._key(connector, partition), None if offset is None else dict(offset)
        waiter = await producer.send(self.topic, None if value is None else encoded(value), key)
        return Sent(key, value, waiter)

    def committed(self, sent: Iterable["Sent"]) -> None:
        for key, value, waiter in sent:
            self._topic.wrote(key, value, waiter.result())
            self._learn([key])


def _canonical(partition: Mapping[str, Any]) -> str:
    return json.dumps(dict(partition), sort_keys=True)


class StatusStore:
    def __init__(self, topic: CompactedTopic, worker_id: str, generation: int) -> None:
        self._topic = topic
        self._worker_id = worker_id
        self._generation = generation

    async def put(self, name: str, task: int | None, state: str, trace: str | None, version: str | None) -> None:
        value = {"state": state, "trace": trace, "worker_id": self._worker_id, "generation": self._generation}
        await self._topic.put(_status_key(name, task), {**value, "version": version})

    async def remove(self, name: str) -> None:
        await self.remove_task(name, 0)
        await self._topic.put(_status_key(name, None), None)
        await self.reset_topics(name)

    async def remove_task(self, name: str, task: int) -> None:
        key = _status_key(name, task)
        if key in self._topic.values:
            await self._topic.put(key, None)

    def topics(self, name: str) -> list[str]:
        end = f":connector-{name}"
        keys = [key.decode(errors="replace") for key in self._topic.values]
        return sorted(key[len("status-topic-") : -len(end)] for key in keys if _is_topic_of(key, end))

    async def add_topic(self, name: str, topic: str, now_ms: int) -> None:
        key = f"status-topic-{topic}:connector-{name}".encode()
        if key not in self._topic.values:
            about = {"name": topic, "connector": name, "task": 0, "discoverTimestamp": now_ms}
            await self._topic.put(key, {"topic": about})

    async def reset_topics(self, name: str) -> None:
        for topic in self.topics(name):
            await self._topic.put(f"status-topic-{topic}:connector-{name}".encode(), None)


def _status_key(name: str, task: int | None) -> bytes:
    return (f"status-connector-{name}" if task is None else f"status-task-{name}-{task}").encode()


def _is_topic_of(key: str, end: str) -> bool:
    # Topic names have no colon: the first one separates the connector's name.
    return key.startswith("status-topic-") and key[key.find(":") :] == end
