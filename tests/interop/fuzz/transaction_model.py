"""A model of transactions: what must be refused, and what is committed, aborted and visible after each call.

Here: the state of two transactional ids, of two partitions and of one group's offsets, from requests and answers.
Not here: asking. It knows which calls must be refused and which must be taken; for the rest it believes the broker, and
holds it to the end of that.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from busway_protocol.errors import ErrorCode
from busway_protocol.messages.groups_classic import DeleteGroupsRequest, OffsetCommitRequest, OffsetDeleteRequest
from busway_protocol.messages.produce import ProduceRequest
from busway_protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from busway_protocol.records.batch import read_header
from busway_protocol.records.record import decode_records
from tests.integration.broker.illegal_transaction_calls import TimedOut
from tests.integration.broker.illegal_world import TOPIC
from tests.interop.fuzz.ending import MARKER, PARTITIONS, Ending

BEGINS_FROM: Final = {ProduceRequest: 12, TxnOffsetCommitRequest: 5}
"""The first version that begins a transaction by itself."""
BUMPS_FROM: Final = 5
"""The first version of EndTxn that raises the epoch."""
ADDED_ALL_THE_SAME: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER})
"""Errors of the log: the coordinator has added the partition before."""


@dataclass
class Written:
    """One record, or a marker, of a partition; `visible` is None while its transaction is open."""

    value: bytes
    producer_id: int
    visible: bool | None


@dataclass
class Transaction:
    """One transactional id. `maybe` says that a refused call may have begun a transaction."""

    producer_id: int
    epoch: int
    open: bool = False
    maybe: bool = False
    partitions: set[int] = field(default_factory=set)
    pending: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By partition: the number of the call, and the offset."""


