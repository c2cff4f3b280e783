"""Who may do what with a transactional id: which producer id and epoch is the current one, which one comes too late, which one asks again.

What lives here: the checks, each with the error that it ends in, in the order in which Kafka's coordinator looks. What does not: what
becomes of a request that passes (`shard`, `transaction`).
"""

from enum import Enum, auto

from busway_bus.transactions.states import State
from busway_bus.transactions.transaction import EPOCH_MAX, EPOCHS_BUMPED_SINCE, NO_EPOCH, Transaction, exhausted
from busway_protocol.errors import ErrorCode, KafkaError

Identity = tuple[int, int]
"""A producer's id and epoch."""


class Begin(Enum):
    """What InitProducerId has to do."""

    FENCE = auto()
    """Abort the open transaction first; the producer comes again."""
    ROTATE = auto()
    """Give a new producer id: the epochs of this one are used up."""
    BUMP = auto()
    """Give the next epoch."""
    REPEAT = auto()
    """Give the current epoch again: the answer was lost."""


class End(Enum):
    """What EndTxn has to do."""

    PREPARE = auto()
    """Decide the end."""
    REPEAT = auto()
    """Say once more how it ended: the answer was lost."""


def check_begin(known: Transaction, expected: Identity | None) -> Begin:
    """Whether a producer may begin with this id, naming the identity that it had (KIP-360).

    Raises:
        KafkaError: CONCURRENT_TRANSACTIONS while the last transaction is ending, PRODUCER_FENCED where the identity is an old one.
    """
    if known.state.prepared:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction is still ending")
    new = known.epoch == NO_EPOCH
    if expected is not None and not new:
        producer_id, epoch = expected
        rotated = producer_id == known.previous_producer_id and exhausted(epoch)
        if producer_id != known.producer_id and not rotated:
            raise _fenced(known, expected)
        repeats = epoch == known.last_epoch and epoch != known.epoch and known.state is not State.ONGOING
        if repeats:
            return Begin.REPEAT
        # An old epoch is fenced also where a transaction is open: it must not end that of its successor.
        if epoch != known.epoch or producer_id != known.producer_id:
            raise _fenced(known, expected)
    if known.state is State.ONGOING:
        return Begin.FENCE
    return Begin.ROTATE if exhausted(known.epoch) else Begin.BUMP


def check_add(known: Transaction | None, identity: Identity) -> Transaction:
    """The transaction that partitions may be added to.

    Raises:
        KafkaError: INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS while the last one is ending (also for the id that its end will
            give), PRODUCER_FENCED.
    """
    if known is None:
        raise _unmapped()
    if known.state.prepared:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction is still ending")
    _check_current(known, identity)
    return known


def check_verify(known: Transaction | None, identity: Identity) -> Transaction:
    """The transaction that partitions are looked for in.

    Raises:
        KafkaError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS while it is ending.
    """
    if known is None:
        raise _unmapped()
    _check_current(known, identity)
    if known.state.prepared:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction is ending")
    return known


def check_end(known: Transaction | None, identity: Identity, *, commit: bool, client_version: int) -> End:
    """Whether a producer may end its transaction so.

    Raises:
        KafkaError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS while it is ending, INVALID_TXN_STATE where
            there is nothing to end, or it ended otherwise.
    """
    if known is None:
        raise _unmapped()
    if client_version < EPOCHS_BUMPED_SINCE:
        return _check_end_unbumped(known, identity, commit=commit)
    if known.state.prepared:
        # Before its identity is looked at: the end that is under way may give it a new one.
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction is ending")
    producer_id, epoch = identity
    overflowed = producer_id == known.previous_producer_id and epoch == EPOCH_MAX - 1 and known.epoch == 0
    if producer_id != known.producer_id and not overflowed:
        raise _unmapped()
    if producer_id == known.producer_id and epoch == known.epoch:
        if known.state is State.ONGOING or not commit:
            return End.PREPARE
        raise _not_so(known, commit=commit)
    ended = known.state in {State.COMPLETE_COMMIT, State.COMPLETE_ABORT}
    # Where the end left the epoch as it was, the one before is somebody's that was taken over from, and not who asks again.
    bumped = known.client_version >= EPOCHS_BUMPED_SINCE
    if not ended or not (overflowed or (bumped and epoch == known.epoch - 1)):
        raise _fenced(known, identity)
    if commit != (known.state is State.COMPLETE_COMMIT):
        raise _not_so(known, commit=commit)
    return End.REPEAT


def _check_end_unbumped(known: Transaction, identity: Identity, *, commit: bool) -> End:
    """For clients whose epoch stays when a transaction ends."""
    _check_current(known, identity)
    if known.state.prepared:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction is ending")
    if known.state is State.ONGOING:
        return End.PREPARE
    if known.state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT):
        return End.REPEAT
    raise _not_so(known, commit=commit)


def _check_current(known: Transaction, identity: Identity) -> None:
    if identity[0] != known.producer_id:
        raise _unmapped()
    if identity[1] != known.epoch:
        raise _fenced(known, identity)


def _unmapped() -> KafkaError:
    return KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "another producer id has this transactional id, or none")


def _fenced(known: Transaction, identity: Identity) -> KafkaError:
    current = f"{known.producer_id} in epoch {known.epoch}"
    text = f"producer {identity[0]} in epoch {identity[1]} is fenced, the current one is {current}"
    return KafkaError(ErrorCode.PRODUCER_FENCED, text)


def _not_so(known: Transaction, *, commit: bool) -> KafkaError:
    text = f"the transaction cannot be {'committed' if commit else 'aborted'} in state {known.state.shown}"
    return KafkaError(ErrorCode.INVALID_TXN_STATE, text)
