"""Members of share groups, and who looks after their offsets.

Here: taking records and saying what became of them (accept, release, reject, renew, nothing, too late), members that
leave or are cut off, resets, and waiting until a group is done with everything.
Not here: what the history must look like (`share_checks`).
"""

import asyncio
import contextlib
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import busway
from busway.admin.share_groups import ShareGroupOffset
from busway.errors import AcknowledgementFailed, BrokerError, BuswayError
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.share_groups import ShareFetchRequest
from tests.simulation.history import Happening, Outcome, Partition
from tests.simulation.letter_workloads import allow, letters_of, prepare_letters, read_letters, refuse
from tests.simulation.plan import ClientPlan
from tests.simulation.share_history import Given, Said, ShareRequest, ShareReset, ShareStart, ShareTaken
from tests.simulation.workloads import RETRY_S, Client, seen

SETTINGS: Final[Mapping[str, str]] = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "100",
    "share.coordinator.state.topic.num.partitions": "1",
    "errors.deadletterqueue.auto.create.topics.enable": "true",
}
"""What a broker must allow for groups as quick as these."""
_WAIT_MS: Final = 500
_HOLDS_MAX: Final = 20
_REFUSED: Final = frozenset({ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND})
"""Answers to a reset that say that nothing was done."""


def groups_of(clients: Iterable[ClientPlan]) -> dict[str, ClientPlan]:
    """One member of each share group; all of a group have the same settings and the same topic."""
    return {client.options["group"]: client for client in clients if client.kind == "sharer"}


def limit_of(client: ClientPlan) -> int:
    """How often a record is delivered to its group."""
    return int(client.options["settings"].get("share.delivery.count.limit", 5))


def committed(client: ClientPlan) -> bool:
    """Whether its group is given only what is committed."""
    return bool(client.options["settings"].get("share.isolation.level") == "read_committed")


async def prepare(admin: busway.Admin, clients: Iterable[ClientPlan]) -> None:
    """Give groups their settings, and their topics of dead letters."""
    groups = groups_of(clients)
    await prepare_letters(admin, groups.values())
    for group, client in groups.items():
        await admin.alter_group_configs(group, {"share.auto.offset.reset": "earliest", **client.options["settings"]})


# Members


async def share(client: Client) -> None:
    """Be a member until all groups are done with everything; a member that leaves or dies comes back as another."""
    left = client.plan.operations
    leaves_at = left // 2 if client.option("leaves") else -1
    while not client.stage.drained.is_set():
        member = _Member(client)
        await client.persist(member.consumer.start)
        alive = True
        try:
            while alive and not client.stage.drained.is_set():
                alive = await member.turn()
                left -= 1
                if left == leaves_at or (left >= 0 and client.chance.random() < client.option("dies", 0.0)):
                    break
                await client.pause()
        finally:
            await member.end(dies=client.chance.random() < 0.5)
        if not client.stage.settled.is_set():
            await asyncio.sleep(client.option("away_ms", 0) / 1000)


