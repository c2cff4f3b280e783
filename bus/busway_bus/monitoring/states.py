"""Values of `BrokerState`, as in Kafka."""

from typing import Final

LOADING: Final = 1
"""Kafka's STARTING."""
RUNNING: Final = 3
STOPPING: Final = 7
"""Kafka's SHUTTING_DOWN."""
