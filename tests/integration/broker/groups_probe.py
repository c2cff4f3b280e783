"""What the tests of groups beside Apache Kafka ask, and how answers are made comparable.

Here: one member with its own connection, and a log of every answer in which member and topic ids have names.
Not here: what is asked (`test_groups_beside_kafka`).
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from operator import itemgetter
from typing import Any
from uuid import UUID

from tests.support.patience import patient

from busway.net.connection import Connection
from busway_protocol.assignors.consumer_protocol import encode_subscription
from busway_protocol.assignors.subscription import Subscription
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.groups_classic import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from busway_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from busway_protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from busway_protocol.schema import fields_of

TOPICS = ("read", "left")
RANGE = (("range", encode_subscription(Subscription(topics=("read",)))),)
BOTH = (*RANGE, ("roundrobin", encode_subscription(Subscription(topics=("read",)))))
DEADLINE_S = patient(30.0)


class Run:
    """One scenario against one broker; `outcome` is what is compared."""

    def __init__(self, host: str, port: int) -> None:
        self.log: list[tuple[str, Any]] = []
        self._address = (host, port)
        self._names: dict[str, str] = {}
        self._open: list[Connection] = []
        self.topic_ids: dict[str, UUID] = {}

    async def connect(self, client_id: str) -> Connection:
        """A connection that ends with the run."""
        connection = Connection(*self._address, client_id=client_id, timeout_s=DEADLINE_S)
        await connection.connect()
        self._open.append(connection)
        return connection

    async def move(self, address: str) -> None:
        """Send further requests to another listener."""
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self.admin = await self.connect("admin")

    async def prepare(self, group_id: str = "g") -> None:
        """The topics, and the coordinator of `group_id`."""
        self.admin = await self.connect("admin")
        wanted = [
            CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
            for name in TOPICS
        ]
        await self.admin.request(CreateTopicsRequest(topics=wanted, timeout_ms=10_000))
        async with asyncio.timeout(DEADLINE_S):
            while True:
                answer = await self.admin.request(FindCoordinatorRequest(coordinator_keys=[group_id]))
                ready = not answer.coordinators[0].error_code
                seen = await self.admin.request(
                    MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in TOPICS])
                )
                # The coordinator answers NOT_COORDINATOR or LOAD_IN_PROGRESS for a moment after it is found.
                states = await self.admin.request(DescribeGroupsRequest(groups=[group_id]))
                ready &= states.groups[0].error_code in {0, ErrorCode.GROUP_ID_NOT_FOUND}
                if ready and not any(topic.error_code for topic in seen.topics):
                    break
        for topic in seen.topics:
            self.topic_ids[topic.name] = topic.topic_id
            self._names[str(topic.topic_id)] = f"id of {topic.name}"

    def close(self) -> None:
        """End the connections."""
        for connection in self._open:
            connection.close()

    def name(self, identity: str, name: str) -> None:
        """Write `name` for a member id from now on."""
        if identity and identity not in self._names:
            taken = sum(known.rstrip("'") == name for known in self._names.values())
            self._names[identity] = name + "'" * taken

    async def ask(self, label: str, message: Any, *, at_most: int | None = None, via: Connection | None = None) -> Any:
        """Send a request and log its answer."""
        answer = await (via or self.admin).request(message, at_most=at_most)
        self.note(label, answer)
        return answer

    def note(self, label: str, answer: Any) -> None:
        """Log an answer."""
        self.log.append((label, answer))

    def outcome(self) -> list[tuple[str, Any]]:
        """The log in comparable form; answers to requests that were under way together come in any order."""
        return sorted(((label, self._plain(answer)) for label, answer in self.log), key=itemgetter(0))

    def _plain(self, value: Any, field: str = "") -> Any:
        if field == "error_code":
            return ErrorCode(value).name
        if field in {"error_message", "port"}:
            return bool(value)
        if isinstance(value, UUID):
            return self._names.get(str(value), str(value))
        if isinstance(value, str):
            return self._names.get(value, value)
        if isinstance(value, (list, tuple)):
            return sorted((self._plain(item) for item in value), key=repr)
        if hasattr(type(value), "message_info") or hasattr(type(value), "__slots__"):
            return {
                struct_field.name: self._plain(getattr(value, struct_field.name), struct_field.name)
                for struct_field in fields_of(type(value))
                if struct_field.name != "throttle_time_ms"
            }
        return value

    async def until(self, group_id: str, state: str, members: int | None = None) -> None:
        """Ask until the group is in `state`, with so many members if that is said."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                answer = await self.admin.request(DescribeGroupsRequest(groups=[group_id]))
                described = answer.groups[0]
                if described.group_state == state and members in {None, len(described.members)}:
                    return

    async def peer(self, name: str, group_id: str = "g") -> "Peer":
        """A client that may become a member."""
        return Peer(self, name, group_id, await self.connect(name))


