"""Options that an app hands on to its producer and its consumer.

What lives here: the refusal of those that they do not take, when the app is made, and what an app adds to them. What does not: what they mean (`busway.options`).
"""

from collections.abc import Mapping
from typing import Any, Final

from busway.app.model.topic import BadDeclaration
from busway.options import CLASSIC_ONLY, ConsumerOptions, ProducerOptions, options_from

_OWN: Final = frozenset({"enable_auto_commit", "group_id", "auto_offset_reset"})


def check_options(app: str, producer: Mapping[str, Any], consumer: Mapping[str, Any]) -> None:
    """Whether the app's producer and consumer will take them.

    Raises:
        BadDeclaration: there is no such option, its value cannot be, or it is the app's own business.
    """
    if "transactional_id" in producer:
        raise BadDeclaration(
            f"app {app}: producer={{'transactional_id': …}} is the app's own work; app.subscribe(…, guarantee=\"exactly_once\") makes transactions"
        )
    if own := _OWN & consumer.keys():
        raise BadDeclaration(
            f"app {app}: consumer={{{', '.join(sorted(own))}: …}} is not for the consumer: commits are the app's own "
            "work, and group_id and auto_offset_reset are arguments of App"
        )
    try:
        options_from(ProducerOptions, producer)
        options_from(ConsumerOptions, consumer)
    except (TypeError, ValueError) as problem:
        raise BadDeclaration(f"app {app}: {problem}") from None


def keeping_together(consumer: Mapping[str, Any]) -> dict[str, Any]:
    """What a consumer is told besides so that partitions of one number are one member's in all topics, in the group protocol it speaks.

    A coordinator that balances the group does so by the assignor that its members name: one of them is enough, beside others that name none.
    """
    protocol = consumer.get("group_protocol", "auto")
    if protocol == "consumer" or "group_remote_assignor" in consumer:
        return {"group_remote_assignor": "range"}
    if protocol == "classic" or CLASSIC_ONLY & consumer.keys():
        return {"partition_assignment_strategy": ("range",)}
    return {"group_protocol": "auto", "group_remote_assignor": "range", "partition_assignment_strategy": ("range",)}
