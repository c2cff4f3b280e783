"""The dead-letter topics of share groups (KIP-1191).

Here: the topic and its checks, reading records, durable writes.
Not here: the content (`dead_letter_records`), schedule and retries (`partition_dead_letters`), writes to a leader on
another broker (`remote_dead_letters`).

Kafka archives a record without its dead letter after five attempts, or at once for a wrong setting. Here the letter is
on disk first, unless the group has no dead-letter topic any more.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.limits import DEAD_LETTER_WARNINGS_MAX, DEAD_LETTERS_AT_ONCE_MAX
from busway_bus.kernel.share_state import SharePartitionKey
from busway_bus.log.file_slice import ColdPages, FileSlice
from busway_bus.metadata.group_settings import GroupSettings
from busway_bus.metadata.image import ClusterImage
from busway_bus.replication.manager import InspectionBudget, ReplicaManager
from busway_bus.replication.partition import Partition
from busway_bus.replication.partition_state import ACKS_ALL
from busway_bus.scheduling.off_loop import off_loop
from busway_bus.share.dead_letter_records import Content, Origin, contents_of, first_of, offsets_of, pack
from busway_bus.share.in_flight import Letter
from busway_bus.share.remote_dead_letters import RemoteDeadLetters
from busway_protocol.errors import ErrorCode, KafkaError, ProtocolError
from busway_protocol.machine import Machine
from busway_protocol.records.batch import read_header

logger = logging.getLogger("busway.share")

TOPIC_NAME: Final = "errors.deadletterqueue.topic.name"
COPY: Final = "errors.deadletterqueue.copy.record.enable"
ALLOWED: Final = "errors.deadletterqueue.group.enable"
PREFIX: Final = "errors.deadletterqueue.topic.name.prefix"
AUTO_CREATE: Final = "errors.deadletterqueue.auto.create.topics.enable"


class DeadLetters:
    """Writes dead letters of share groups for partitions led by this node.

    `remote`: for dead-letter partitions that other brokers lead; None where there are none.
    """

    def __init__(
        self,
        config: BrokerConfig,
        replicas: ReplicaManager,
        machine: Machine,
        *,
        image: Callable[[], ClusterImage],
        setting: GroupSettings,
        create_topic: Callable[[str], Awaitable[None]],
        remote: RemoteDeadLetters | None = None,
    ) -> None:
        self._config = config
        self._remote = remote
        self._replicas = replicas
        self._machine = machine
        self._image = image
        self._setting = setting
        self._create_topic = create_topic
        self._semaphore = asyncio.Semaphore(DEAD_LETTERS_AT_ONCE_MAX)
        self._creating = asyncio.Lock()
        self._warnings: dict[str, str] = {}

    async def write(self, key: SharePartitionKey, source: Partition, letters: Sequence[Letter]) -> list[Letter]:
        """Write the first letters, up to one batch; return those on disk.

        All, if the group has no dead-letter topic. KafkaError: none is on disk.
        """
        name: str = self._setting(key.group_id, TOPIC_NAME)
        if not name:
            return list(letters)
        await self._prepare(name)
        async with self._semaphore:
            topic = self._image().topics.get(name)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} was deleted just now")
            number = source.index % len(topic.partitions)
            leader = topic.partitions[number].leader
            remote = None if leader == self._config.node_id else self._remote
            target = self._replicas.find(name, number) if remote is None else None
            max_bytes = self._max_bytes(name) if target is None else target.log.config.max_message_bytes
            contents: dict[int, Content] = {}
            if self._setting(key.group_id, COPY):
                contents, count = await self._contents(source, letters, max_bytes)
                letters = first_of(letters, count)
            origin = Origin(source.topic, source.index, key.group_id)
            packed = pack(letters, contents, origin, wall_ms=self._machine.wall_ms(), max_bytes=max_bytes)
            if packed.cut:
                at = f"{source.topic}-{source.index}@{letters[0].first}"
                text = "the dead letter of %s in %s goes without its key and value: max.message.bytes of %s allows %d bytes"
                logger.warning(text, at, name, name, max_bytes)
            if target is not None:
                written = self._replicas.append_from_client(target, packed.batch, ACKS_ALL, InspectionBudget())
                await self._replicas.kept(target, await written if isinstance(written, asyncio.Task) else written)
            elif remote is not None:
                await remote.append(leader, topic, number, packed.batch)
        return first_of(letters, packed.records)

    def _max_bytes(self, name: str) -> int:
        return int(str(self._config.topic_config(self._image().topic_configs(name))["max.message.bytes"]))

    # Target topic

    async def _prepare(self, name: str) -> None:
        """Check the dead-letter topic; create it where allowed.

        KafkaError: the reason and the remedy.
        """
        problem = self._refusal(name)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, problem)
        if name not in self._image().topics:
            async with self._creating:
                if name not in self._image().topics:
                    await self._create_topic(name)
            problem = self._refusal(name)  # another client may have created it with other settings
            if problem is not None:
                raise KafkaError(ErrorCode.INVALID_CONFIG, problem)

    def _refusal(self, name: str) -> str | None:
        """Return why a topic is refused, in Kafka's order."""
        image, prefix = self._image(), self._config.get(PREFIX) or ""
        if name.startswith("__"):
            return f"{name} is a topic of the broker's own; set {TOPIC_NAME} of the group to another"
        if name in image.topics:
            if (image.topic_configs(name).get(ALLOWED) or "false").strip().lower() != "true":
                return f"topic {name} does not allow it; set {ALLOWED}=true for it"
        elif not self._config.get(AUTO_CREATE):
            return f"there is no topic {name}, and the broker has {AUTO_CREATE}=false; create it with {ALLOWED}=true"
        if not name.startswith(prefix):
            return f"{name} does not begin with {prefix!r}, the broker's {PREFIX}; rename one of them"
        return None

    # Copied records

    async def _contents(
        self, source: Partition, letters: Sequence[Letter], max_bytes: int
    ) -> tuple[dict[int, Content], int]:
        """Read keys and values that fill a batch, and the covered records.

        KafkaError: the disk failed.
        """
        wanted = [offset for offset, _ in offsets_of(letters)]
        contents: dict[int, Content] = {}
        at = size = 0
        while at < len(wanted) and size < max_bytes:
            batch = await self._batch(source, wanted[at])
            if batch is None:
                at += 1
                continue
            header = read_header(batch)
            inside = at
            while inside < len(wanted) and wanted[inside] <= header.last_offset:
                inside += 1
            try:
                taken = await self._replicas.slices.run(contents_of(batch, wanted[at:inside]))
            except ProtocolError as problem:
                source.damaged(problem)
                taken = {}
            contents.update(taken)
            size += sum(len(key or b"") + len(value or b"") for key, value in taken.values())
            at = max(inside, at + 1)
        return contents, at

    async def _batch(self, source: Partition, offset: int) -> bytes | None:
        """Read an offset's batch, or the next; None if deleted or damaged.

        KafkaError: the disk failed.
        """
        try:
            try:
                part = self._slice(source, offset, wait=False)
            except ColdPages as cold:
                await off_loop(cold.warm)
                part = self._slice(source, offset, wait=True)
            return None if part is None else await off_loop(lambda: part.take(len(part)))
        except OSError as problem:
            raise KafkaError(
                source.damaged(problem), f"the records that were given up cannot be read: {problem}"
            ) from problem
        except KafkaError:
            return None  # before the start of the log
        except ProtocolError as problem:
            source.damaged(problem)
            return None

    def _slice(self, source: Partition, offset: int, *, wait: bool) -> FileSlice | None:
        return source.log.slice(offset, 1, up_to=source.high_watermark, wait=wait)

    # Logging

    def failed(self, group_id: str, problem: KafkaError) -> None:
        """Log why a group's dead letters are not written, once per reason."""
        reason = problem.message or problem.code.name
        if self._warnings.get(group_id) == reason:
            return
        if len(self._warnings) >= DEAD_LETTER_WARNINGS_MAX:
            del self._warnings[next(iter(self._warnings))]
        self._warnings[group_id] = reason
        text = "dead letters of share group %s cannot be written, and are tried again; they go nowhere else, and nothing is lost: %s"
        logger.error(text, group_id, reason)

    def worked(self, group_id: str) -> None:
        if self._warnings.pop(group_id, None) is not None:
            logger.warning("dead letters of share group %s are written again", group_id)
