"""The metadata log on the simulated disk: what was asked for is carried out whole or not at all, and is there after a restart."""

import asyncio
import itertools
import logging
from dataclasses import replace
from uuid import UUID

import pytest

from busway_bus.controller.brokers import RegisterBroker
from busway_bus.controller.controller import Surroundings
from busway_bus.controller.producer_ids import AllocateProducerIds
from busway_bus.controller.topics import NewTopic, PartitionCount, create, delete, grow
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.decision import Decision
from busway_bus.log.flusher import Flusher
from busway_bus.log.meta_properties import WrongDirectory
from busway_bus.log.partition_log import CorruptLog
from busway_bus.log.store import LogStore
from busway_bus.metadata.features import levels_of_new_clusters
from busway_bus.metadata.image import BrokerImage
from busway_bus.metadata.records import PartitionRecord, RemoveTopicRecord, TopicRecord, to_bytes
from busway_bus.metadata.sorted_map import SortedMap
from busway_bus.quorum import metadata_log
from busway_bus.quorum.metadata_log import MetadataLog
from busway_bus.testing.sim_files import SimFiles
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.batch import read_header
from busway_protocol.records.builder import BatchBuilder

LOG = f"__cluster_metadata-0/{0:020d}.log"
T, U = UUID(int=0x77), UUID(int=0x88)


class HeldFlusher(Flusher):
    """A flusher whose answers wait for `gate`."""

    def __init__(self):
        super().__init__()
        self.gate = asyncio.Event()
        self.asked = asyncio.Event()
        self.held = []

    def flush(self, log, flushed):
        real = asyncio.get_running_loop().create_future()
        super().flush(log, real.set_result)

        async def held():
            self.asked.set()
            await self.gate.wait()
            flushed(await real)

        self.held.append(asyncio.ensure_future(held()))


def start(files: SimFiles, flusher: Flusher | None = None) -> MetadataLog:
    """The metadata log on that disk, as a start after a kill finds it."""
    numbers = itertools.count(100)
    store = LogStore(files, node_id=1, new_ids=lambda: UUID(int=next(numbers)))
    return MetadataLog(store, flusher or Flusher())


BROKER = BrokerImage(
    node_id=1,
    epoch=0,
    incarnation=UUID(int=5),
    addresses={},
    rack=None,
    fenced=False,
    directories=(UUID(int=101),),
    features={},
)


def creation(name="t", topic_id=T, partitions=2):
    """The command that creates a topic on the one broker."""
    topic = NewTopic(name=name, partitions=partitions, configs={"retention.ms": "7"})
    surroundings = Surroundings(config=BrokerConfig.defaults(), new_id=lambda: topic_id, next_offset=0)
    return lambda image: create(with_broker(image), topic, surroundings)


def with_broker(image):
    """The image as if the broker had registered."""
    return replace(image, brokers=SortedMap({1: BROKER}))


def raw(*records):
    """The command that writes records, whatever they say."""
    return lambda _: Decision(records=records, reply=None)


class Watcher:
    """A follower that records its notifications, and may be made to wait."""

    def __init__(self):
        self.notified = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.entered = asyncio.Event()

    async def __call__(self, image, delta):
        self.entered.set()
        await self.gate.wait()
        self.notified.append((image, list(delta.changed), dict(delta.removed), set(delta.configured)))


async def test_commands_are_durable_followed_and_there_after_a_restart():
    """Create, grow and delete; each follower learns the new image and what differs."""
    files, watcher = SimFiles(), Watcher()
    node = start(files)
    await node.subscribe(watcher)
    await node.format()
    made = await node.run(creation())
    assert (made.name, len(made.partitions)) == ("t", 2)
    surroundings = Surroundings(config=BrokerConfig.defaults(), new_id=lambda: T, next_offset=0)
    await node.run(lambda image: grow(with_broker(image), PartitionCount(name="t", count=3), surroundings))
    await node.run(creation("u", U))
    await node.run(lambda image: delete(image, "u"))
    assert [entry[1:] for entry in watcher.notified[1:]] == [
        (["t"], {}, {"t"}),
        (["t"], {}, set()),
        (["u"], {}, {"u"}),
        ([], {U: "u"}, set()),
    ]
    files.cut_power(lambda limit: 0)
    again = start(files)
    assert again.image == node.image == watcher.notified[-1][0]
    assert len(again.image.topics["t"].partitions) == 3


