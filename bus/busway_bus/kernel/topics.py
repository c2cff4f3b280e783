"""The names of the topics that the broker keeps for itself.

What lives here: names, and which topics clients may not write to. What does not: their settings, and who makes them.
"""

from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
"""What consumer groups are and how far they have read."""

TRANSACTIONS_TOPIC: Final = "__transaction_state"
"""What becomes of transactions. The name is kept for it: no client makes a topic of its own there."""

SHARE_STATE_TOPIC: Final = "__share_group_state"
"""How far share groups are with each record. Kept likewise."""

OWN: Final = frozenset({TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})
"""Topics that come with what they are for: clients neither make, grow nor delete them."""

INTERNAL: Final = OWN | {OFFSETS_TOPIC}
"""Topics that clients are told are internal, and that the broker alone writes to."""
