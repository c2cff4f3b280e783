"""Queues of an app under test.

Here: counting unfinished records.
Not here: waiting for them (`bus`).
"""

from busway.admin.admin import Admin
from busway.app.queues.worker import QueueWorker
from busway.types import TopicPartition

_LATEST = -1


async def left_in_queue(admin: Admin, worker: QueueWorker) -> dict[str, int]:
    described = await admin.describe_topics(worker.topics)
    partitions = [TopicPartition(name, info.number) for name in worker.topics for info in described[name].partitions]
    ends = await admin.list_offsets(dict.fromkeys(partitions, _LATEST))
    begun = await admin.list_share_group_offsets(worker.group)
    left = {}
    for partition, end in ends.items():
        at = begun.get(partition)
        lag = end if at is None else end - at.start_offset if at.lag is None else at.lag
        if lag > 0:
            left[f"{partition.topic}-{partition.partition} of {worker.group}"] = lag
    return left