POINTS = ["queued", "flushing", "following"]


@pytest.mark.parametrize("point", POINTS)
async def test_what_was_asked_is_carried_out_although_the_asker_is_cancelled(point):
    """Cancelled while it waits for its turn, for the disk or for the followers: live image and the next start's are the same."""
    files, watcher, flusher = SimFiles(), Watcher(), HeldFlusher()
    node = start(files, flusher)
    await node.subscribe(watcher)
    flusher.gate.set()
    await node.format()
    await node.run(creation())
    watcher.notified.clear()
    first = None
    if point == "queued":
        flusher.gate.clear()
        first = asyncio.ensure_future(node.run(creation("u", U)))
    elif point == "flushing":
        flusher.gate.clear()
    else:
        watcher.gate.clear()
    flusher.asked.clear()
    watcher.entered.clear()
    asker = asyncio.ensure_future(node.run(lambda image: delete(image, "t")))
    await (watcher.entered if point == "following" else flusher.asked).wait()
    asker.cancel()
    await asyncio.wait([asker])
    assert asker.cancelled()
    flusher.gate.set()
    watcher.gate.set()
    await node.drain()
    if first is not None:
        await first
    assert "t" not in node.image.topics
    assert watcher.notified[-1][0] is node.image
    assert start(files).image == node.image
    with pytest.raises(KafkaError) as again:
        await node.run(lambda image: delete(image, "t"))
    assert again.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert start(files).image == node.image


async def test_two_deletions_of_one_topic_in_the_log_do_not_keep_a_node_from_starting(caplog):
    """An older broker wrote the second when a client hung up and asked again; it is named in the log and loses nothing."""
    files = SimFiles()
    node = start(files)
    await node.run(creation())
    await node.run(creation("u", U))
    await node.run(raw(RemoveTopicRecord(topic_id=T)))
    await node.run(raw(RemoveTopicRecord(topic_id=T)))
    with caplog.at_level(logging.WARNING):
        again = start(files)
    assert list(again.image.topics) == ["u"]
    assert str(T) in caplog.text


async def test_two_creations_of_one_topic_in_the_log_are_one_topic(caplog):
    """The second id is the one that data was written under; removing the first takes nothing away."""
    files = SimFiles()
    node = start(files)
    await node.run(creation())
    await node.run(raw(TopicRecord(name="t", topic_id=U), part(U)))
    await node.run(raw(RemoveTopicRecord(topic_id=T)))
    with caplog.at_level(logging.WARNING):
        again = start(files)
    assert again.image.topics["t"].topic_id == U
    assert again.image.names == {U: "t"}
    assert "created twice" in caplog.text


def part(topic_id, number=0):
    """A partition of a topic."""
    return PartitionRecord(
        partition_id=number, topic_id=topic_id, replicas=[1], isr=[1], removing_replicas=[], adding_replicas=[]
    )


@pytest.mark.parametrize("record", [part(T), part(UUID(int=9))], ids=["gap", "unknown-topic"])
async def test_a_record_that_cannot_follow_is_a_damaged_log_with_its_place_and_a_remedy(record, monkeypatch):
    """Not a KeyError: the text names directory, offset and what to do. And such a record is never written by us."""
    files = SimFiles()
    node = start(files)
    await node.run(creation())
    record.partition_id += 7
    end = node._log.end_offset
    with pytest.raises(ValueError, match="partition 7"):
        await node.run(raw(record))
    assert node._log.end_offset == end

    monkeypatch.setattr(metadata_log.Delta, "apply", lambda *_: None)
    await node.run(raw(record))
    monkeypatch.undo()
    with pytest.raises(CorruptLog, match=rf"__cluster_metadata-0 is damaged at offset {end}: .*restore .* from a copy"):
        start(files)


