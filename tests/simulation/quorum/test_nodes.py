"""Three whole controllers over the simulated network: they elect, lose and find each other again, and lose nothing that was answered."""

import asyncio
import contextlib
from uuid import UUID

import pytest

from busway.net.connection import Connection
from busway_bus.handlers.for_controllers import api_versions
from busway_bus.log.meta_properties import WrongDirectory
from busway_bus.log.partition_log import CorruptLog
from busway_bus.metadata.snapshot import SnapshotId
from busway_bus.quorum.snapshot_wire import snapshot_request
from busway_bus.quorum.voters import ReplicaKey
from busway_bus.quorum.wire import TOPIC_ID
from busway_bus.testing.simulated_nodes import CONTROLLER_PORT
from busway_bus.testing.world import Crashed, World
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.cluster import ApiVersion
from busway_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from busway_protocol.messages.metadata_snapshots import PartitionSnapshot
from tests.simulation.quorum.nodes import (
    SimController,
    all_have,
    asked,
    carried_out,
    controllers,
    describe,
    leader_of,
)
from tests.support.variants import with_variants


async def started(world: World, count: int = 3) -> list[SimController]:
    """Controllers that run."""
    nodes = controllers(world, count)
    for node in nodes:
        await node.start()
    return nodes


@pytest.mark.slow
def test_they_elect_one_that_decides_and_all_follow_it() -> None:
    """The others refuse by name, and say who leads; the wire tells how far each is."""

    async def workload(world: World) -> None:
        nodes = await started(world)
        leader = await leader_of(world, nodes)
        assert await leader.command("one") == 1
        await all_have(world, nodes, {"one"})
        for node in nodes:
            if node is not leader:
                with pytest.raises(KafkaError, match=f"node {leader.quorum.leader_id} is") as refused:
                    await node.command("two")
                assert refused.value.code is ErrorCode.NOT_CONTROLLER
        client = world.process("client")
        await world.sleep(1)
        (topic,) = (await client.run(describe, f"{leader.name}:{CONTROLLER_PORT}")).topics
        (partition,) = topic.partitions
        assert (partition.error_code, partition.leader_id) == (0, leader.quorum.leader_id)
        assert partition.leader_epoch == leader.quorum.epoch
        assert {voter.replica_id: voter.log_end_offset for voter in partition.current_voters} == dict.fromkeys(
            (1, 2, 3), partition.high_watermark
        )
        other = next(node for node in nodes if node is not leader)
        (topic,) = (await client.run(describe, f"{other.name}:{CONTROLLER_PORT}")).topics
        assert topic.partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert topic.partitions[0].leader_id == leader.quorum.leader_id

    World(seed=1).run(workload)


@pytest.mark.slow
@pytest.mark.parametrize("power", [True, False], ids=["killed", "power-cut"])
def test_a_leader_that_is_gone_is_followed_by_another(power: bool) -> None:
    """It comes back as a follower, cuts what no other node has, and follows."""

    async def workload(world: World) -> None:
        nodes = await started(world)
        first = await carried_out(world, nodes, "one")
        (first.crash if power else first.power_cut)()
        others = [node for node in nodes if node is not first]
        second = await carried_out(world, others, "two")
        assert second.quorum.epoch > 1
        await first.start()
        await all_have(world, nodes, {"one", "two"})
        assert not first.quorum.leading

    World(seed=2).run(workload)


@pytest.mark.slow
def test_all_of_them_lose_power() -> None:
    """What was answered is there when two of them are back."""

    async def workload(world: World) -> None:
        nodes = await started(world)
        for number in range(5):
            await carried_out(world, nodes, f"k{number}")
        for node in nodes:
            node.power_cut()
        for node in nodes[:2]:
            await node.start()
        await carried_out(world, nodes[:2], "more")
        await all_have(world, nodes[:2], {f"k{number}" for number in range(5)} | {"more"})

    World(seed=3).run(workload)


@pytest.mark.slow
def test_a_leader_that_nobody_hears_decides_nothing() -> None:
    """What it was asked is not answered as done; when it hears the others again it follows, and what it alone had is gone."""

    async def workload(world: World) -> None:
        nodes = await started(world)
        first = await carried_out(world, nodes, "one")
        others = [node for node in nodes if node is not first]
        for other in others:
            world.network.silence(first.name, other.name)
            world.network.silence(other.name, first.name)
        alone = asyncio.ensure_future(first.command("alone"))
        await carried_out(world, others, "two")
        with pytest.raises(KafkaError) as refused:
            await alone
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        assert "alone" not in first.settings
        world.network.heal()
        await all_have(world, nodes, {"one", "two"})
        await carried_out(world, nodes, "three")
        await all_have(world, nodes, {"three"})
        assert all("alone" not in node.settings for node in nodes)

    World(seed=4).run(workload)


