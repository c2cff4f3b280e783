"""Topics under crashes of whole nodes that take a snapshot at every change: what was answered is so after the next start."""

import asyncio

import pytest

import busway
from busway_bus.testing.world import World

PROPERTIES = {
    "metadata.log.max.record.bytes.between.snapshots": "1",
    "metadata.max.retention.bytes": "0",
    "offsets.topic.num.partitions": "1",
}
ROUNDS = 6


async def change(bootstrap_servers: str, number: int, existing: dict[str, bool]) -> None:
    """Create topics and delete some; `existing` has what was asked, and whether it is so."""
    async with busway.Admin(bootstrap_servers) as admin:
        for name in (f"t{number}.0", f"t{number}.1"):
            existing.pop(name, None)
            await admin.create_topics([busway.NewTopic(name, partitions=2, configs={"retention.ms": "77000"})])
            existing[name] = True
        gone = f"t{number}.1"
        existing.pop(gone)
        await admin.delete_topics([gone])
        existing[gone] = False


async def there(bootstrap_servers: str) -> dict[str, str]:
    """The topics that are there, with the one setting that they were given."""
    async with busway.Admin(bootstrap_servers) as admin:
        return {name: (await admin.describe_configs(name))["retention.ms"].value for name in await admin.list_topics()}


async def churn(world: World) -> None:
    """Changes that are cut off somewhere, a start, and a look, again and again."""
    node = world.node("n1", PROPERTIES)
    existing: dict[str, bool] = {}
    chance = world.chance("churn")
    for number in range(ROUNDS):
        await node.start()
        (node.crash if chance.randrange(2) else node.power_cut)(at_step=chance.randrange(120))
        client = world.process(f"client{number}")
        changes = client.start(change, node.bootstrap_servers, number, existing)
        while node.running and not changes.done():
            await world.sleep(0.05)
        client.crash()
        await asyncio.gather(changes, return_exceptions=True)
        if node.running:
            node.crash()
        await node.start()
        topics = await world.process(f"look{number}").run(there, node.bootstrap_servers)
        for name, present in existing.items():
            assert (name in topics) is present, name
        assert set(topics.values()) <= {"77000"}
        assert not [name for name in node.disk.list(".") if name.endswith("-stray")]
        await node.stop()
        files = node.disk.list("__cluster_metadata-0")
        assert sum(name.endswith(".checkpoint") for name in files) <= 2, files


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_what_was_told_of_topics_is_so_after_crashes(seed: int) -> None:
    """Kills and power cuts at any step on the disk, in snapshots, creations and deletions."""
    World(seed).run(churn)
