"""AssignReplicasToDirs requests of a broker (key 73, KIP-858).

Here: telling the controller which replicas are offline, and which are in another directory than before, as after the
broker's disk was replaced; Kafka's `AssignmentsManager`.
Not here: which those are (`local_partitions`), the controller's decision (`controller.directories`).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from busway_bus.kernel.limits import ASSIGNMENTS_AT_ONCE_MAX
from busway_bus.kernel.node_channels import ControllerChannel
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.partitions import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectory,
    AssignReplicasToDirsRequestPartition,
    AssignReplicasToDirsRequestTopic,
    AssignReplicasToDirsResponse,
)

logger = logging.getLogger("busway.replication")

Assignment = tuple[UUID, UUID, int]
"""Directory, topic id, partition index."""
RETRY_S: Final = 1.0
"""Pause after a failed request, in s."""


class DirectoryAssignments:
    """The requests of one broker.

    Args:
        broker_epoch: of this process; -1 while it is not registered, when nothing is sent.
        misplaced: lists replicas whose directory the controller does not know.
    """

    def __init__(
        self,
        node_id: int,
        broker_epoch: Callable[[], int],
        controller: ControllerChannel,
        misplaced: Callable[[], Sequence[Assignment]],
    ) -> None:
        self._node_id, self._broker_epoch = node_id, broker_epoch
        self._controller, self._misplaced = controller, misplaced
        self._due = asyncio.Event()

    def look(self) -> None:
        """Have replicas assigned if any is misplaced. Call it after each image, and after logs were opened."""
        if self._misplaced():
            self._due.set()

    async def run(self) -> None:
        """Send requests when they are due; runs until cancelled. The next image shows what is left."""
        while True:
            await self._due.wait()
            self._due.clear()
            assignments = self._misplaced()
            for at in range(0, len(assignments), ASSIGNMENTS_AT_ONCE_MAX):
                if not await self._send(assignments[at : at + ASSIGNMENTS_AT_ONCE_MAX]):
                    self._due.set()
                    await asyncio.sleep(RETRY_S)
                    break

    async def _send(self, assignments: Sequence[Assignment]) -> bool:
        broker_epoch = self._broker_epoch()
        if broker_epoch < 0:
            return False
        try:
            response: AssignReplicasToDirsResponse = await self._controller.send(
                request_of(assignments, node_id=self._node_id, broker_epoch=broker_epoch)
            )
        except KafkaError as problem:
            logger.warning("the controller does not learn where replicas are, and it is tried again: %s", problem)
            return False
        if response.error_code != ErrorCode.NONE:
            code = ErrorCode(response.error_code).name
            logger.warning("the controller refuses to note where replicas are, and it is tried again: %s", code)
            return False
        return True


def request_of(assignments: Sequence[Assignment], *, node_id: int, broker_epoch: int) -> AssignReplicasToDirsRequest:
    directories: dict[UUID, dict[UUID, list[AssignReplicasToDirsRequestPartition]]] = {}
    for directory, topic_id, index in assignments:
        partitions = directories.setdefault(directory, {}).setdefault(topic_id, [])
        partitions.append(AssignReplicasToDirsRequestPartition(partition_index=index))
    return AssignReplicasToDirsRequest(
        broker_id=node_id,
        broker_epoch=broker_epoch,
        directories=[
            AssignReplicasToDirsRequestDirectory(
                id=directory,
                topics=[
                    AssignReplicasToDirsRequestTopic(topic_id=topic_id, partitions=partitions)
                    for topic_id, partitions in topics.items()
                ],
            )
            for directory, topics in directories.items()
        ],
    )
