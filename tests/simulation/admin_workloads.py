"""Administrators: topics come, go and change, and some who ask hang up before they are answered.

Here: their deeds as the history sees them.
Not here: records and groups.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import busway
from busway.errors import BrokerError, BuswayError
from busway_protocol.errors import ErrorCode
from tests.simulation.history import Deed, Outcome, TopicDeed
from tests.simulation.workloads import Client, ask_end

NAMES: Final = ("churn0", "churn1")
SETTING: Final = "retention.ms"
_FIRST_SETTING: Final = "1000000"
_TOLD: Final = {ErrorCode.TOPIC_ALREADY_EXISTS: True, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: False}


async def administer(client: Client) -> None:
    """Create, change, delete and look at topics that no other client uses."""
    admin: busway.Admin | None = None
    try:
        for _ in range(client.plan.operations):
            await client.pause()
            if admin is None:
                admin = busway.Admin(client.stage.bootstrap, client_id=client.begin_life(), request_timeout_ms=5_000)
                await client.persist(admin.start)
            deed, work = _choose(client, admin)
            if not await _do(client, admin, deed, work):
                admin = None
    finally:
        if admin is not None:
            await admin.stop()


def _choose(client: Client, admin: busway.Admin) -> tuple[TopicDeed, Callable[[], Awaitable[Any]]]:
    name, chance = client.chance.choice(NAMES), client.chance
    kind = chance.choice([Deed.CREATE, Deed.CREATE, Deed.DELETE, Deed.GROW, Deed.CONFIGURE, Deed.LOOK, Deed.LOOK])
    deed = TopicDeed(process=client.process, topic=name, deed=kind)
    match kind:
        case Deed.CREATE:
            deed.partitions, deed.setting = chance.choice([1, 2]), _FIRST_SETTING
            new = busway.NewTopic(name=name, partitions=deed.partitions, configs={SETTING: _FIRST_SETTING})
            return deed, lambda: admin.create_topics([new])
        case Deed.DELETE:
            return deed, lambda: admin.delete_topics([name])
        case Deed.GROW:
            deed.partitions = chance.choice([3, 4])
            return deed, lambda: admin.create_partitions({name: deed.partitions})
        case Deed.CONFIGURE:
            deed.setting = str(chance.randrange(2_000_000, 9_000_000))
            return deed, lambda: admin.alter_configs(name, {SETTING: deed.setting})
        case _:
            return deed, lambda: look_at(admin, deed, setting=chance.random() < 0.5)


async def look_at(admin: busway.Admin, deed: TopicDeed, *, setting: bool) -> None:
    """See whether a topic is there, and its partitions or its setting.

    Raises:
        BuswayError: no broker can be asked.
    """
    try:
        if setting:
            deed.setting = (await admin.describe_configs(deed.topic))[SETTING].value
        else:
            deed.partitions = len((await admin.describe_topics([deed.topic]))[deed.topic].partitions)
    except BrokerError as problem:
        if problem.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        deed.exists = False
    else:
        deed.exists = True


async def _do(client: Client, admin: busway.Admin, deed: TopicDeed, work: Callable[[], Awaitable[Any]]) -> bool:
    """Do it and note how it ended; whether the client is still connected."""
    client.history.begin(deed)
    task = asyncio.ensure_future(work())
    if client.chance.random() < client.option("hangs_up", 0.0):
        await asyncio.wait([task], timeout=client.chance.uniform(0, client.option("patience_ms", 20) / 1000))
        if not task.done():
            admin._cluster.abort()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, BuswayError):
                await task
            client.history.end(deed, Outcome.INFO, "hung up")
            return False
    try:
        await task
    except BrokerError as problem:
        deed.exists = _TOLD.get(problem.code)
        certain = problem.code in _TOLD or problem.code in {ErrorCode.INVALID_PARTITIONS}
        client.history.end(deed, Outcome.FAIL if certain else Outcome.INFO, problem.code.name)
    except BuswayError as problem:
        client.history.end(deed, Outcome.INFO, problem)
    else:
        client.history.end(deed)
    return True


async def tune(client: Client) -> None:
    """Have a topic trade safety for speed and back; what its readers could see before stays in sight."""
    admin = busway.Admin(client.stage.bootstrap, client_id=client.begin_life(), request_timeout_ms=5_000)
    consumer = busway.Consumer(bootstrap_servers=client.stage.bootstrap, request_timeout_ms=5_000)
    await client.persist(admin.start)
    await client.persist(consumer.start)
    try:
        for number in range(client.plan.operations):
            await client.pause()
            partition = client.partition()
            await ask_end(client, consumer, partition)
            with contextlib.suppress(BuswayError):
                await admin.alter_configs(client.plan.topic, {"durability": ("flush", "os")[number % 2]})
            await ask_end(client, consumer, partition)
    finally:
        await consumer.stop()
        await admin.stop()