class TransactionModel:
    """See the module.

    Args:
        topic: name and id of what producers write to.
    """

    def __init__(self, topic: tuple[str, Any]) -> None:
        self._topic = topic
        self._ids: dict[str, Transaction] = {}
        self._log: dict[int, list[Written]] = {partition: [] for partition in PARTITIONS}
        self._offsets: dict[int, tuple[int, int]] = {}
        self._calls = 0

    def saw(self, request: Any, version: int, answer: Any) -> None:
        """Judge an answer, and follow it.

        Raises:
            AssertionError: The answer is wrong whatever went before it in ways that the model does not know; says why.
        """
        self._calls += 1
        match request:
            case InitProducerIdRequest():
                self._init(request, answer)
            case AddPartitionsToTxnRequest():
                self._add_partitions(request, version, answer)
            case AddOffsetsToTxnRequest():
                self._add_offsets(request, answer)
            case TxnOffsetCommitRequest():
                self._commit_offsets(request, version, answer)
            case ProduceRequest():
                self._produce(request, version, answer)
            case EndTxnRequest():
                self._end(request, version, answer)
            case TimedOut():
                transaction = self._ids[request.name]
                assert request.epoch > transaction.epoch, "a time-out fences the producer"
                self._finish(transaction, commit=False)
                transaction.epoch = request.epoch
            case OffsetCommitRequest():
                for topic in answer.topics:
                    for wanted, each in zip(_partitions(request, topic), topic.partitions, strict=True):
                        if not each.error_code:
                            self._offsets[each.partition_index] = (self._calls, wanted.committed_offset)
            case OffsetDeleteRequest():
                for topic in answer.topics:
                    for each in topic.partitions:
                        if not answer.error_code and not each.error_code and topic.name == TOPIC:
                            self._offsets.pop(each.partition_index, None)
            case DeleteGroupsRequest():
                if not answer.results[0].error_code:
                    self._offsets.clear()
                    for transaction in self._ids.values():
                        transaction.pending.clear()

    def against(self, ending: Ending) -> list[str]:
        """What is not as it must be after all calls."""
        problems = []
        for partition, log in self._log.items():
            unknown = [offset for offset, each in enumerate(log) if each.visible is None]
            stable = min(unknown, default=len(log))
            where = ending[f"partition {partition}"]
            seen = (where["high watermark"], where["last stable offset"])
            if seen != (len(log), stable):
                problems.append(f"partition {partition}: high watermark and last stable offset {(len(log), stable)}")
            everything = [(offset, each.value) for offset, each in enumerate(log)]
            committed = [(offset, each.value) for offset, each in enumerate(log[:stable]) if each.visible]
            for what, wanted in (("all", everything), ("committed", committed)):
                if ending[f"{what} in partition {partition}"] != wanted:
                    problems.append(f"{what} in partition {partition}: {wanted}")
        for partition in PARTITIONS:
            committed_offset = self._offsets.get(partition, (0, -1))[1]
            if ending["offsets"].get(f"partition {partition}", ("NONE", -1)) != ("NONE", committed_offset):
                problems.append(f"committed offset of partition {partition}: {committed_offset}")
            pending = any(partition in each.pending for each in self._ids.values())
            unstable = ending["stable offsets"].get(f"partition {partition}", ("NONE",))[0] != "NONE"
            if pending != unstable:
                problems.append(f"partition {partition} has a pending offset: {pending}")
        for name, transaction in self._ids.items():
            _, state, _, _, epoch, _, topics = ending["transactions"][name]
            if epoch != transaction.epoch:
                problems.append(f"{name}: epoch {transaction.epoch}")
            if not transaction.maybe and (state == "Ongoing") != transaction.open:
                problems.append(f"{name} is open: {transaction.open}")
            listed = {number for topic, numbers in topics if topic == self._topic[0] for number in numbers}
            if listed != transaction.partitions:
                problems.append(f"{name}: partitions {sorted(transaction.partitions)}")
        return problems

    def _of(self, name: str | None, producer_id: int, epoch: int) -> Transaction | None:
        """The transaction of this name if this is its producer now."""
        identity = self._ids.get(name or "")
        return identity if identity and (identity.producer_id, identity.epoch) == (producer_id, epoch) else None

    def _init(self, request: Any, answer: Any) -> None:
        before = self._ids.get(request.transactional_id)
        code = answer.error_code
        fresh = request.producer_id == -1
        current = self._of(request.transactional_id, request.producer_id, request.producer_epoch)
        if fresh or current:
            assert not code, "the current producer, or a new one, is let begin"
        elif before is not None:
            previous = (request.producer_id, request.producer_epoch) == (before.producer_id, before.epoch - 1)
            assert code or previous, "only the current producer and the one before begin"
        if code:
            return
        if before is None:
            self._ids[request.transactional_id] = Transaction(answer.producer_id, answer.producer_epoch)
            return
        self._finish(before, commit=False)
        moved = answer.producer_epoch > before.epoch or (before.epoch == answer.producer_epoch and not current)
        assert answer.producer_id == before.producer_id, "the producer id stays"
        assert moved, "the epoch rises"
        before.epoch = answer.producer_epoch

    def _add_partitions(self, request: Any, version: int, answer: Any) -> None:
        if version <= 3:
            name, results, verify = (
                request.v3_and_below_transactional_id,
                answer.results_by_topic_v3_and_below,
                False,
            )
            identity = (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        else:
            asked, results = request.transactions[0], answer.results_by_transaction[0].topic_results
            name, identity, verify = (
                asked.transactional_id,
                (asked.producer_id, asked.producer_epoch),
                asked.verify_only,
            )
        transaction = self._of(name, *identity)
        for topic in results:
            for each in topic.results_by_partition:
                there = each.partition_index in PARTITIONS
                if transaction is None:
                    assert each.partition_error_code, "another than the current producer adds a partition"
                elif verify:
                    belongs = each.partition_index in transaction.partitions
                    assert belongs is not bool(each.partition_error_code), "a partition is verified if it was added"
                else:
                    assert there is not bool(each.partition_error_code), "the current producer adds what is there"
                    if there:
                        transaction.open = True
                        transaction.partitions.add(each.partition_index)

    def _add_offsets(self, request: Any, answer: Any) -> None:
        transaction = self._of(request.transactional_id, request.producer_id, request.producer_epoch)
        assert (transaction is None) is bool(answer.error_code), "the current producer, and no other, adds offsets"
        if transaction:
            transaction.open = True

    def _commit_offsets(self, request: Any, version: int, answer: Any) -> None:
        transaction = self._of(request.transactional_id, request.producer_id, request.producer_epoch)
        for topic in answer.topics:
            for each, wanted in zip(topic.partitions, request.topics[0].partitions, strict=True):
                if transaction is None:
                    assert each.error_code, "another than the current producer commits offsets"
                elif each.error_code:
                    transaction.maybe |= version >= BEGINS_FROM[TxnOffsetCommitRequest]
                else:
                    begins = version >= BEGINS_FROM[TxnOffsetCommitRequest]
                    assert begins or transaction.open or transaction.maybe, "offsets outside of a transaction"
                    transaction.open = True
                    transaction.pending[each.partition_index] = (self._calls, wanted.committed_offset)

    def _produce(self, request: Any, version: int, answer: Any) -> None:
        data = request.topic_data[0].partition_data[0]
        header, value = read_header(data.records), decode_records(data.records)[0].value or b""
        transaction = self._of(request.transactional_id, header.producer_id, header.producer_epoch)
        begins = version >= BEGINS_FROM[ProduceRequest]
        for topic in answer.responses:
            there = self._topic[version >= 13] == (topic.topic_id if version >= 13 else topic.name)
            for each in topic.partition_responses:
                partition = each.index
                there = there and partition in PARTITIONS
                if not each.error_code:
                    assert there, "a record is written to a partition that is not there"
                added = transaction is not None and (begins or partition in transaction.partitions)
                if header.is_transactional:
                    assert each.error_code or added, "a record of a transaction that its partition is not in"
                    if added and there and begins and (not each.error_code or each.error_code in ADDED_ALL_THE_SAME):
                        assert transaction
                        transaction.open = True
                        transaction.partitions.add(partition)
                if not each.error_code:
                    self._append(partition, each.base_offset, header, value)

    def _append(self, partition: int, offset: int, header: Any, value: bytes) -> None:
        log = self._log[partition]
        if offset < len(log):
            assert log[offset].producer_id == header.producer_id, f"a duplicate of another's record at {offset}"
            return
        assert offset == len(log), f"the end of partition {partition} is {len(log)}"
        log.append(Written(value, header.producer_id, None if header.is_transactional else True))

    def _end(self, request: Any, version: int, answer: Any) -> None:
        transaction = self._of(request.transactional_id, request.producer_id, request.producer_epoch)
        before = self._ids.get(request.transactional_id)
        if before is None or request.producer_id != before.producer_id:
            assert answer.error_code, "a stranger ends a transaction"
            return
        if transaction is None:
            repeated = version >= BUMPS_FROM and request.producer_epoch == before.epoch - 1 and not before.open
            assert answer.error_code or repeated, "a fenced producer ends a transaction"
            return
        assert not (transaction.open and answer.error_code), "the current producer ends its transaction"
        if not transaction.open and not transaction.maybe and version >= BUMPS_FROM:
            assert bool(answer.error_code) is request.committed, "without a transaction an abort is taken, a commit not"
        if answer.error_code:
            return
        self._finish(transaction, commit=request.committed)
        if version >= BUMPS_FROM:
            assert (answer.producer_id, answer.producer_epoch) == (transaction.producer_id, transaction.epoch + 1)
            transaction.epoch = answer.producer_epoch

    def _finish(self, transaction: Transaction, *, commit: bool) -> None:
        for partition in transaction.partitions:
            for each in self._log[partition]:
                if each.producer_id == transaction.producer_id and each.visible is None:
                    each.visible = commit
            self._log[partition].append(Written(MARKER, transaction.producer_id, True))
        if commit:
            for partition, offset in transaction.pending.items():
                self._offsets[partition] = max(offset, self._offsets.get(partition, offset))  # the later call's
        transaction.open = transaction.maybe = False
        transaction.partitions.clear()
        transaction.pending.clear()


def _partitions(request: Any, topic: Any) -> Any:
    for wanted in request.topics:
        if (wanted.name, wanted.topic_id) == (topic.name, topic.topic_id):
            return wanted.partitions
    return []
