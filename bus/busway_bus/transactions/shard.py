"""The transactional ids of one partition of `__transaction_state`: a shard of the coordinator's runtime.

What lives here: the table, every operation on it, and `apply`, the only way that it changes, now and when a log is read. What does not:
who may do what (`fencing`), what an event makes of an id (`transaction`), storage and waiting (`coordinator.runtime`), markers
(`coordinator.markers`).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from busway_bus.kernel.deadlines import Deadlines
from busway_bus.kernel.decision import Decision, Waiter
from busway_bus.kernel.limits import (
    TRANSACTION_BYTES,
    TRANSACTION_PARTITION_BYTES,
    TRANSACTION_PARTITIONS_MAX,
)
from busway_bus.transactions.fencing import (
    Begin,
    End,
    Identity,
    check_add,
    check_begin,
    check_end,
    check_verify,
)
from busway_bus.transactions.records import key_bytes, parse_key, parse_value, value_bytes
from busway_bus.transactions.states import Event, State
from busway_bus.transactions.transaction import (
    EPOCHS_BUMPED_SINCE,
    NO_ID,
    Place,
    Transaction,
    exhausted,
)
from busway_protocol.errors import ErrorCode, KafkaError

R = TypeVar("R")


class Change(NamedTuple):
    """One record: what an id is from now on, or None where it is forgotten, and the version of the value."""

    transactional_id: str
    transaction: Transaction | None
    version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """What `transaction.version` allows.

    Attributes:
        client: the version that whoever asks follows.
        server: the finalized level: ends that the coordinator decides by itself follow it, and the log's records.
    """

    client: int
    server: int

    @property
    def effective(self) -> int:
        """What the request is handled as."""
        return min(self.client, self.server)

    @property
    def record_version(self) -> int:
        """The version of the log's values: tagged fields are written from level 1 on."""
        return 1 if self.server >= 1 else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What InitProducerId came to.

    Attributes:
        identity: the producer's from now on; None where it has to come again, or `needs_id`.
        needs_id: ask once more with a new producer id.
        ending: an open transaction is being aborted first.
    """

    identity: Identity | None = None
    needs_id: bool = False
    ending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What EndTxn came to; see `Begun`."""

    identity: Identity | None = None
    needs_id: bool = False
    ending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Overdue:
    """What `timed_out` came to.

    Attributes:
        ending: the transactional ids whose transactions are being aborted.
        needs_id: one more would be, with a new producer id.
    """

    ending: list[str]
    needs_id: bool


