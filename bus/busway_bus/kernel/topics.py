"""The names of the topics that the broker keeps for itself.

What lives here: names, and which topics clients may not write to. What does not: their settings, and who makes them.
"""

from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
"""What consumer groups are and how far they have read."""

TRANSACTIONS_TOPIC: Final = "__transaction_state"
"""What becomes of transactions. A client that creates it gets the broker's settings."""

SHARE_STATE_TOPIC: Final = "__share_group_state"
"""How far share groups are with each record. Created likewise."""

OWN: Final = frozenset({TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})
"""Topics that clients neither grow nor delete."""

INTERNAL: Final = OWN | {OFFSETS_TOPIC}
"""Topics that clients are told are internal, and that the broker alone writes to."""