async def test_every_flipped_bit_is_found_after_a_clean_stop_too():
    """A bit in a topic's name would make a topic of another name, and its old directory a stranger's."""
    files = SimFiles()
    numbers = itertools.count(100)
    store = LogStore(files, node_id=1, new_ids=lambda: UUID(int=next(numbers)))
    node = MetadataLog(store, Flusher())
    await node.run(creation("pp"))
    image = node.image
    store.close()
    whole, mark = files.read_bytes(LOG), files.read_bytes(".kafka_cleanshutdown")
    problems = []
    for bit in range(0, len(whole) * 8, 5):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        files.open(LOG).truncate(0)
        files.open(LOG).append([damaged])
        files.replace(".kafka_cleanshutdown", mark)
        try:
            assert start(files).image == image, bit
        except CorruptLog as problem:
            problems.append(str(problem))
    assert len(problems) > len(whole)
    assert all("restore __cluster_metadata-0 from a copy" in text for text in problems)
    assert not any("accept the loss" in text for text in problems)


@pytest.mark.parametrize("number", [28, 5], ids=["full", "failing"])
async def test_a_full_disk_refuses_and_the_node_goes_on_when_there_is_room(number, monkeypatch):
    """KAFKA_STORAGE_ERROR in words; nothing changed, neither live nor for the next start."""
    files = SimFiles()
    node = start(files)
    await node.run(creation())
    before = node.image
    monkeypatch.setattr(files, "check_disk", lambda: (_ for _ in ()).throw(OSError(number, "no space left")))
    with pytest.raises(KafkaError, match="cannot write the metadata log: no space left") as refused:
        await node.run(creation("u", U))
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    monkeypatch.undo()
    assert node.image is before
    assert start(files).image == before
    await node.run(creation("u", U))
    assert "u" in start(files).image.topics


async def test_a_disk_that_failed_takes_no_more_commands():
    """A failed sync is final: the node is on its way down."""
    files = SimFiles()
    node = start(files)
    await node.format()
    files.failing_syncs = True
    with pytest.raises(KafkaError, match="the disk failed"):
        await node.run(creation())
    files.failing_syncs = False
    end = node._log.end_offset
    with pytest.raises(KafkaError, match="the disk failed"):
        await node.run(creation())
    assert node._log.end_offset == end


async def test_a_follower_that_fails_does_not_undo_what_is_on_disk(caplog):
    """The others are notified, the image is the new one, and the client gets the reply."""
    files, watcher = SimFiles(), Watcher()
    node = start(files)

    async def broken(image, delta):
        if delta.changed:
            raise RuntimeError("planted")

    await node.subscribe(broken)
    await node.subscribe(watcher)
    assert (await node.run(creation())).name == "t"
    assert "t" in node.image.topics
    assert watcher.notified[-1][0] is node.image
    assert "planted" in caplog.text


async def test_too_many_commands_are_refused(monkeypatch):
    """They outlive the connections that sent them, so they are counted."""
    monkeypatch.setattr(metadata_log, "COMMANDS_MAX", 2)
    files, flusher = SimFiles(), HeldFlusher()
    node = start(files, flusher)
    asked = [asyncio.ensure_future(node.run(creation(f"t{number}", UUID(int=number + 50)))) for number in range(4)]
    done, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    assert {task.exception().code for task in done} == {ErrorCode.REQUEST_TIMED_OUT}
    flusher.gate.set()
    await asyncio.wait(waiting)
    assert len(node.image.topics) == len(waiting) == 2


async def test_what_touches_no_topic_does_not_wait_for_topics_that_are_being_made():
    """A thousand partitions take a second to make; a producer's id is answered meanwhile."""
    files, watcher = SimFiles(), Watcher()
    node = start(files)
    surroundings = Surroundings(config=BrokerConfig.defaults(), new_id=lambda: U, next_offset=0)
    this = RegisterBroker(node_id=1, incarnation=U, endpoints=(), rack=None, directories=(), features=())
    epoch = await node.run(lambda image: this.decide(image, surroundings))
    await node.subscribe(watcher)
    watcher.gate.clear()
    watcher.entered.clear()
    slow = asyncio.ensure_future(node.run(creation()))
    await watcher.entered.wait()
    block = AllocateProducerIds(broker_id=1, broker_epoch=epoch)
    assert await node.run(lambda image: block.decide(image, surroundings)) == range(1000)
    assert not slow.done()
    assert "t" not in node.image.topics
    assert node.image.next_producer_id == 0
    watcher.gate.set()
    await node.drain()
    assert slow.result().name == "t"
    assert (list(node.image.topics), node.image.next_producer_id) == (["t"], 1000)
    assert start(files).image == node.image


