"""A log line for a service without partitions, naming the members of its group.

Here: one line, once, after the start.
Not here: joining (`busway.consumer`), rebalances (`busway groups explain`).
"""

import asyncio
import logging
from typing import Final

from busway.admin.admin import Admin
from busway.app.service import RunningService
from busway.consumer.consumer import Consumer
from busway.errors import BuswayError
from busway.net.clock import APP_TIME

logger: logging.Logger = logging.getLogger("busway.app")

WAIT_S: Final = 3.0
"""Seconds before the line; a group that waits for no member assigns partitions sooner."""
_NAMED_MAX: Final = 3


async def explain_wait(app: RunningService, consumer: Consumer) -> None:
    await APP_TIME.sleep(WAIT_S)
    if consumer.assignment():
        return
    try:
        async with Admin(app.bootstrap_servers, client_id=app.name, security=app.security) as admin:
            described = await admin.describe_group(app.group_id)
    except BuswayError as problem:
        logger.debug("group %s cannot be described: %s", app.group_id, problem)
        return
    own = consumer.group_metadata().member_id
    others = [member for member in described.members if member.member_id != own]
    if (
        consumer.assignment() or not others or (not own and len(others) == 1)
    ):  # the only one is this member, still joining
        return
    names = [f"{member.member_id} ({member.client_id} on {member.host.lstrip('/')})" for member in others]
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    logger.warning(
        "group %s has assigned nothing to this member for %.0f s; it has %s%s. A member that was killed counts until its session ends, "
        "after 45 s unless session_timeout_ms or the brokers say otherwise; consumer={'group_instance_id': ...} lets a restarted one go "
        "on at once",
        *(app.group_id, WAIT_S, ", ".join(names[:_NAMED_MAX]), more),
    )


async def ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait([task])
