"""The cluster's metadata on disk, and the current picture of it.

What lives here: the driver of the controller: decide on the current image, append, wait for the disk, apply, publish. What does
not: any rule about topics or settings (`controller`). One node is its own quorum; a Raft driver will take this module's place.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar
from uuid import UUID

from busway_bus.kernel.decision import Decision
from busway_bus.log.flusher import Flusher
from busway_bus.log.log_config import LogConfig
from busway_bus.log.partition_log import CorruptLog, PartitionLog
from busway_bus.log.store import LogStore
from busway_bus.metadata.image import ClusterImage, apply
from busway_bus.metadata.records import TOPIC, TOPIC_ID_INT, FeatureLevelRecord, from_bytes, to_bytes
from busway_bus.replication.manager import wall_ms
from busway_protocol.errors import ProtocolError
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.record import decode_records

R = TypeVar("R")
METADATA_VERSION: Final = 30
"""metadata.version of Kafka 4.3 (4.3-IV0): what the records in this log follow."""
_KEEP: Final = LogConfig(retention_ms=-1, retention_bytes=-1)


class MetadataLog:
    """The metadata log and the image that its records make.

    Attributes:
        image: the current picture; replaced, never changed.

    Raises:
        CorruptLog: the log is damaged; without it the node knows nothing of its topics.
    """

    def __init__(self, store: LogStore, flusher: Flusher) -> None:
        self._flusher = flusher
        self._lock = asyncio.Lock()
        self._subscribers: list[Callable[[ClusterImage], None]] = []
        self._log: PartitionLog = store.open(TOPIC, 0, UUID(int=TOPIC_ID_INT), _KEEP, wall_ms())
        self.image = ClusterImage()
        try:
            for batch in self._log.batches():
                for record in decode_records(batch):
                    if record.value is not None:
                        self.image = apply(self.image, from_bytes(record.value))
        except ProtocolError as problem:
            raise CorruptLog(f"the metadata log {self._log.directory} is damaged: {problem}") from None

    @property
    def log(self) -> PartitionLog:
        """Where the records are."""
        return self._log

    def subscribe(self, follow: Callable[[ClusterImage], None]) -> None:
        """Call `follow` with every new image, beginning with the current one."""
        self._subscribers.append(follow)
        follow(self.image)

    async def format(self) -> None:
        """Finalize the metadata version in a log that is empty."""
        if "metadata.version" not in self.image.features:
            record = FeatureLevelRecord(name="metadata.version", feature_level=METADATA_VERSION)
            await self.run(lambda _: Decision(records=(record,), reply=None))

    async def run(self, decide: Callable[[ClusterImage], Decision[R]]) -> R:
        """Decide on the current image, make the records durable, apply them, and give the reply.

        Raises:
            KafkaError: what `decide` raises, or KAFKA_STORAGE_ERROR.
        """
        async with self._lock:
            decision = decide(self.image)
            if decision.records:
                builder = BatchBuilder()
                now = wall_ms()
                for record in decision.records:
                    builder.append(now, None, to_bytes(record))
                self._log.append_own(builder.build(), leader_epoch=1, now_ms=now)
                await self._flusher.request(self._log)
                image = self.image
                for record in decision.records:
                    image = apply(image, record)
                self.image = image
                for follow in self._subscribers:
                    follow(image)
            return decision.reply
