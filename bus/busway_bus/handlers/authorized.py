"""What a client may do, as Kafka tells it where nothing is controlled: every operation that the kind of resource knows.

What lives here: the bits, numbered as `AclOperation`. What does not: access control, which comes with authentication.
"""

from typing import Final

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = (
    1 << number for number in range(3, 13)
)
TOPIC_OPERATIONS: Final = READ | WRITE | CREATE | DELETE | ALTER | DESCRIBE | DESCRIBE_CONFIGS | ALTER_CONFIGS
GROUP_OPERATIONS: Final = READ | DELETE | DESCRIBE | DESCRIBE_CONFIGS | ALTER_CONFIGS
CLUSTER_OPERATIONS: Final = (
    CREATE | ALTER | DESCRIBE | CLUSTER_ACTION | DESCRIBE_CONFIGS | ALTER_CONFIGS | IDEMPOTENT_WRITE
)
