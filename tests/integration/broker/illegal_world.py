"""The small world in which calls of groups and transactions are made in any order, on one broker.

Here: who the producers and members are on this broker, calls that are asked again until they are not refused for a
moment, and the rounds in which a group's classic members join and sync together.
Not here: which calls are made (`illegal_orders`).
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from tests.integration.broker.groups_probe import BOTH, DEADLINE_S, RANGE
from tests.support.raw_client import key_of

from busway.net.connection import Connection
from busway_protocol.apis import api
from busway_protocol.assignors.consumer_protocol import encode_assignment
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.groups_classic import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from busway_protocol.messages.groups_modern import ConsumerGroupDescribeRequest
from busway_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from busway_protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from busway_protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
    TopicRequest,
)
from busway_protocol.schema import fields_of

TOPIC: Final = "read"
PATTERN: Final = "rea."
GIVEN: Final = encode_assignment([(TOPIC, 0), (TOPIC, 1)])
"""What a member that leads gives itself: everything, so that a group that is stable leaves no partition without a reader."""
MOST_MEMBERS: Final = 3
MOST_IDS: Final = 20
"""As many as the calls of an example can be given."""
AT_ONCE: Final = 20
"""Longer than any example takes: no member is fenced for being late."""
PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,  # a topic that is new
    }
)
TRIES: Final = 200
Identity = tuple[int, int]
Outcome = tuple[str, ...]


def codes_of(answer: Any) -> Iterator[ErrorCode]:
    """Every error code of an answer, in the order of its fields."""
    if isinstance(answer, (list, tuple)):
        for item in answer:
            yield from codes_of(item)
    elif hasattr(type(answer), "__slots__") and not isinstance(answer, (str, bytes, int)):
        try:
            fields = fields_of(type(answer))
        except (AttributeError, KeyError, TypeError):
            return
        for field in fields:
            value = getattr(answer, field.name)
            if field.name.endswith("error_code"):
                yield ErrorCode(value)
            else:
                yield from codes_of(value)


class Line:
    """The connections to one broker, kept over all examples."""

    def __init__(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self._connections = [
            Connection(host, int(port), client_id="illegal", timeout_s=2 * DEADLINE_S) for _ in range(MOST_IDS + 2)
        ]
        self.topic_id: Any = None

    @property
    def admin(self) -> Connection:
        """For whatever is answered at once."""
        return self._connections[0]

    @property
    def waiting(self) -> Connection:
        """For the one call of an example that may wait for others."""
        return self._connections[1]

    def of_other(self, number: int) -> Connection:
        """For those that it waits for."""
        return self._connections[2 + number]

    async def open(self) -> None:
        """Connect; the topic and both coordinators are there."""
        for connection in self._connections:
            await connection.connect()
        self.topic_id = await self.make_topic(TOPIC)
        async with asyncio.timeout(DEADLINE_S):
            for key, kind in (("g", 0), ("x", 1)):
                find = FindCoordinatorRequest(coordinator_keys=[key], key_type=kind)
                while (await self.admin.request(find)).coordinators[0].error_code:
                    pass
            begin = InitProducerIdRequest(transactional_id="ready", transaction_timeout_ms=60_000)
            while (await self.admin.request(begin)).error_code:
                pass

    async def make_topic(self, name: str) -> Any:
        """Create a topic of two partitions; its id, when it is served."""
        topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
        await self.admin.request(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        names = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        async with asyncio.timeout(DEADLINE_S):
            while (seen := (await self.admin.request(names)).topics[0]).error_code or any(
                partition.error_code for partition in seen.partitions
            ):
                pass
            # Its partitions have a leader in the metadata before that leader serves them.
            served = DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=[0, 1])])
            while any(codes_of(await self.admin.request(served))):
                pass
        return seen.topic_id

    def close(self) -> None:
        """End the connections."""
        for connection in self._connections:
            connection.close()


class World:
    """One example on one broker: what its answers have said so far.

    Args:
        number: of the example; its names are its own, on both brokers alike.
        topic: name and id of the topic that its producers write to.
        saw: called with each request of groups and transactions, its version and its last answer.
    """

    def __init__(
        self,
        line: Line,
        number: int,
        topic: tuple[str, Any] | None = None,
        saw: Callable[[Any, int, Any], None] = lambda request, version, answer: None,
    ) -> None:
        self.line = line
        self.written_to, self.written_to_id = topic or (TOPIC, line.topic_id)
        self.saw = saw
        self.names = (f"txn-{number}", f"txn-{number}-second")
        self.lapsing: set[str] = set()
        """Transactional ids whose transactions time out as soon as they begin."""
        self.calls = 0
        """So many calls were made before this one; what is written or committed says it."""
        self.group_id = f"group-{number}"
        self.nobody: Identity = (10**12 + number, 0)
        self.producers: list[Identity] = [self.nobody] * 3
        self.given_ids: list[int] = []
        """Producer ids in the order in which they were given to this example."""
        self.written: dict[tuple[Identity, int], int] = {}
        self.turned_away: set[tuple[int, bool]] = set()
        """Producer ids of which a batch of a transaction was refused, and whether it would have begun the transaction."""
        self.classic: list[tuple[str, int]] = []
        """Member id and generation of each number that was ever given one."""
        self.former: list[tuple[str, int]] = []
        """Those that came without the id that they had, and were given another one."""
        self.instances: dict[str, str | None] = {}
        """By member id, the instance id that a member came with."""
        self.protocol_type = "consumer"
        """Of the classic member that was let in last."""
        self.modern = [(f"{self.group_id}-{slot}", 0) for slot in range(2)]
        self.owned: list[list[Any]] = [[], []]

    def gave(self, slot: int, answer: Any) -> None:
        """Take over the identity that an answer gives a producer."""
        self.producers[slot] = (answer.producer_id, answer.producer_epoch)
        self.given_ids.append(answer.producer_id)

    def name_of(self, slot: int) -> str:
        """The transactional id of a producer: the first two share one."""
        return self.names[slot // 2]

    async def ask(self, message: Any, at_most: int | None = None, via: Connection | None = None) -> Any:
        """Send a request, again while it is refused for a moment only."""
        for _ in range(TRIES):
            await self.settled()
            answer = await (via or self.line.admin).request(message, at_most=at_most)
            if PASSING.isdisjoint(codes_of(answer)):
                break
            await asyncio.sleep(0.005)
        self._note(message, at_most, answer)
        return answer

    def _note(self, message: Any, at_most: int | None, answer: Any) -> None:
        newest = api(key_of(message)).max_version
        self.saw(message, newest if at_most is None else min(at_most, newest), answer)

    async def settled(self) -> None:
        """Return when no transaction of this example is being ended: the codes for that differ from moment to moment."""
        async with asyncio.timeout(DEADLINE_S):
            while any(state.startswith("Prepare") for state, _ in await self.transactions()):
                await asyncio.sleep(0.002)

    async def transactions(self) -> list[tuple[str, int]]:
        """State and epoch of each transactional id."""
        request = DescribeTransactionsRequest(transactional_ids=list(self.names))
        states = (await self.line.admin.request(request)).transaction_states
        states.sort(key=lambda each: self.names.index(each.transactional_id))
        return [(str(each.transaction_state), int(each.producer_epoch)) for each in states]

    async def until_timed_out(self, slot: int) -> int:
        """Return when the open transaction of a producer has timed out and is aborted; its epoch then."""
        async with asyncio.timeout(DEADLINE_S):
            while (transaction := (await self.transactions())[slot // 2])[0] != "CompleteAbort":
                await asyncio.sleep(0.005)
        return transaction[1]

    async def state(self) -> str:
        """Of the group, as a classic one."""
        answer = await self.ask(DescribeGroupsRequest(groups=[self.group_id]))
        return str(answer.groups[0].group_state)

    async def modern_state(self) -> str:
        """Of the group, as a consumer group; empty where it is none."""
        described = await self._described()
        return "" if described.error_code else str(described.group_state)

    async def has_pattern(self) -> bool:
        """Whether a member of the consumer group subscribes by the pattern."""
        described = await self._described()
        return any(member.subscribed_topic_regex == PATTERN for member in described.members)

    async def pattern_resolved(self) -> None:
        """Return when the pattern, which is new to the group, is resolved: the group rebalances then."""
        async with asyncio.timeout(DEADLINE_S):
            while (described := await self._described()).group_epoch <= described.assignment_epoch:
                pass

    async def _described(self) -> Any:
        request = ConsumerGroupDescribeRequest(group_ids=[self.group_id], include_authorized_operations=False)
        return (await self.ask(request)).groups[0]

    # Names that are the same on every broker

    def producer_name(self, producer_id: int) -> str:
        """Its place among the producer ids that this example was given, "" for none."""
        known = list(dict.fromkeys(self.given_ids))
        return f"producer {known.index(producer_id)}" if producer_id in known else ""

    def member_name(self, member_id: str) -> str:
        """Its place among the classic members, or the id that it chose itself."""
        known = [each for each, _ in self.everyone]
        if member_id in known:
            return f"member {known.index(member_id)}"
        return member_id if member_id in {"nobody", *(each for each, _ in self.modern)} else "one that the broker named"

    # Rounds

    @property
    def everyone(self) -> list[tuple[str, int]]:
        """All classic members, with the ids that they have and had."""
        return [*self.classic, *self.former]

    async def join(
        self,
        who: int | None,
        protocol_type: str,
        protocols: int,
        at_most: int,
        *,
        instance: str | None,
        member_id: str | None,
    ) -> Any:
        """JoinGroup of a member, or of a new one; members that it has to wait for join too.

        Args:
            who: its number, None for the next one.
            member_id: what it says that it is; None for what it was given.
        """
        says = self.classic[who][0] if who is not None and member_id is None else ""
        before = await self.state()
        if before == "PreparingRebalance" and not says:
            # It may be handed an id, for which the others would wait.
            await self._all_join("")
            before = await self.state()
        number = len(self.classic) if who is None else who
        call = asyncio.ensure_future(
            self._join(self.line.waiting, says, protocol_type, BOTH[:protocols], at_most, instance)
        )
        try:
            async with asyncio.timeout(DEADLINE_S):
                if before == "PreparingRebalance":
                    await self.state()
                    await self._join_around(call, says)
                while before not in {"Empty", "Dead"} and not call.done():
                    if await self.state() == "PreparingRebalance":
                        await self._join_around(call, says)
                answer = await call
        finally:
            call.cancel()
        if answer.error_code in {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}:
            if who is not None and self.classic[number][0] != answer.member_id:
                self.former.append(self.classic[number])
            self.classic[number : number + 1] = [(answer.member_id, answer.generation_id)]
            self.instances[answer.member_id] = instance
        if not answer.error_code:
            self.protocol_type = protocol_type
        return answer

    async def _join_around(self, call: "asyncio.Future[Any]", says: str) -> None:
        """All others join; a member that was refused joins as it should, so that no member waits for it."""
        others = asyncio.ensure_future(self._all_join(says))
        try:
            answer = await call
            if answer.error_code and says:
                await self._join(self.line.waiting, says, self.protocol_type, RANGE, 9, self.instances[says])
            await others
        finally:
            others.cancel()

    async def _all_join(self, but: str) -> None:
        others = [member_id for member_id, _ in self.everyone if member_id != but]
        answers = await asyncio.gather(
            *(
                self._join(
                    self.line.of_other(place), member_id, self.protocol_type, RANGE, 9, self.instances[member_id]
                )
                for place, member_id in enumerate(others)
            )
        )
        generations = {
            member_id: answer.generation_id
            for member_id, answer in zip(others, answers, strict=True)
            if not answer.error_code
        }
        for members in (self.classic, self.former):
            members[:] = [(member_id, generations.get(member_id, before)) for member_id, before in members]

    async def _join(
        self,
        via: Connection,
        member_id: str,
        protocol_type: str,
        protocols: Sequence[tuple[str, bytes]],
        at_most: int,
        instance: str | None,
    ) -> Any:
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=AT_ONCE * 1000,
            rebalance_timeout_ms=AT_ONCE * 1000,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        )
        answer = await via.request(request, at_most=at_most)
        self._note(request, at_most, answer)
        return answer

    async def sync(self, request: SyncGroupRequest, at_most: int) -> Any:
        """SyncGroup of a member; where it waits for another, all others sync too."""
        newest = max((generation for _, generation in self.everyone), default=-1)
        spoken = at_most < 5 or (request.protocol_type, request.protocol_name) == (self.protocol_type, "range")
        right = request.group_instance_id in {None, self.instances.get(request.member_id)}
        current = request.generation_id == newest and (request.member_id, newest) in self.everyone
        others: list[tuple[str, int]] = []
        if current and spoken and right and await self.state() == "CompletingRebalance":
            others = [each for each in self.everyone if each[0] != request.member_id]
        async with asyncio.timeout(DEADLINE_S):
            answer, *_ = await asyncio.gather(
                self.line.waiting.request(request, at_most=at_most),
                *(self._sync(place, *each) for place, each in enumerate(others)),
            )
        self._note(request, at_most, answer)
        return answer

    async def _sync(self, place: int, member_id: str, generation: int) -> None:
        given = SyncGroupRequestAssignment(member_id=member_id, assignment=GIVEN)
        request = SyncGroupRequest(
            group_id=self.group_id, generation_id=generation, member_id=member_id, assignments=[given]
        )
        self._note(request, 4, await self.line.of_other(place).request(request, at_most=4))
