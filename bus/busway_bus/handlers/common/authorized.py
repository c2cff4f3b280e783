"""Authorized operations without access control: all of them, as in Kafka.

Here: the bit fields (KIP-430).
Not here: access control, which needs authentication.
"""

from typing import Final

from busway_bus.security.operations import Operation


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


GROUP_OPERATIONS: Final = _bits(
    Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
)
TOPIC_OPERATIONS: Final = GROUP_OPERATIONS | _bits(Operation.WRITE, Operation.CREATE, Operation.ALTER)
CLUSTER_OPERATIONS: Final = _bits(
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
