"""What is allowed or denied: operations on resources, named and numbered as Kafka's.

Here: the names, and `Access`, what a handler needs.
Not here: who may do what; nothing is checked yet.
"""

from enum import IntEnum
from typing import NamedTuple


class Operation(IntEnum):
    """`AclOperation`."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class Resource(IntEnum):
    """`ResourceType`."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Access(NamedTuple):
    """An operation on a kind of resource. A handler that lists several says in its docstring when it needs which."""

    operation: Operation
    resource: Resource
