"""The images of a broker's parts, which begin later than the metadata log and may be behind it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast
from uuid import UUID

from busway_bus.metadata.delta import Delta
from busway_bus.metadata.image import ClusterImage
from busway_bus.metadata.records import FeatureLevelRecord, RemoveTopicRecord, TopicRecord
from busway_bus.nodes.broker_images import BrokerImages


class Log:
    """A metadata log: publishes as `MetadataImages` does."""

    removed = (UUID(int=99),)

    def __init__(self) -> None:
        self.image, self.image_offset = ClusterImage(), -1
        self._follow: Callable[[ClusterImage, Delta], Awaitable[None]]
        self._watch: Callable[[], None] = lambda: None

    async def subscribe(self, follow: Callable[[ClusterImage, Delta], Awaitable[None]]) -> None:
        self._follow = follow
        await follow(self.image, Delta(self.image))

    def watch(self, watch: Callable[[], None]) -> None:
        self._watch = watch

    async def publish(self, *records: Any, base: ClusterImage | None = None) -> None:
        delta = Delta(self.image if base is None else base)
        for record in records:
            delta.apply(record)
        image = delta.image()
        if not delta.quiet:
            await self._follow(image, delta)
        self.image = image
        self.image_offset += len(records)
        if not delta.quiet:
            self._watch()


class Part:
    """A part of a broker, which takes its time where `gate` is closed."""

    def __init__(self) -> None:
        self.seen: list[tuple[set[str], set[str], set[str]]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def follow(self, image: ClusterImage, delta: Delta) -> None:
        await self.gate.wait()
        self.seen.append((set(image.topics), set(delta.changed), set(delta.removed.values())))


def topic(name: str, number: int) -> TopicRecord:
    return TopicRecord(name=name, topic_id=UUID(int=number))


async def images_of(log: Log) -> BrokerImages:
    images = BrokerImages(cast("Any", log))
    await images.collect()
    return images


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_the_first_image_is_that_of_the_beginning_and_names_all_topics() -> None:
    """Topics that were deleted before are collected for the settling of directories."""
    log, part = Log(), Part()
    images = await images_of(log)
    await log.publish(topic("a", 1), topic("b", 2))
    await log.publish(RemoveTopicRecord(topic_id=UUID(int=1)))
    assert images.removed == {UUID(int=99), UUID(int=1)}
    images.begin()
    await log.publish(topic("c", 3))
    await images.subscribe(part.follow)
    assert part.seen == [({"b"}, {"b"}, set())]
    assert set(images.image.topics) == {"b"}
    images.follow()
    await settled()
    assert part.seen[1:] == [({"b", "c"}, {"c"}, set())]
    assert images.image is log.image


async def test_the_image_is_that_which_all_parts_have_followed() -> None:
    """The log does not wait for them; watchers are called when they are done."""
    log, part = Log(), Part()
    images = await images_of(log)
    images.begin()
    await images.subscribe(part.follow)
    images.follow()
    await settled()
    calls: list[set[str]] = []
    images.watch(lambda: calls.append(set(images.image.topics)))
    part.gate.clear()
    await log.publish(topic("a", 1))
    await log.publish(topic("b", 2))
    await settled()
    assert (set(log.image.topics), set(images.image.topics), images.behind) == ({"a", "b"}, set(), True)
    assert images.image_offset < log.image_offset
    part.gate.set()
    await settled()
    assert (set(images.image.topics), images.behind) == ({"a", "b"}, False)
    assert images.image_offset == log.image_offset
    assert calls == [{"a"}, {"a", "b"}]
    await log.publish(FeatureLevelRecord(name="f", feature_level=1))
    assert images.image.features == {"f": 1}


async def test_a_snapshot_names_what_it_lacks() -> None:
    """A broker that was far behind deletes the topics that are gone."""
    log, part = Log(), Part()
    images = await images_of(log)
    images.begin()
    await images.subscribe(part.follow)
    images.follow()
    await log.publish(topic("a", 1), topic("b", 2))
    await log.publish(topic("b", 2), topic("c", 3), base=ClusterImage())
    await settled()
    assert part.seen[-1] == ({"b", "c"}, {"b", "c"}, {"a"})


async def test_a_wait_for_a_condition_ends_with_the_image_that_has_it() -> None:
    """On the log's image as on that of the parts."""
    log = Log()
    images = await images_of(log)
    waiter = asyncio.ensure_future(images.until(lambda: log.image_offset >= 1))
    await settled()
    await log.publish(topic("a", 1))
    await settled()
    assert not waiter.done()
    await log.publish(topic("b", 2))
    await waiter