@pytest.mark.slow
def test_a_leader_that_stops_in_order_is_followed_at_once() -> None:
    """It says so; no node waits for a timeout."""

    async def workload(world: World) -> None:
        nodes = await started(world)
        first = await carried_out(world, nodes, "one")
        await world.sleep(1)
        await first.stop()
        stopped = world.now
        others = [node for node in nodes if node is not first]
        await leader_of(world, others)
        assert world.now - stopped < 1.9  # a fetch timeout, after which it would be missed, is 2 s
        await first.start()
        await carried_out(world, nodes, "two")
        await all_have(world, nodes, {"one", "two"})

    World(seed=5).run(workload)


@pytest.mark.slow
def test_a_full_disk_refuses_and_goes_on_when_there_is_room() -> None:
    """One voter alone; what was refused is not carried out later."""

    async def workload(world: World) -> None:
        (node,) = await started(world, 1)
        await carried_out(world, [node], "one")
        await world.sleep(2)
        epoch = node.quorum.epoch
        node.disk.faults.capacity = node.disk.used()
        for name in ("two", "three"):
            with pytest.raises(KafkaError, match="cannot write the metadata log") as refused:
                await node.command(name)
            assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        node.disk.faults.capacity = None
        await node.command("four")
        assert sorted(node.settings) == ["four", "min.insync.replicas", "one"]
        assert node.quorum.epoch == epoch
        node.power_cut()
        await node.start()
        await all_have(world, [node], {"one", "four"})
        assert sorted(node.settings) == ["four", "min.insync.replicas", "one"]

    World(seed=6).run(workload)


@pytest.mark.slow
def test_a_controller_of_another_cluster_is_refused() -> None:
    """It neither votes nor follows, and disturbs no other node."""

    async def workload(world: World) -> None:
        nodes = controllers(world, 3, ("AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ"))
        for node in nodes:
            await node.start()
        leader = await carried_out(world, nodes[:2], "one")
        epoch = leader.quorum.epoch
        await world.sleep(20)
        assert (leader.leads, leader.quorum.epoch) == (True, epoch)
        assert not nodes[2].settings

    World(seed=7).run(workload)


def test_the_controllers_of_a_cluster_are_formatted_first() -> None:
    """Each of them would make up a cluster of its own; the text has what to write."""

    async def workload(world: World) -> None:
        node = controllers(world)[0]
        node.disk.remove("meta.properties")
        with pytest.raises(
            WrongDirectory, match=r"busway cluster format --config server\.properties --cluster-id .{22}"
        ):
            await node.start()

    World(seed=8).run(workload)


@pytest.mark.slow
def test_voters_of_a_release_without_pre_votes_elect_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """What such a question would be is known here: a node that asks stands at once (KIP-996)."""
    served = [
        ApiVersion(
            api_key=served.api_key,
            min_version=served.min_version,
            max_version=1 if served.api_key == ApiKey.VOTE else served.max_version,
        )
        for served in api_versions._served
    ]
    monkeypatch.setattr(api_versions, "_served", served)

    async def workload(world: World) -> None:
        nodes = await started(world)
        await carried_out(world, nodes, "one")
        await all_have(world, nodes, {"one"})

    World(seed=9).run(workload)


@pytest.mark.slow
def test_an_observer_copies_the_log_and_is_told_of() -> None:
    """A node that does not vote fetches as voters do; what it asks in another epoch, or of another log, is refused."""

    async def fetch(address: str, asked: FetchRequest) -> FetchResponse:
        host, _, port = address.rpartition(":")
        connection = Connection(host, int(port), client_id="observer", timeout_s=5)
        await connection.connect()
        answer: FetchResponse = await connection.request(asked)
        connection.close()
        return answer

    def asking(epoch: int, topic_id: UUID = TOPIC_ID) -> FetchRequest:
        partition = FetchPartition(
            partition=0,
            current_leader_epoch=epoch,
            fetch_offset=0,
            last_fetched_epoch=0,
            partition_max_bytes=1_000_000,
            replica_directory_id=UUID(int=9),
        )
        return FetchRequest(
            replica_state=ReplicaState(replica_id=100),
            max_wait_ms=100,
            min_bytes=0,
            max_bytes=1_000_000,
            topics=[FetchTopic(topic_id=topic_id, partitions=[partition])],
        )

    async def workload(world: World) -> None:
        nodes = await started(world)
        leader = await carried_out(world, nodes, "one")
        client, address, epoch = world.process("observer"), f"{leader.name}:{CONTROLLER_PORT}", leader.quorum.epoch
        (topic,) = (await client.run(fetch, address, asking(epoch))).responses
        records = topic.partitions[0].records
        assert bytes(records or b"") == leader.metadata.log.read(0, 1_000_000, up_to=1_000)
        (topic,) = (await client.run(fetch, address, asking(epoch - 1))).responses
        assert topic.partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert topic.partitions[0].current_leader.leader_id == leader.quorum.leader_id
        assert (await client.run(fetch, address, asking(epoch, UUID(int=5)))).error_code == ErrorCode.INVALID_REQUEST
        (described,) = (await client.run(describe, address)).topics
        assert [observer.replica_id for observer in described.partitions[0].observers] == [100]

    World(seed=10).run(workload)


