"""Topics that the worker makes.

What lives here: making one that is missing. What does not: what a connector says of its topics (`busway_connect.topic_creation`), the worker's
own topics (`storage`).
"""

from busway import Admin, BrokerError, NewTopic


async def create_if_missing(admin: Admin, wanted: NewTopic) -> bool:
    """Make a topic; whether it was missing.

    Raises:
        BrokerError: it cannot be made.
    """
    try:
        await admin.create_topics([wanted])
    except BrokerError as problem:
        if problem.code.name != "TOPIC_ALREADY_EXISTS":
            raise
        return False
    return True
