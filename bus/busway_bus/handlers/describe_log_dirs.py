"""DescribeLogDirs (key 35, versions 1-5): the data directory, with each log's size (KIP-113).

Versions: 2 is flexible, 3 has an error for the whole response, 4 the volume's space (KIP-827), 5 whether it takes new
logs.
Behaviour: sizes are the logs' own counts of their segments; only the volume's space is read from the disk, once, in a
thread. Logs of partitions that do not exist or are offline are omitted.
"""

from collections.abc import Generator, Iterable
from pathlib import Path

from busway_bus.handlers.common.context import Large, RequestContext
from busway_bus.replication.local_partitions import LocalPartitions
from busway_bus.replication.partition import Partition
from busway_bus.scheduling.off_loop import off_loop
from busway_bus.security.operations import Access, Operation, Resource
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
NEEDS = (Access(Operation.DESCRIBE, Resource.CLUSTER),)


async def handle(request: DescribeLogDirsRequest, context: RequestContext) -> Large:
    node = context.node
    total, usable = await off_loop(node.volume)
    return await context.in_slices(_response(request, context, total, usable))


def _response(
    request: DescribeLogDirsRequest, context: RequestContext, total: int, usable: int
) -> Generator[None, None, DescribeLogDirsResponse]:
    node = context.node
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for partition in _partitions(request, node.replicas.local):
        topics.setdefault(partition.topic, []).append(_described(partition))
        yield
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


def _partitions(request: DescribeLogDirsRequest, local: LocalPartitions) -> Iterable[Partition]:
    if request.topics is None:
        return local
    # As in Kafka, a repeated partition is described once, in the order of the request.
    keys = dict.fromkeys(
        (topic.topic, partition_index) for topic in request.topics for partition_index in topic.partitions
    )
    return [partition for key in keys if (partition := local.get(key)) is not None]


def _described(partition: Partition) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=partition.index,
        partition_size=partition.log.size_bytes,
        offset_lag=max(partition.high_watermark - partition.log.end_offset, 0),
        is_future_key=False,
    )
