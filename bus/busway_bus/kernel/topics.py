"""The names of the broker's internal topics.

Here: names, and which topics clients may not write to.
Not here: settings, creation.
"""

from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"

TRANSACTIONS_TOPIC: Final = "__transaction_state"
"""States of transactions. A client that creates it gets the broker's settings."""

SHARE_STATE_TOPIC: Final = "__share_group_state"
"""States of share groups' records. As `TRANSACTIONS_TOPIC` for clients."""

OWN: Final = frozenset({TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})
"""Topics that clients can neither grow nor delete."""

INTERNAL: Final = OWN | {OFFSETS_TOPIC}
"""Topics reported as internal, which only the broker writes to."""
