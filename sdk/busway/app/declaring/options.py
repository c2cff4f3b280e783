"""Options of an app for its producer and its consumer.

Here: refusing illegal ones, and the app's additions.
Not here: their meaning (`busway.options`).
"""

from collections.abc import Mapping
from typing import Any, Final

from busway.app.model.topic import BadDeclaration
from busway.options import CLASSIC_ONLY, ConsumerOptions, ProducerOptions, options_from

_OWN: Final = frozenset({"enable_auto_commit", "group_id", "auto_offset_reset"})


def check_options(app: str, producer: Mapping[str, Any], consumer: Mapping[str, Any]) -> None:
    """Check client options; `BadDeclaration` if one is unknown, illegal, or reserved for the app."""
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
    """Return options that assign partition n of all topics to one member.

    They fit the group protocol. A coordinator uses the assignor that most members name.
    """
    protocol = consumer.get("group_protocol", "auto")
    if protocol == "consumer" or "group_remote_assignor" in consumer:
        return {"group_remote_assignor": "range"}
    if protocol == "classic" or CLASSIC_ONLY & consumer.keys():
        return {"partition_assignment_strategy": ("range",)}
    return {"group_protocol": "auto", "group_remote_assignor": "range", "partition_assignment_strategy": ("range",)}
