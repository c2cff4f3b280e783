"""DescribeLogDirs (key 35, versions 1-5): the data directory, and the size of each log in it (KIP-113).

Versions: 2 is flexible, 3 has an error for the whole answer, 4 the room on the volume (KIP-827), 5 whether it takes new logs.
Behaviour: sizes are those of the segments, as the logs know them; the disk is asked for the room on the volume alone, once, in a thread.
Logs of partitions that do not exist or are offline are left out.
*Not supported*: nothing is left out.
"""

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path

from busway_bus.handlers.context import RequestContext
from busway_bus.log.os_files import volume
from busway_bus.replication.cleaning import off_loop
from busway_bus.replication.partition import Partition
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.partitions import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

API = ApiKey.DESCRIBE_LOG_DIRS
VERSIONS = (1, 5)


async def handle(request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    """Describe the one directory."""
    node = context.node
    total, usable = await off_loop(functools.partial(volume, node.config.data_dir))
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for partition in _wanted(request, {(each.topic, each.number): each for each in node.replicas.local}):
        topics.setdefault(partition.topic, []).append(_described(partition))
    directory = DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=_absolute(node.config.data_dir),
        topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        total_bytes=total,
        usable_bytes=usable,
    )
    return DescribeLogDirsResponse(error_code=ErrorCode.NONE, results=[directory])


def _absolute(directory: str) -> str:
    return str(Path(directory).absolute())


def _wanted(request: DescribeLogDirsRequest, partitions: Mapping[tuple[str, int], Partition]) -> Iterable[Partition]:
    if request.topics is None:
        return partitions.values()
    # A set as in Kafka, that a partition named twice is told once; in the order of the request.
    keys = dict.fromkeys((topic.topic, number) for topic in request.topics for number in topic.partitions)
    return [partitions[key] for key in keys if key in partitions]


def _described(partition: Partition) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=partition.number,
        partition_size=partition.log.size_bytes,
        offset_lag=max(partition.high_watermark - partition.log.end_offset, 0),
        is_future_key=False,
    )
