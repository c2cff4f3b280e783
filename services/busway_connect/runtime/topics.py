"""Topics created for connectors, dead-letter topics among them.

Here: creating missing ones.
Not here: settings (`topic_creation`), the worker's topics (`storage`).
"""

from busway import Admin, BrokerError, NewTopic


async def create_if_missing(admin: Admin, wanted: NewTopic) -> bool:
    """Create a topic; return whether it was missing. Raises `BrokerError`."""
    try:
        await admin.create_topics([wanted])
    except BrokerError as problem:
        if problem.code.name != "TOPIC_ALREADY_EXISTS":
            raise
        return False
    return True
