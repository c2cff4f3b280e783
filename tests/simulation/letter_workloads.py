"""Dead letters of share groups (KIP-1191): their topics, and reading them.

Here: which group has them, raising the level that they need, forbidding and allowing them, all that a group has given
up.
Not here: who gives records up (`share_workloads`), what the letters must be (`letter_checks`).
"""

from collections.abc import Iterable
from typing import Final

import busway
from busway.errors import BuswayError
from busway_bus.metadata.features import SHARE_VERSION, SHARE_VERSION_WITH_DEAD_LETTERS
from busway_bus.share.dead_letters import ALLOWED, TOPIC_NAME
from tests.simulation.history import Outcome, Partition
from tests.simulation.plan import ClientPlan
from tests.simulation.share_history import DeadLetter, ShareLetters
from tests.simulation.workloads import Client

_WAIT_MS: Final = 500


def letters_of(client: ClientPlan) -> str:
    """The topic of its group's dead letters, "" where it has none."""
    return str(client.options.get("settings", {}).get(TOPIC_NAME, ""))


async def prepare_letters(admin: busway.Admin, groups: Iterable[ClientPlan]) -> None:
    """Raise the level that groups with dead letters need, and make their topics, but for those that the broker is to make.

    Args:
        groups: one member of each.
    """
    wanted = [client for client in groups if letters_of(client)]
    if wanted:
        await admin.update_features({SHARE_VERSION: SHARE_VERSION_WITH_DEAD_LETTERS})
    topics = [
        busway.NewTopic(
            name=letters_of(client),
            partitions=client.options["letter_partitions"],
            configs={ALLOWED: "true", **client.options["letter_configs"]},
        )
        for client in wanted
        if client.options["letter_partitions"]
    ]
    if topics:
        await admin.create_topics(topics)


async def refuse(admin: busway.Admin, topic: str) -> None:
    """Let it take no dead letters."""
    if topic in await admin.describe_topics():
        await admin.alter_configs(topic, {ALLOWED: "false"})


async def allow(admin: busway.Admin, topic: str) -> None:
    """Let it take dead letters again."""
    if topic in await admin.describe_topics():
        await admin.alter_configs(topic, {ALLOWED: "true"})


async def read_letters(client: Client, admin: busway.Admin, group: str, topic: str, *, last: bool = False) -> None:
    """Note all dead letters of a group that are on disk now.

    Args:
        last: nothing goes wrong any more: a topic that is not there has none.

    Raises:
        BuswayError: no broker says.
    """
    operation = client.history.begin(ShareLetters(process=client.process, group=group))
    consumer = busway.Consumer(
        bootstrap_servers=client.stage.bootstrap, client_id=client.process, auto_offset_reset="earliest"
    )
    try:
        topics = await admin.describe_topics()
        if topic not in topics and not last:
            client.history.end(operation, Outcome.INFO, "not there")
            return
        await consumer.start()
        count = len(topics[topic].partitions) if topic in topics else 0
        for key in [busway.TopicPartition(topic, number) for number in range(count)]:
            operation.letters = [*operation.letters, *await _all(consumer, key)]
        client.history.end(operation)
    except BuswayError as problem:
        client.history.end(operation, Outcome.INFO, problem)
        raise
    finally:
        await consumer.stop()


async def _all(consumer: busway.Consumer, key: busway.TopicPartition) -> list[DeadLetter]:
    end = (await consumer.end_offsets([key]))[key]
    await consumer.assign([key])
    letters: list[DeadLetter] = []
    while await consumer.position(key) < end:
        for records in (await consumer.getmany(timeout_ms=_WAIT_MS)).values():
            letters += map(_letter, records)
    return letters


def _letter(record: busway.Record) -> DeadLetter:
    headers = {name.removeprefix("__dlq.errors."): (value or b"").decode() for name, value in record.headers}
    place = Partition(headers["topic"], int(headers["partition"]))
    return DeadLetter(place, int(headers["offset"]), int(headers["delivery.count"]), record.value)
