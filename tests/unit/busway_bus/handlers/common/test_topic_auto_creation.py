"""Topics that are made in the background: each once at a time, and none on a node that stops."""

import asyncio

from busway_bus.handlers.common.topic_auto_creation import TopicAutoCreator
from busway_protocol.errors import ErrorCode, KafkaError


class Making:
    """Makes topics when it is let."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.resume = asyncio.Event()

    async def create(self, name: str) -> None:
        """One topic; it is refused where its name says so."""
        self.begun.append(name)
        await self.resume.wait()
        if name == "refused":
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "no such name")


async def settled(creations: TopicAutoCreator) -> None:
    """Until nothing is being made."""
    while creations._worker is not None:
        await asyncio.sleep(0)


async def test_one_after_the_other_each_once() -> None:
    """Who asks again meanwhile changes nothing; one that is refused holds up no other; later it may be asked for again."""
    creations, making = TopicAutoCreator(), Making()
    for name in ("refused", "a", "a", "refused"):
        creations.start(name, making.create)
    await asyncio.sleep(0)
    assert making.begun == ["refused"]
    making.resume.set()
    await settled(creations)
    assert making.begun == ["refused", "a"]
    creations.start("a", making.create)
    await settled(creations)
    assert making.begun == ["refused", "a", "a"]


async def test_a_node_that_stops_makes_what_it_has_begun_and_no_more() -> None:
    """Neither what waited nor what a client asks for while it stops, or afterwards."""
    creations, making = TopicAutoCreator(), Making()
    creations.start("a", making.create)
    creations.start("b", making.create)
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(creations.close())
    await asyncio.sleep(0)
    creations.start("c", making.create)
    assert not closing.done()
    making.resume.set()
    await closing
    creations.start("d", making.create)
    await asyncio.sleep(0)
    assert making.begun == ["a"]


async def test_an_end_in_the_middle_leaves_nothing_behind() -> None:
    """The task that makes topics is cancelled with its event loop; a stop afterwards has nothing to wait for."""
    creations, making = TopicAutoCreator(), Making()
    creations.start("a", making.create)
    await asyncio.sleep(0)
    assert creations._worker is not None
    creations._worker.cancel()
    await settled(creations)
    await creations.close()
