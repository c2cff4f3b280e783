"""What the tests of groups beside Apache Kafka ask about committed offsets.

Here: commit, fetch and delete, as scenarios.
Not here: members (`groups_scenarios`), the comparison (`groups_probe`).
"""

from uuid import UUID

from tests.integration.broker.groups_probe import Run

from busway_protocol.messages.groups_classic import (
    DeleteGroupsRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)


async def simple_offsets(run: Run) -> None:
    """Offsets without members: commit, fetch in all versions, what is refused."""
    peer = await run.peer("a", "simple")
    topic = OffsetFetchRequestTopic(name="read", partition_indexes=[0, 1, 9])
    topics = OffsetFetchRequestTopics(name="read", partition_indexes=[0, 1, 9])
    wanted = OffsetFetchRequest(group_id="simple", topics=[topic])
    for moment in ("before", "after"):
        for version in range(1, 8):
            await run.ask(f"fetch v{version} {moment}", wanted, at_most=version)
        for version in (2, 7):
            everything = OffsetFetchRequest(group_id="simple", topics=None)
            await run.ask(f"fetch all v{version} {moment}", everything, at_most=version)
        for version in (8, 9):
            asked = [
                OffsetFetchRequestGroup(group_id="simple", topics=[topics]),
                OffsetFetchRequestGroup(group_id="simple", topics=None),
                OffsetFetchRequestGroup(group_id="none such", topics=[topics]),
            ]
            await run.ask(f"fetch v{version} {moment}", OffsetFetchRequest(groups=asked), at_most=version)
        for version in (2, 5, 6, 9):
            await peer.commit(f"commit v{version}", version)
    await peer.commit("no text", metadata=None)
    await run.ask("fetch", wanted, at_most=7)
    await peer.commit("too much text", metadata="x" * 5_000)
    await peer.commit("no such topic", topic="missing")
    partition = OffsetCommitRequestPartition(partition_index=9, committed_offset=1, committed_metadata="")
    far = OffsetCommitRequestTopic(name="read", partitions=[partition])
    await run.ask("no such partition", OffsetCommitRequest(group_id="simple", member_id="", topics=[far]), at_most=9)
    peer.generation = 4
    await peer.commit("in a generation")
    await peer.commit("in a generation, no such topic", topic="missing")
    peer.generation, peer.member_id = -1, "somebody"
    await peer.commit("as somebody")
    await peer.describe("simple")
    await run.ask("delete", DeleteGroupsRequest(groups_names=["simple", "simple", "none such"]))
    await peer.describe("deleted")
    await run.ask("fetch", wanted, at_most=7)


async def offsets_by_topic_id(run: Run) -> None:
    """Version 10 names topics by id."""
    partition = OffsetCommitRequestPartition(partition_index=1, committed_offset=8, committed_metadata="")
    for label, topic_id in (("known", run.topic_ids["read"]), ("unknown", UUID(int=99))):
        topic = OffsetCommitRequestTopic(topic_id=topic_id, partitions=[partition])
        await run.ask(f"commit {label}", OffsetCommitRequest(group_id="by-id", member_id="", topics=[topic]))
        wanted = OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0, 1])
        group = OffsetFetchRequestGroup(group_id="by-id", topics=[wanted])
        await run.ask(f"fetch {label}", OffsetFetchRequest(groups=[group]))
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="by-id", topics=None)])
    await run.ask("fetch all", everything)
    await run.ask("fetch all v9", everything, at_most=9)
    refused = OffsetCommitRequest(
        group_id="no-such-group",
        member_id="nobody",
        generation_id_or_member_epoch=3,
        topics=[OffsetCommitRequestTopic(topic_id=run.topic_ids["read"], partitions=[partition])],
    )
    await run.ask("commit to no group", refused)


def deletion(group_id: str, *topics: str) -> OffsetDeleteRequest:
    parts = [OffsetDeleteRequestPartition(partition_index=number) for number in (0, 1, 9)]
    return OffsetDeleteRequest(
        group_id=group_id, topics=[OffsetDeleteRequestTopic(name=name, partitions=parts) for name in topics]
    )


async def forget_offsets(run: Run) -> None:
    """OffsetDelete refuses only what the members read."""
    await run.ask("no group", deletion("forget", "read"))
    peer = await run.peer("a", "forget")
    await peer.enter()
    await peer.sync([(peer.member_id, b"x")])
    await peer.commit(topic="read")
    await peer.commit(topic="left")
    await run.ask("one is read", deletion("forget", "read", "left", "missing"))
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="forget", topics=None)])
    await run.ask("what is left", everything, at_most=9)
    await peer.leave()
    await run.ask("nobody reads", deletion("forget", "read"))
    await run.ask("what is left", everything, at_most=9)
    await peer.describe("a group without offsets")
    other = await run.peer("b", "forget-connect")
    await other.enter(protocol_type="connect", protocols=(("default", b"?"),))
    await run.ask("a group of another kind", deletion("forget-connect", "read"))
    odd = await run.peer("c", "forget-odd")
    await odd.enter(protocols=(("range", b"?"),))
    await run.ask("subscriptions that cannot be read", deletion("forget-odd", "read"))