@pytest.mark.slow
def test_a_snapshot_is_served_in_parts() -> None:
    """The parts are the file; a name that is not there, and a place behind the end, are refused."""

    async def workload(world: World) -> None:
        nodes = controllers(world, 1, metadata_log_max_record_bytes_between_snapshots=1)
        await nodes[0].start()
        leader = await carried_out(world, nodes, "one")
        client, address = world.process("observer"), f"{leader.name}:{CONTROLLER_PORT}"
        me = ReplicaKey(100, UUID(int=9))
        while (latest := leader.quorum.core.log.latest_snapshot) is None:
            await world.sleep(0.01)
        snapshot: SnapshotId = latest

        async def part(position: int, snapshot: SnapshotId = snapshot) -> PartitionSnapshot:
            request = snapshot_request(
                leader.controller.services.cluster_id,
                me,
                leader.quorum.epoch,
                snapshot,
                position=position,
                max_bytes=70,
            )
            (topic,) = (await client.run(asked, address, request)).topics
            (partition,) = topic.partitions
            assert isinstance(partition, PartitionSnapshot)
            return partition

        content = b""
        size = (await part(0)).size
        while len(content) < size:
            content += bytes((await part(len(content))).unaligned_records or b"")  # type: ignore[arg-type]
        assert content == leader.disk.read_bytes(f"__cluster_metadata-0/{snapshot.name}")
        assert (await part(size)).error_code == ErrorCode.POSITION_OUT_OF_RANGE
        assert (await part(0, SnapshotId(10_000, 1))).error_code == ErrorCode.SNAPSHOT_NOT_FOUND
        leader.disk.remove(f"__cluster_metadata-0/{snapshot.name}")
        assert (await part(0)).error_code == ErrorCode.SNAPSHOT_NOT_FOUND

    World(seed=12).run(workload)


def test_a_damaged_election_keeps_a_controller_from_starting() -> None:
    """It could vote twice; the text has the remedy."""

    async def workload(world: World) -> None:
        (node,) = await started(world, 1)
        await carried_out(world, [node], "one")
        await node.stop()
        node.disk.replace("__cluster_metadata-0/quorum-state", b"{")
        with pytest.raises(CorruptLog, match="quorum-state is damaged"):
            await node.start()

    World(seed=11).run(workload)


@pytest.mark.slow
@pytest.mark.parametrize("seed", with_variants(range(6), gate=[0, 1]))
def test_nothing_is_lost_under_faults(seed: int) -> None:
    """Kills, power cuts and silences, one after the other; then all is there, everywhere."""

    async def workload(world: World) -> None:
        nodes = await started(world)
        chance = world.chance("faults")
        answered: set[str] = set()

        async def client(number: int) -> None:
            for count in range(1_000):
                running = [node for node in nodes if node.leads]
                if over.is_set():
                    return
                if not running:
                    await world.sleep(0.02)
                    continue
                with contextlib.suppress(KafkaError, Crashed, TimeoutError):
                    async with asyncio.timeout(3):
                        await chance.choice(running).command(f"k{number}.{count}")
                        answered.add(f"k{number}.{count}")
                await world.sleep(0.02)

        over = asyncio.Event()
        clients = [asyncio.ensure_future(client(number)) for number in range(2)]
        for _ in range(6):
            node = chance.choice(nodes)
            match chance.randrange(4):
                case 0:
                    node.crash()
                case 1:
                    node.power_cut()
                case 2:
                    world.network.silence(node.name, chance.choice(nodes).name)
                case _:
                    world.network.cut(node.name)
            await world.sleep(chance.uniform(0.1, 3))
            if chance.randrange(2):
                world.network.heal()
            for each in nodes:
                if not each.running and chance.randrange(2):
                    await each.start()
        over.set()
        await asyncio.wait(clients)
        world.network.heal()
        for node in nodes:
            if not node.running:
                await node.start()
        await carried_out(world, nodes, "last")
        await all_have(world, nodes, answered | {"last"}, within_s=30)
        assert answered

    World(seed=seed).run(workload)
