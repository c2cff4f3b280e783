"""Checks of a producer's identity: current, fenced or repeated.

Here: the checks with their errors, in the order of Kafka's coordinator.
Not here: the effect of a valid request (`shard`, `transaction`).
"""

from enum import Enum, auto

from busway_bus.transactions.states import State
from busway_bus.transactions.transaction import EPOCH_MAX, EPOCHS_BUMPED_SINCE, NO_EPOCH, Transaction, exhausted
from busway_protocol.errors import ErrorCode, KafkaError

Identity = tuple[int, int]


class Begin(Enum):
    FENCE = auto()
    """Abort the open transaction; the producer retries."""
    ROTATE = auto()
    """Assign a new producer id: the old one's epochs are exhausted."""
    BUMP = auto()
    """Assign the next epoch."""
    REPEAT = auto()
    """Return the current epoch: the response was lost."""


class End(Enum):
    PREPARE = auto()
    REPEAT = auto()
    """Return the earlier outcome: the response was lost."""


def check_begin(known: Transaction, expected: Identity | None) -> Begin:
    """Check InitProducerId; `expected` is the producer's previous identity (KIP-360).

    Raises:
        KafkaError: CONCURRENT_TRANSACTIONS while the last transaction is ending, PRODUCER_FENCED for an old identity.
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
        # Fenced also during an open transaction: an old producer must not end its successor's.
        if epoch != known.epoch or producer_id != known.producer_id:
            raise _fenced(known, expected)
    if known.state is State.ONGOING:
        return Begin.FENCE
    return Begin.ROTATE if exhausted(known.epoch) else Begin.BUMP


def check_add(known: Transaction | None, identity: Identity) -> Transaction:
    """Return the transaction to which partitions may be added.

    Raises:
        KafkaError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS while the last one is ending
            (also for its next producer id).
    """
    if known is None:
        raise _unmapped()
    if known.state.prepared:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction is still ending")
    _check_current(known, identity)
    return known


def check_verify(known: Transaction | None, identity: Identity) -> Transaction:
    """Return the transaction in which partitions are verified.

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
    """Check EndTxn.

    Raises:
        KafkaError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS while it is ending,
            INVALID_TXN_STATE without an open transaction, or after the other outcome.
    """
    if known is None:
        raise _unmapped()
    if client_version < EPOCHS_BUMPED_SINCE:
        return _check_end_unbumped(known, identity, commit=commit)
    if known.state.prepared:
        # Checked before the identity: the pending end may assign a new one.
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
    # If the end did not bump the epoch, the one before is a fenced producer's, not that of a repeated request.
    bumped = known.client_version >= EPOCHS_BUMPED_SINCE
    if not ended or not (overflowed or (bumped and epoch == known.epoch - 1)):
        raise _fenced(known, identity)
    if commit != (known.state is State.COMPLETE_COMMIT):
        raise _not_so(known, commit=commit)
    return End.REPEAT


def _check_end_unbumped(known: Transaction, identity: Identity, *, commit: bool) -> End:
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