async def test_it_goes_on_deciding_while_the_disk_is_waited_for_and_tells_in_order():
    """Each decision knows of those before it; what follows from one that is not durable yet is not answered either."""
    files, watcher, flusher = SimFiles(), Watcher(), HeldFlusher()
    node = start(files, flusher)
    await node.subscribe(watcher)
    commands = [creation(), creation(), creation("u", U), lambda image: delete(image, "t")]
    asked = [asyncio.ensure_future(node.run(command)) for command in commands]
    await flusher.asked.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    assert node._writer is None
    assert len(node._newest.topics) == 1
    assert not node.image.topics
    assert not any(task.done() for task in asked)
    flusher.gate.set()
    await node.drain()
    assert asked[1].exception().code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert [task.exception() for task in (asked[0], asked[2], asked[3])] == [None] * 3
    assert [entry[1:3] for entry in watcher.notified[1:]] == [(["t"], {}), (["u"], {}), ([], {T: "t"})]
    assert node.image is watcher.notified[-1][0]
    assert start(files).image == node.image


async def test_what_was_decided_on_what_never_became_durable_is_refused():
    """The disk fails under the first: the second, which was refused because of the first, does not get that answer."""
    files, flusher = SimFiles(), HeldFlusher()
    node = start(files, flusher)
    files.failing_syncs = True
    asked = [asyncio.ensure_future(node.run(command)) for command in (creation(), creation(), creation("u", U))]
    await flusher.asked.wait()
    flusher.gate.set()
    await node.drain()
    assert {task.exception().code for task in asked} == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert not node.image.topics


async def test_a_refusal_is_told_when_the_image_shows_what_it_rests_on():
    """A topic that is being opened is there already for a second request: a client with that answer finds it in the image."""
    node, watcher = start(SimFiles()), Watcher()
    await node.subscribe(watcher)
    await node.format()
    watcher.gate.clear()
    watcher.entered.clear()
    first = asyncio.ensure_future(node.run(creation()))
    await watcher.entered.wait()
    second = asyncio.ensure_future(node.run(creation()))
    await asyncio.sleep(0)  # it is asked
    while node._writer is not None or node._undecided:
        await asyncio.sleep(0)
    await asyncio.sleep(0)  # an answer would have come by now
    assert not second.done() or "t" in node.image.topics
    watcher.gate.set()
    with pytest.raises(KafkaError) as refusal:
        await second
    assert refusal.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert "t" in node.image.topics
    await first


class Given:
    """A writer that does as the test says."""

    leading, leader_id = True, 1

    def __init__(self, log):
        self.log = log
        self.end_offset = log.end_offset
        self.on_propose = lambda: None

    def begin(self, owner):
        self.owner = owner

    def propose(self, batch):
        self.end_offset += read_header(batch).records_count
        self.on_propose()
        return self.end_offset

    def snapshotted(self, start_offset):
        """No reader lives in the same process."""

    def check_disk(self):
        """It works."""


def led(files=None):
    """A metadata log whose writer is the test's; it leads from the start on."""
    numbers = itertools.count(100)
    store = LogStore(files or SimFiles(), node_id=1, new_ids=lambda: UUID(int=next(numbers)))
    node = MetadataLog(store, Flusher(), writer=lambda log, _: Given(log))
    node.writer.begin(node)
    node.leads(0, 0, 7)
    return node, node.writer


async def test_a_new_cluster_has_one_minimum_of_in_sync_replicas():
    """Written with the levels of the features; a log with records keeps what it has."""
    files, numbers = SimFiles(), itertools.count(100)
    for min_isr in ("2", "3"):
        store = LogStore(files, node_id=1, new_ids=lambda: UUID(int=next(numbers)))
        node = MetadataLog(store, Flusher(), min_isr=min_isr)
        await node.format()
        assert node.image.broker_configs("") == {"min.insync.replicas": "2"}
        assert node.image.features == levels_of_new_clusters()
        await node.drain()
        store.close(clean=True)