class Peer:
    """One client of one group; its fields are what its requests say, and follow the answers."""

    def __init__(self, run: Run, name: str, group_id: str, connection: Connection) -> None:
        self.run, self.name, self.group_id, self.connection = run, name, group_id, connection
        self.member_id = ""
        self.instance_id: str | None = None
        self.generation = -1
        self.protocols: tuple[tuple[str, bytes], ...] = RANGE
        self.protocol_type = "consumer"
        self.session_timeout_ms = 20_000
        self.rebalance_timeout_ms = 20_000

    async def _ask(self, label: str, message: Any, at_most: int | None) -> Any:
        return await self.run.ask(f"{self.name}: {label}", message, at_most=at_most, via=self.connection)

    async def join(self, label: str = "join", at_most: int | None = None) -> Any:
        """JoinGroup; takes over member id and generation."""
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in self.protocols],
        )
        answer = await self.connection.request(request, at_most=at_most)
        self.run.name(answer.member_id, f"member {self.name}")
        self.run.note(f"{self.name}: {label}", answer)
        if answer.error_code in {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}:
            self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def later(self, label: str = "join") -> "asyncio.Task[Any]":
        """A join whose answer comes when others have done something."""
        return asyncio.create_task(self.join(label))

    async def enter(self, **fields: Any) -> Any:
        """Join with the round trip for a member id."""
        for field, value in fields.items():
            setattr(self, field, value)
        answer = await self.join("asks for an id")
        return await self.join() if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED else answer

    async def sync(
        self,
        assignments: Sequence[tuple[str, bytes]] = (),
        *,
        at_most: int | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
        label: str = "sync",
    ) -> Any:
        """SyncGroup."""
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[SyncGroupRequestAssignment(member_id=to, assignment=given) for to, given in assignments],
        )
        return await self._ask(label, request, at_most)

    async def heartbeat(self, label: str = "heartbeat", at_most: int | None = None) -> Any:
        """Heartbeat."""
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return await self._ask(label, request, at_most)

    async def leave(self, label: str = "leave", at_most: int | None = None) -> Any:
        """LeaveGroup for itself."""
        if at_most is not None and at_most < 3:
            request = LeaveGroupRequest(group_id=self.group_id, member_id=self.member_id)
        else:
            identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
            request = LeaveGroupRequest(group_id=self.group_id, members=[identity])
        return await self._ask(label, request, at_most)

    async def commit(
        self, label: str = "commit", at_most: int | None = 9, topic: str = "read", metadata: str | None = "m"
    ) -> Any:
        """OffsetCommit of offset 7 in partition 0."""
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata=metadata)
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        return await self._ask(label, request, at_most)

    async def describe(self, label: str) -> Any:
        """DescribeGroups of its group."""
        return await self.run.ask(f"{self.name}: {label}", DescribeGroupsRequest(groups=[self.group_id]))


@asynccontextmanager
async def run_against(bootstrap_servers: str, group_id: str = "g") -> AsyncIterator[Run]:
    """A run that is prepared, and closed at the end."""
    host, _, port = bootstrap_servers.rpartition(":")
    run = Run(host, int(port))
    try:
        await run.prepare(group_id)
        yield run
    finally:
        run.close()