class _Member:
    """One life of a member."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._implicit = client.option("implicit", False)
        self.consumer = busway.ShareConsumer(
            client.plan.topic,
            bootstrap_servers=client.stage.bootstrap,
            group_id=client.option("group"),
            client_id=client.begin_life(),
            acknowledgement_mode="implicit" if self._implicit else "explicit",
            acquire_mode=client.option("acquire_mode", "batch_optimized"),
            fetch_max_bytes=client.option("fetch_max_bytes", 100_000),
            request_timeout_ms=5_000,
        )
        self._held: list[busway.Record] = []
        watch(client, self.consumer, client.option("group"))

    async def turn(self) -> bool:
        """Take records and say what became of them; whether there is any use in going on."""
        client = self._client
        operation = ShareTaken(process=client.process, group=client.option("group"), committed=committed(client.plan))
        client.history.begin(operation)
        try:
            records = await self.consumer.getmany(timeout_ms=_WAIT_MS, max_records=client.chance.choice([1, 3, 50]))
        except BuswayError as problem:
            client.history.end(operation, Outcome.INFO, problem)
            await asyncio.sleep(RETRY_S)
            return False
        operation.records = seen(records)
        client.history.end(operation)
        if self._implicit:
            if client.chance.random() < 0.3:
                await self._commit()
            return True
        if records and client.option("works_ms") and not client.stage.settled.is_set():
            await asyncio.sleep(client.chance.uniform(0, client.option("works_ms")) / 1000)
        for partition_records in records.values():
            for record in partition_records:
                self._say(record)
        self._say_late()
        if client.chance.random() < 0.5 or client.stage.settled.is_set():
            await self._commit()
        return True

    def _say(self, record: busway.Record) -> None:
        chance = self._client.chance.random()
        kinds: Mapping[Any, float] = self._client.option("says", {})
        for kind, likely in () if self._client.stage.settled.is_set() else kinds.items():
            chance -= likely
            if chance < 0:
                if kind == "renew":
                    self._acknowledge(record, kind)
                if kind in {"renew", "nothing"}:
                    self._held = [*self._held, record][-_HOLDS_MAX:]
                else:
                    self._acknowledge(record, kind)
                return
        self._acknowledge(record, "accept")

    def _say_late(self) -> None:
        """A slow member may be too late."""
        if self._held and self._client.chance.random() < 0.3:
            self._acknowledge(self._held.pop(0), self._client.chance.choice(["accept", "release"]))

    def _acknowledge(self, record: busway.Record, kind: Any) -> None:
        with contextlib.suppress(AcknowledgementFailed):
            self.consumer.acknowledge(record, kind)

    async def _commit(self) -> None:
        with contextlib.suppress(BuswayError):
            await self.consumer.commit()

    async def end(self, *, dies: bool) -> None:
        """Leave, or be gone."""
        self._client.history.note(Happening(process=self._client.process, kind="gone"))
        if dies and not self._client.stage.settled.is_set():
            await self.consumer.abort()
        else:
            await self.consumer.stop()


def watch(client: Client, consumer: busway.ShareConsumer, group: str) -> None:
    """Note every request of a share consumer to a leader."""
    fetcher = consumer._fetcher
    make = fetcher._leader

    def place(topic_id: Any, number: int) -> Partition:
        return Partition(*(fetcher._names.get((topic_id, number)) or (str(topic_id), number)))

    def leader(node: int) -> Any:
        made = make(node)
        send = made._send

        async def sent(request: Any, acknowledged: Any) -> Any:
            operation = client.history.begin(_asked(client.process, group, request, place))
            try:
                answer = await send(request, acknowledged)
            except BaseException as problem:
                client.history.end(operation, Outcome.INFO, repr(problem))
                raise
            _answered(operation, answer, place)
            client.history.end(operation)
            return answer

        made._send = sent  # type: ignore[method-assign]
        return made

    fetcher._leader = leader  # type: ignore[method-assign]


def _asked(process: str, group: str, request: Any, place: Any) -> ShareRequest:
    return ShareRequest(
        process=process,
        group=group,
        member=request.member_id,
        fetches=isinstance(request, ShareFetchRequest),
        begins=request.share_session_epoch == 0,
        ends=request.share_session_epoch == -1,
        said=[
            Said(place(topic.topic_id, partition_request.partition_index), batch.first_offset, batch.last_offset, kind)
            for topic in request.topics
            for partition_request in topic.partitions
            for batch in partition_request.acknowledgement_batches
            for kind in batch.acknowledge_types
        ],
    )


def _answered(operation: ShareRequest, answer: Any, place: Any) -> None:
    given: list[Given] = []
    problems: dict[Partition, int] = {}
    for topic in answer.responses:
        for partition_response in topic.partitions:
            where = place(topic.topic_id, partition_response.partition_index)
            problems[where] = (
                partition_response.acknowledge_error_code if operation.fetches else partition_response.error_code
            )
            if operation.fetches:
                given += [
                    Given(where, part.first_offset, part.last_offset, part.delivery_count)
                    for part in partition_response.acquired_records
                ]
    operation.given, operation.lock_ms = given, answer.acquisition_lock_timeout_ms
    operation.said = [said._replace(problem=_problem(problems.get(said.partition))) for said in operation.said]


def _problem(code: int | None) -> str:
    return "not answered" if code is None else "" if code == ErrorCode.NONE else ErrorCode(code).name


# Looking after groups


async def keep(client: Client) -> None:
    """Look where a group goes on and what it has given up, forbid it dead letters for a while, and try to have it go on elsewhere."""
    group = groups_of(client.stage.plan.clients).get(client.option("group"))
    dead = letters_of(group) if group is not None else ""
    admin = busway.Admin(client.stage.bootstrap, client_id=client.begin_life(), request_timeout_ms=5_000)
    await client.persist(admin.start)
    try:
        for _ in range(client.plan.operations):
            await client.pause()
            if client.stage.settled.is_set():
                return
            with contextlib.suppress(BuswayError):
                starts = await look_at_starts(client, admin, client.option("group"))
                if dead:
                    await read_letters(client, admin, client.option("group"), dead)
                    await (refuse if client.chance.random() < client.option("refuses", 0.0) else allow)(admin, dead)
                if starts and client.chance.random() < client.option("resets", 0.0):
                    await _reset(client, admin, starts)
    finally:
        if dead:
            await client.persist(functools.partial(allow, admin, dead))
        await admin.stop()


_QUIET_S: Final = 30.0
"""A group that is given nothing for so long has nothing left: no lock and no session is as long."""
_BURIED_S: Final = 70.0
"""So long for a group with dead letters, which are tried again after half a minute at most."""
Starts = dict[busway.TopicPartition, ShareGroupOffset]


async def look_at_starts(client: Client, admin: busway.Admin, group: str) -> Starts:
    """Where a group goes on.

    Raises:
        BuswayError: no broker says.
    """
    asked = client.history.mark(), client.history.now_ms()
    start_offsets = await admin.list_share_group_offsets(group)
    for partition, offset in start_offsets.items():
        operation = ShareStart(
            process=client.process, group=group, partition=Partition(*partition), offset=offset.start_offset
        )
        client.history.begin(operation)
        operation.invoked, operation.invoked_ms = asked
        client.history.end(operation)
    return start_offsets


async def _reset(client: Client, admin: busway.Admin, starts: Starts) -> None:
    group, how = client.option("group"), client.chance.choice(["alter", "alter", "forget", "delete"])
    wanted = {
        partition: client.chance.randint(0, start.start_offset) if how == "alter" else 0
        for partition, start in starts.items()
    }
    resets = [
        client.history.begin(
            ShareReset(process=client.process, group=group, partition=Partition(*partition), offset=offset)
        )
        for partition, offset in wanted.items()
    ]
    outcome, problem = Outcome.OK, ""
    try:
        if how == "alter":
            await admin.alter_share_group_offsets(group, wanted)
        elif how == "forget":
            await admin.delete_share_group_offsets(group, sorted({partition.topic for partition in wanted}))
        else:
            await admin.delete_groups([group])
    except BuswayError as refused:
        certain = isinstance(refused, BrokerError) and refused.code in _REFUSED
        outcome, problem = Outcome.FAIL if certain else Outcome.INFO, f"{how}: {refused}"
    for reset in resets:
        client.history.end(reset, outcome, problem)


# The end of a run


def _given_to(client: Client, group: str) -> int:
    return sum(len(taken.records) for taken in client.history.of(ShareTaken) if taken.group == group)


def _all_ask(client: Client, group: str, since_ms: float) -> bool:
    """Whether each member has asked for records since then, or they have ended: a member that waits for something else takes none."""
    asked = {
        taken.process.rpartition(".")[0]
        for taken in client.history.of(ShareTaken)
        if taken.group == group and taken.ok and taken.invoked_ms >= since_ms
    }
    plans = client.stage.plan.clients
    members = {plan.name for plan in plans if plan.kind == "sharer" and plan.options["group"] == group}
    return client.stage.drained.is_set() or asked >= members


async def groups_are_done(client: Client, groups: Sequence[str]) -> None:
    """Return when these groups are done with everything, with all that is there."""
    admin = busway.Admin(client.stage.bootstrap, client_id=client.begin_life(), request_timeout_ms=5_000)
    consumer = busway.Consumer(bootstrap_servers=client.stage.bootstrap, client_id=client.process)
    await client.persist(admin.start)
    await client.persist(consumer.start)
    plans = groups_of(client.stage.plan.clients)
    try:
        for group in groups:
            count = client.stage.partitions_of()[plans[group].topic]
            keys = [busway.TopicPartition(plans[group].topic, number) for number in range(count)]
            given, quiet_since_ms = -1, 0.0
            while True:
                with contextlib.suppress(BuswayError):
                    ends = await consumer.end_offsets(keys)
                    starts = await look_at_starts(client, admin, group)
                    if (now_given := _given_to(client, group)) != given:
                        given, quiet_since_ms = now_given, client.history.now_ms()
                    # What was aborted is passed over in memory alone, as in Kafka, and counts as lag until something is written again.
                    quiet_s = (client.history.now_ms() - quiet_since_ms) / 1000
                    done = all(key in starts and starts[key].lag == 0 for key in keys)
                    quiet = quiet_s > (_BURIED_S if letters_of(plans[group]) else _QUIET_S)
                    quiet = quiet and _all_ask(client, group, quiet_since_ms)
                    done |= committed(plans[group]) and starts.keys() >= set(keys) and quiet
                    if done and ends == await consumer.end_offsets(keys):
                        break
                await asyncio.sleep(RETRY_S)
            for key in keys:
                client.history.note(
                    ShareStart(
                        process=client.process,
                        group=group,
                        partition=Partition(*key),
                        offset=starts[key].start_offset,
                        end=ends[key],
                    )
                )
            if dead := letters_of(plans[group]):
                await read_letters(client, admin, group, dead, last=True)
    finally:
        await consumer.stop()
        await admin.stop()


async def nothing_is_left(client: Client) -> None:
    """Ask for records of a group that is done with everything, as a member that the group does not know."""
    consumer = busway.ShareConsumer(
        client.plan.topic,
        bootstrap_servers=client.stage.bootstrap,
        group_id=client.option("group"),
        client_id=client.begin_life(),
        request_timeout_ms=5_000,
    )
    watch(client, consumer, client.option("group"))
    await client.persist(consumer.start)
    try:
        while not (consumer.has_joined and any(leader.lock_s for leader in consumer._fetcher._leaders.values())):
            for records in (await consumer.getmany(timeout_ms=_WAIT_MS)).values():
                for record in records:
                    consumer.acknowledge(record)
    finally:
        await consumer.stop()