async def turns(count=10):
    """Let others run."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_lost_leadership_throws_the_undecided_away():
    """Waiting clients get NOT_CONTROLLER, refusals too, and what comes to be committed there later is another's."""
    node, writer = led()
    asked = [asyncio.ensure_future(node.run(command)) for command in (creation(), creation(), creation("u", U))]
    await turns()
    assert not any(task.done() for task in asked)
    writer.leading, writer.leader_id = False, 2
    node.lost()
    await turns()
    assert {task.exception().code for task in asked} == {ErrorCode.NOT_CONTROLLER}
    assert "node 2 is" in str(asked[0].exception())
    assert not node._undecided
    with pytest.raises(KafkaError, match="not the active controller"):
        await node.run(creation())


async def test_a_leadership_that_ends_while_something_is_proposed_leaves_nothing_behind():
    """The step that takes the proposal in may be the one that finds that no follower fetches any more (what was held then came out as done)."""
    node, writer = led()
    writer.on_propose = node.lost
    with pytest.raises(KafkaError) as refused:
        await node.run(creation())
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert not node._undecided
    assert node._newest is None


async def test_a_new_leader_decides_when_its_image_has_all_that_is_before_its_epoch():
    """What others wrote may not be committed yet: a decision without it would undo it."""
    node, writer = led()
    node.lost()
    builder = BatchBuilder()
    for record in (TopicRecord(name="t", topic_id=T), part(T)):
        builder.append(0, None, to_bytes(record))
    node.log.append_own(builder.build(), leader_epoch=8, now_ms=0)
    writer.end_offset = 3
    node.leads(2, 3, 9)
    asked = asyncio.ensure_future(node.run(creation()))
    await turns()
    assert (node._writer, writer.end_offset, asked.done()) == (None, 3, False)
    node.committed(3)
    await turns()
    assert asked.exception().code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert list(node.image.topics) == ["t"]
    assert node.image_offset == 2


async def test_what_could_not_be_written_takes_along_what_was_decided_because_of_it():
    """The next decision does not know of it."""
    node, writer = led()
    first = asyncio.ensure_future(node.run(creation()))
    second = asyncio.ensure_future(node.run(creation("u", U)))
    third = asyncio.ensure_future(node.run(creation("u", U)))
    await turns()
    offset = node._undecided[1].change.first_offset
    node.withdrawn(offset, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "full"))
    writer.end_offset = offset
    await turns()
    assert {task.exception().code for task in (second, third)} == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert not first.done()
    fourth = asyncio.ensure_future(node.run(creation("u", U)))
    await turns()
    node.committed(writer.end_offset)
    await turns()
    assert [task.result().name for task in (first, fourth)] == ["t", "u"]
    assert list(node.image.topics) == ["t", "u"]


async def test_a_broker_does_not_take_what_several_voters_wrote_for_its_own():
    """Not all that is in such a log was agreed on."""
    files = SimFiles()
    await start(files).format()
    files.replace("__cluster_metadata-0/quorum-state", b"{}")
    with pytest.raises(WrongDirectory, match=r"process\.roles=controller"):
        start(files)


async def test_the_image_waits_while_the_log_is_truncated(monkeypatch: pytest.MonkeyPatch):
    """The truncation is in another thread: what is read beside it may be of any length."""
    node = start(SimFiles())
    read, busy = node.log.read, []

    def noted(*args, **options):
        busy.append(node.log.busy)
        return read(*args, **options)

    monkeypatch.setattr(node.log, "read", noted)
    builder = BatchBuilder()
    builder.append(0, None, to_bytes(TopicRecord(name="t", topic_id=T)))
    node.log.append_own(builder.build(), leader_epoch=0, now_ms=0)
    node.log.busy = True
    node.committed(node.log.end_offset)
    await node.drain()
    assert (busy, [*node.image.topics]) == ([], [])
    node.log.busy = False
    node.committed(node.log.end_offset)
    await node.drain()
    assert (busy, [*node.image.topics]) == ([False], ["t"])
