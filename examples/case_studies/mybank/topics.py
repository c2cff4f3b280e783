"""What the service and the bank must say alike of the topics that both declare: the first to start makes them."""

from typing import Final

PARTITIONS: Final = 4
ALERTS: Final = "mybank.alerts"
ALERTS_KEPT_MS: Final = 7 * 24 * 60 * 60 * 1000
"""So long an alert is remembered; a transaction that is captured again within it is not alerted again."""
ALERTS_CONFIGS: Final = {"cleanup.policy": "compact,delete", "retention.ms": str(ALERTS_KEPT_MS)}
