"""The transactional ids of one partition of `__transaction_state`.

Here: the table and its operations; only `apply` changes it.
Not here: checks (`fencing`), effects of events (`transaction`), markers (`coordinator.markers`).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from busway_bus.kernel.deadlines import Deadlines
from busway_bus.kernel.decision import Decision, Waiter
from busway_bus.kernel.fair_share import NOBODY, Account, FairShare
from busway_bus.kernel.limits import (
    TRANSACTION_BYTES,
    TRANSACTION_PARTITION_BYTES,
    TRANSACTION_PARTITIONS_MAX,
    TRANSACTIONS_BYTES_MAX,
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
    TopicPartition,
    Transaction,
    exhausted,
)
from busway_protocol.errors import ErrorCode, KafkaError

R = TypeVar("R")


class Change(NamedTuple):
    """One record: an id's new state, or None to delete it.

    Attributes:
        version: of the value.
        host: charged for the id from now on, not in the log; None keeps the last one.
    """

    transactional_id: str
    transaction: Transaction | None
    version: int = 1
    host: str | None = None


def transactions_share(
    limit: int = TRANSACTIONS_BYTES_MAX, refused: Callable[[str, str], None] = lambda host, text: None
) -> FairShare:
    """Return the hosts' share of memory for ids and their partitions."""
    remedy = "Ids that are used again, and transactions that end, take no more; ids are forgotten after transactional.id.expiration.ms."
    return FairShare(limit, what="transactional ids", remedy=remedy, refused=refused)


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """The levels of `transaction.version`.

    Attributes:
        client: version of the request.
        server: the finalized level, for aborts by the coordinator and for the log's records.
    """

    client: int
    server: int

    @property
    def effective(self) -> int:
        """The version by which a request is handled."""
        return min(self.client, self.server)

    @property
    def record_version(self) -> int:
        """The version of the log's values; level 1 has tagged fields."""
        return 1 if self.server >= 1 else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """The outcome of InitProducerId.

    Attributes:
        identity: the producer's new one; None if it must retry, or with `needs_id`.
        needs_id: repeat with a new producer id.
        ending: an open transaction is being aborted first.
    """

    identity: Identity | None = None
    needs_id: bool = False
    ending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The outcome of EndTxn; see `Begun`."""

    identity: Identity | None = None
    needs_id: bool = False
    ending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Overdue:
    """The outcome of `timed_out`.

    Attributes:
        ending: ids whose transactions are being aborted.
        needs_id: another needs a new producer id.
    """

    ending: list[str]
    needs_id: bool


class TransactionShard:
    """The state of one partition of `__transaction_state`.

    Args:
        share: memory of all shards, by host.

    Attributes:
        prepared: ids whose end is decided, without all markers.
    """

    def __init__(self, share: FairShare) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.prepared: dict[str, None] = {}
        self._account = Account(share)
        self._hosts: dict[str, str] = {}
        """Host charged for an id, where known."""
        self._timeouts = Deadlines()

    @property
    def held_bytes(self) -> int:
        return self._account.held

    # Records

    @staticmethod
    def encode(change: Change) -> tuple[bytes, bytes | None]:
        transactional_id, transaction, version, _ = change
        value = None if transaction is None else value_bytes(transaction.record(version), version)
        return key_bytes(transactional_id), value

    @staticmethod
    def decode(key: bytes, value: bytes | None) -> Change | None:
        transactional_id = parse_key(key)
        if transactional_id is None:
            return None
        if value is None:
            return Change(transactional_id, None)
        record, version = parse_value(value)
        return Change(transactional_id, Transaction.from_record(record), version)

    def apply(self, change: Change, now: int) -> None:
        transactional_id, transaction, _, host = change
        if transaction is not None and transaction.state is State.DEAD:
            transaction = None
        self._count(transactional_id, self.transactions.pop(transactional_id, None), transaction, host)
        self.prepared.pop(transactional_id, None)
        if transaction is None:
            self._timeouts.discard(transactional_id)
            return
        self.transactions[transactional_id] = transaction
        if transaction.state.prepared:
            self.prepared[transactional_id] = None
        if transaction.state is State.ONGOING:
            self._timeouts.put(transactional_id, transaction.started_ms + transaction.timeout_ms + 1)
        else:
            self._timeouts.discard(transactional_id)

    def _count(
        self, transactional_id: str, before: Transaction | None, after: Transaction | None, host: str | None
    ) -> None:
        host_before = self._hosts.pop(transactional_id, NOBODY)
        host_after = host_before if host is None else host
        self._account.replace(
            (host_before, _size(transactional_id, before)), (host_after, _size(transactional_id, after))
        )
        if after is not None and host_after != NOBODY:
            self._hosts[transactional_id] = host_after

    def _check_room(self, host: str, more: int) -> None:
        refusal = self._account.refusal(host, more)
        if refusal is not None:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, refusal)

    # Time: the coordinator calls `timed_out` and `expire` at configured intervals.

    def next_deadline(self) -> int | None:
        return None

    def tick(self, now: int) -> Decision[None]:
        return Decision(reply=None)

    def unloaded(self) -> list[Waiter]:
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
        host: str,
    ) -> Decision[Begun]:
        """Handle InitProducerId, and fence an earlier producer.

        Args:
            new_id: an unused producer id, after `needs_id`.

        Raises:
            KafkaError: see `fencing.check_begin`; POLICY_VIOLATION if the host's share has no room.
        """
        known = self.transactions.get(transactional_id)
        if known is None:
            new = Transaction(producer_id=NO_ID if new_id is None else new_id, timeout_ms=timeout_ms, updated_ms=now)
            self._check_room(host, _size(transactional_id, new))
            if new_id is None:
                return Decision(reply=Begun(needs_id=True))
            known = new
        action = check_begin(known, expected)
        if action is Begin.FENCE:
            if new_id is None and _rotates(known, levels.server):
                return Decision(reply=Begun(needs_id=True))
            return _changed(transactional_id, _fenced(known, levels, now, new_id), levels, Begun(ending=True))
        if action is Begin.ROTATE:
            if new_id is None:
                return Decision(reply=Begun(needs_id=True))
            begun = known.rotated(new_id, timeout_ms, now, known=expected is not None)
        elif action is Begin.REPEAT:
            begun = known.repeated(timeout_ms, now)
        else:
            last_epoch = -1 if expected is None else known.epoch
            begun = known.initialized(timeout_ms, known.epoch + 1, last_epoch, now)
        return _changed(transactional_id, begun, levels, Begun(identity=(begun.producer_id, begun.epoch)), host)

    def add(
        self,
        transactional_id: str,
        identity: Identity,
        partitions: Collection[TopicPartition],
        levels: Levels,
        *,
        now: int,
        host: str | None,
    ) -> Decision[None]:
        """Add partitions; the first ones begin the transaction.

        Args:
            host: charged for them and the id; None for the host that is charged for the id already.

        Raises:
            KafkaError: see `fencing.check_add`; POLICY_VIOLATION for too many partitions, or if the host's share has no
                room.
        """
        known = check_add(self.transactions.get(transactional_id), identity)
        if known.state is State.ONGOING and known.partitions.issuperset(partitions):
            return Decision(reply=None)
        if len(known.partitions.union(partitions)) > TRANSACTION_PARTITIONS_MAX:
            text = f"a transaction writes to at most {TRANSACTION_PARTITIONS_MAX:,} partitions; write to more in several transactions"
            raise KafkaError(ErrorCode.POLICY_VIOLATION, text)
        added = known.added(partitions, levels.effective, now)
        payer = self._hosts.get(transactional_id, NOBODY) if host is None else host
        self._check_room(payer, TRANSACTION_PARTITION_BYTES * (len(added.partitions) - len(known.partitions)))
        return _changed(transactional_id, added, levels, None, host)

    def verify(
        self, transactional_id: str, identity: Identity, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Return NONE for partitions of the open transaction, else TRANSACTION_ABORTABLE (KIP-890).

        Raises:
            KafkaError: see `fencing.check_verify`.
        """
        known = check_verify(self.transactions.get(transactional_id), identity)
        return {
            partition: ErrorCode.NONE if partition in known.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
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
        """Handle EndTxn; the reply has the producer's next identity.

        Raises:
            KafkaError: see `fencing.check_end`.
        """
        version = levels.effective
        known = self.transactions.get(transactional_id)
        action = check_end(known, identity, commit=commit, client_version=version)
        assert known is not None
        if action is End.REPEAT:
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

    # Operations of the coordinator itself

    def complete(self, transactional_id: str, identity: Identity, levels: Levels, now: int) -> Decision[bool]:
        """Complete an end after all markers; False if no longer current."""
        known = self.transactions.get(transactional_id)
        if known is None or not known.state.prepared or (known.producer_id, known.epoch) != identity:
            return Decision(reply=False)
        return _changed(transactional_id, known.completed(now), levels, True)

    def timed_out(self, now: int, levels: Levels, at_most: int, new_id: int | None = None) -> Decision[Overdue]:
        """Abort transactions that exceed their timeouts; fence their producers.

        Args:
            new_id: an unused producer id, after `needs_id`.
        """
        overdue, changes, needs_id = [], [], False
        for transactional_id in self._timeouts.due(now, at_most):
            known = self.transactions[transactional_id]
            # The timeout stays until the abort is in the log, so that it is retried after a full disk.
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
        """Remove idle ids without an event since `before`."""
        changes = []
        for transactional_id in transactional_ids:
            known = self.transactions.get(transactional_id)
            if known is not None and known.state.idle and known.updated_ms <= before:
                changes.append(Change(transactional_id, None))
        return Decision(records=tuple(changes), reply=None)


def _changed(
    transactional_id: str, transaction: Transaction, levels: Levels, reply: R, host: str | None = None
) -> Decision[R]:
    change = Change(transactional_id, transaction, levels.record_version, host)
    return Decision(records=(change,), reply=reply)


def _rotates(known: Transaction, version: int) -> bool:
    """Whether an end of this version exhausts the producer id's epochs."""
    return version >= EPOCHS_BUMPED_SINCE and exhausted(known.epoch)


def _fenced(known: Transaction, levels: Levels, now: int, new_id: int | None) -> Transaction:
    next_id = new_id if new_id is not None and _rotates(known, levels.server) else NO_ID
    return known.prepared(Event.ABORTED, levels.server, now, next_producer_id=next_id, fences=True)


def _size(transactional_id: str, transaction: Transaction | None) -> int:
    if transaction is None:
        return 0
    return TRANSACTION_BYTES + 2 * len(transactional_id) + TRANSACTION_PARTITION_BYTES * len(transaction.partitions)