class TransactionShard:
    """What one partition of the transactions' topic holds.

    Attributes:
        transactions: by transactional id.
        prepared: ids whose end is decided and not yet in all partitions.
        held_bytes: about what all of it takes in memory.
    """

    def __init__(self) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.prepared: dict[str, None] = {}
        self.held_bytes = 0
        self._timeouts = Deadlines()

    # What is written down

    @staticmethod
    def encode(change: Change) -> tuple[bytes, bytes | None]:
        """A change as it is stored."""
        transactional_id, transaction, version = change
        value = None if transaction is None else value_bytes(transaction.record(version), version)
        return key_bytes(transactional_id), value

    @staticmethod
    def decode(key: bytes, value: bytes | None) -> Change | None:
        """What is stored; None for a type of record that is not known here.

        Raises:
            MalformedMessage: the bytes are damaged.
        """
        transactional_id = parse_key(key)
        if transactional_id is None:
            return None
        if value is None:
            return Change(transactional_id, None)
        record, version = parse_value(value)
        return Change(transactional_id, Transaction.from_record(record), version)

    def apply(self, change: Change, now: int) -> None:
        """Take one record into the table."""
        transactional_id, transaction, _ = change
        before = self.transactions.pop(transactional_id, None)
        self.held_bytes -= _size(transactional_id, before)
        self.prepared.pop(transactional_id, None)
        if transaction is None or transaction.state is State.DEAD:
            self._timeouts.discard(transactional_id)
            return
        self.transactions[transactional_id] = transaction
        self.held_bytes += _size(transactional_id, transaction)
        if transaction.state.prepared:
            self.prepared[transactional_id] = None
        if transaction.state is State.ONGOING:
            self._timeouts.put(transactional_id, transaction.started_ms + transaction.timeout_ms + 1)
        else:
            self._timeouts.discard(transactional_id)

    # Time: see `timed_out` and `expire`, which the coordinator calls at the intervals that its settings name.

    def next_deadline(self) -> int | None:
        """Nothing is done by the runtime's timer."""
        return None

    def tick(self, now: int) -> Decision[None]:
        """Nothing is due."""
        return Decision(reply=None)

    def unloaded(self) -> list[Waiter]:
        """No request is parked here."""
        return []

    # Producers

    def begin(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: Identity | None,
        new_id: int | None,
        levels: Levels,
        *,
        now: int,
        has_room: bool,
    ) -> Decision[Begun]:
        """InitProducerId: a producer begins with this transactional id, and fences whoever had it.

        Args:
            expected: the identity that the producer had, where it goes on.
            new_id: a producer id that nobody has, where `needs_id` was answered before.
            has_room: whether one more id may be kept.

        Raises:
            KafkaError: see `fencing.check_begin`; POLICY_VIOLATION where there is no room.
        """
        known = self.transactions.get(transactional_id)
        if known is None:
            if not has_room:
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION, "the coordinator keeps as many transactional ids as it can"
                )
            if new_id is None:
                return Decision(reply=Begun(needs_id=True))
            known = Transaction(producer_id=new_id, timeout_ms=timeout_ms, updated_ms=now)
        todo = check_begin(known, expected)
        if todo is Begin.FENCE:
            if new_id is None and _rotates(known, levels.server):
                return Decision(reply=Begun(needs_id=True))
            return _changed(transactional_id, _fenced(known, levels, now, new_id), levels, Begun(ending=True))
        if todo is Begin.ROTATE:
            if new_id is None:
                return Decision(reply=Begun(needs_id=True))
            begun = known.rotated(new_id, timeout_ms, now, known=expected is not None)
        elif todo is Begin.REPEAT:
            begun = known.initialized(timeout_ms, known.epoch, known.last_epoch, now)
        else:
            last_epoch = -1 if expected is None else known.epoch
            begun = known.initialized(timeout_ms, known.epoch + 1, last_epoch, now)
        return _changed(transactional_id, begun, levels, Begun(identity=(begun.producer_id, begun.epoch)))

    def add(
        self, transactional_id: str, identity: Identity, partitions: Collection[Place], levels: Levels, now: int
    ) -> Decision[None]:
        """Add partitions to the transaction, which begins with the first of them.

        Raises:
            KafkaError: see `fencing.check_add`; POLICY_VIOLATION for too many partitions.
        """
        known = check_add(self.transactions.get(transactional_id), identity)
        if known.state is State.ONGOING and known.partitions.issuperset(partitions):
            return Decision(reply=None)
        if len(known.partitions) + len(partitions) > TRANSACTION_PARTITIONS_MAX:
            text = f"a transaction writes to at most {TRANSACTION_PARTITIONS_MAX} partitions"
            raise KafkaError(ErrorCode.POLICY_VIOLATION, text)
        return _changed(transactional_id, known.added(partitions, levels.effective, now), levels, None)

    def verify(
        self, transactional_id: str, identity: Identity, partitions: Collection[Place]
    ) -> Mapping[Place, ErrorCode]:
        """Whether partitions belong to the open transaction: NONE or TRANSACTION_ABORTABLE for each (KIP-890).

        Raises:
            KafkaError: see `fencing.check_verify`.
        """
        known = check_verify(self.transactions.get(transactional_id), identity)
        return {
            place: ErrorCode.NONE if place in known.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for place in partitions
        }

    def end(
        self,
        transactional_id: str,
        identity: Identity,
        new_id: int | None,
        levels: Levels,
        *,
        commit: bool,
        now: int,
    ) -> Decision[Ended]:
        """EndTxn: decide how the transaction ends. The reply has the identity that the producer has after it.

        Raises:
            KafkaError: see `fencing.check_end`.
        """
        version = levels.effective
        known = self.transactions.get(transactional_id)
        todo = check_end(known, identity, commit=commit, client_version=version)
        assert known is not None
        if todo is End.REPEAT:
            return Decision(reply=Ended(identity=(known.producer_id, known.epoch)))
        next_id = NO_ID
        if _rotates(known, version):
            if new_id is None:
                return Decision(reply=Ended(needs_id=True))
            next_id = new_id
        event = Event.COMMITTED if commit else Event.ABORTED
        prepared = known.prepared(event, version, now, next_producer_id=next_id)
        after = (prepared.producer_id, prepared.epoch) if next_id == NO_ID else (next_id, 0)
        return _changed(transactional_id, prepared, levels, Ended(identity=after, ending=True))

    # The coordinator's own

    def complete(self, transactional_id: str, identity: Identity, levels: Levels, now: int) -> Decision[bool]:
        """Every partition has the marker of this identity; False where that is not what is being ended any more."""
        known = self.transactions.get(transactional_id)
        if known is None or not known.state.prepared or (known.producer_id, known.epoch) != identity:
            return Decision(reply=False)
        return _changed(transactional_id, known.completed(now), levels, True)

    def timed_out(self, now: int, levels: Levels, at_most: int, new_id: int | None = None) -> Decision[Overdue]:
        """Abort transactions that are open for longer than their producers said, and fence those.

        Args:
            new_id: a producer id that nobody has, where `needs_id` was answered before.
        """
        overdue, changes, needs_id = [], [], False
        for transactional_id in self._timeouts.due(now, at_most):
            known = self.transactions[transactional_id]
            # Until that is in the log it stays to be looked at: a full disk must not keep it open.
            self._timeouts.put(transactional_id, known.started_ms + known.timeout_ms + 1)
            rotates = _rotates(known, levels.server)
            if rotates and new_id is None:
                needs_id = True
                continue
            changes.append(Change(transactional_id, _fenced(known, levels, now, new_id), levels.record_version))
            overdue.append(transactional_id)
            new_id = None if rotates else new_id
        return Decision(records=tuple(changes), reply=Overdue(ending=overdue, needs_id=needs_id))

    def expire(self, transactional_ids: Collection[str], before: int) -> Decision[None]:
        """Forget ids of which nothing was heard since `before`, and which have nothing open."""
        changes = []
        for transactional_id in transactional_ids:
            known = self.transactions.get(transactional_id)
            if known is not None and known.state.idle and known.updated_ms <= before:
                changes.append(Change(transactional_id, None))
        return Decision(records=tuple(changes), reply=None)


def _changed(transactional_id: str, transaction: Transaction, levels: Levels, reply: R) -> Decision[R]:
    change = Change(transactional_id, transaction, levels.record_version)
    return Decision(records=(change,), reply=reply)


def _rotates(known: Transaction, version: int) -> bool:
    """Whether an end of this version uses up the last epoch of the producer id."""
    return version >= EPOCHS_BUMPED_SINCE and exhausted(known.epoch)


def _fenced(known: Transaction, levels: Levels, now: int, new_id: int | None) -> Transaction:
    next_id = new_id if new_id is not None and _rotates(known, levels.server) else NO_ID
    return known.prepared(Event.ABORTED, levels.server, now, next_producer_id=next_id, fences=True)


def _size(transactional_id: str, transaction: Transaction | None) -> int:
    if transaction is None:
        return 0
    return TRANSACTION_BYTES + 2 * len(transactional_id) + TRANSACTION_PARTITION_BYTES * len(transaction.partitions)
