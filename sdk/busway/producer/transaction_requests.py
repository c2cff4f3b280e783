"""Requests of a transactional producer to coordinators of transactions and groups.

Not here: when they are sent (`transactions`). Request versions select the protocol: `implicit` is transaction.version 2
(KIP-890), where Produce and TxnOffsetCommit add to a transaction implicitly and EndTxn raises the epoch.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from busway.cluster.client import ClusterClient, CoordinatorKind
from busway.cluster.coordinator import MOVED, CoordinatorLink
from busway.cluster.rate_limited_log import RateLimitedLog
from busway.errors import (
    BrokerError,
    BuswayError,
    ConnectionFailed,
    ProducerFenced,
    RequestTimedOut,
    TransactionAbortable,
    TransactionFailed,
    UnsupportedByBroker,
)
from busway.net.clock import REAL_TIME
from busway.net.retry import RetryTimer
from busway.options import ProducerOptions
from busway.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

logger: logging.Logger = logging.getLogger("busway.producer")

SOON_S: Final = 0.02
"""Delay after CONCURRENT_TRANSACTIONS: the previous transaction usually ends within milliseconds."""
FEATURE: Final = "transaction.version"
IMPLICIT_FROM: Final = 2
"""First level of the feature with implicit additions to a transaction."""
PRODUCE_BEFORE: Final = 11
"""Last Produce version without implicit additions."""
_PURPOSE: Final = "transactions"
_ADD_BY_CLIENTS: Final = 3
_END_BEFORE: Final = 4
_COMMIT_BEFORE: Final = 4

FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_PERMANENT: Final = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
"""Errors that any later transaction of this producer would get as well."""
_ENDS_ABORTABLY: Final = frozenset({ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.UNKNOWN_PRODUCER_ID})
_GROUP_MOVED_ON: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


class Identity(NamedTuple):
    producer_id: int
    epoch: int


NOBODY: Final = Identity(-1, -1)


class TransactionRequests:
    """Requests for one transactional id, retried for up to delivery_timeout_ms.

    All raise TransactionAbortable, ProducerFenced or TransactionFailed for a refusal; ConnectionFailed, RequestTimedOut
    or a retriable BrokerError at the timeout.
    """

    def __init__(self, cluster: ClusterClient, options: ProducerOptions) -> None:
        assert options.transactional_id is not None
        self._cluster = cluster
        self._id = options.transactional_id
        self._timeout_ms = options.transaction_timeout_ms
        self._patience_s = options.delivery_timeout_ms / 1000
        self._coordinator = CoordinatorLink(cluster, self._id, CoordinatorKind.TRANSACTION, logger)
        self._groups: dict[str, CoordinatorLink] = {}
        self._rate_limited_log = RateLimitedLog(logger)
        self.opened_at: float | None = None

    async def identify(self, before: Identity = NOBODY) -> tuple[Identity, bool]:
        """Take the transactional id over, or continue under `before`'s next epoch; end open transactions.

        Return the new identity, and whether transactions are `implicit`.
        """
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=before.producer_id,
            producer_epoch=before.epoch,
        )
        code, answer = await self._decided(self._coordinator, request, lambda response: [response.error_code])
        if code is not ErrorCode.NONE:
            raise self._refused(code, "taking a producer id", abortable=False)
        level = (await self._coordinator.connection(_PURPOSE)).feature(FEATURE)
        return Identity(answer.producer_id, answer.producer_epoch), level >= IMPLICIT_FROM

    async def add_partitions(self, identity: Identity, partitions: Collection[tuple[str, int]]) -> None:
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for name, partition_index in partitions:
            topics.setdefault(name, AddPartitionsToTxnTopic(name=name, partitions=[])).partitions.append(
                partition_index
            )
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=list(topics.values()),
        )
        code, _ = await self._decided(
            self._coordinator,
            request,
            lambda response: (
                partition.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for partition in topic.results_by_partition
            ),
            at_most=_ADD_BY_CLIENTS,
        )
        if code is not ErrorCode.NONE:
            names = ", ".join(sorted(f"{name}-{partition_index}" for name, partition_index in partitions))
            raise self._refused(code, f"adding {names} to the transaction")

    async def add_offsets(self, identity: Identity, group_id: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            group_id=group_id,
        )
        code, _ = await self._decided(self._coordinator, request, lambda response: [response.error_code])
        if code is not ErrorCode.NONE:
            raise self._refused(code, f"adding the offsets of group {group_id} to the transaction")

    async def commit_offsets(
        self,
        identity: Identity,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata,
        *,
        implicit: bool,
    ) -> None:
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for partition, offset in offsets.items():
            topic = topics.setdefault(partition.topic, TxnOffsetCommitRequestTopic(name=partition.topic, partitions=[]))
            topic.partitions.append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
            )
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            generation_id=group.generation,
            member_id=group.member_id,
            group_instance_id=group.instance_id,
            topics=list(topics.values()),
        )
        link = self._groups.setdefault(
            group.group_id, CoordinatorLink(self._cluster, group.group_id, CoordinatorKind.GROUP, logger)
        )
        code, _ = await self._decided(
            link,
            request,
            lambda response: (partition.error_code for topic in response.topics for partition in topic.partitions),
            at_most=None if implicit else _COMMIT_BEFORE,
        )
        if code in _GROUP_MOVED_ON:
            text = (
                f"{self._name}: group {group.group_id} has moved on ({code.name}): its partitions are assigned to others, which will read these "
                "records again; abort the transaction and continue with what the consumer is assigned now"
            )
            raise TransactionAbortable(text, code)
        if code is not ErrorCode.NONE:
            raise self._refused(code, f"committing offsets of group {group.group_id}")

    async def end(self, identity: Identity, *, committed: bool, implicit: bool) -> Identity:
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=committed,
        )
        code, answer = await self._decided(
            self._coordinator,
            request,
            lambda response: [response.error_code],
            at_most=None if implicit else _END_BEFORE,
        )
        if committed and code is ErrorCode.INVALID_TXN_STATE:
            # Not a repeated commit, which the coordinator would have accepted.
            why = self._overdue() or "by an administrator, or for another producer that takes its transactional_id over"
            text = f"{self._name}: the transaction was aborted already, {why}; abort it here as well and begin again ({code.name})"
            raise TransactionAbortable(text, code)
        if code is not ErrorCode.NONE:
            what = "committing" if committed else "aborting"
            raise self._refused(code, what, abortable=code in _ENDS_ABORTABLY)
        return Identity(answer.producer_id, answer.producer_epoch) if answer.producer_id >= 0 else identity

    async def _decided(
        self,
        link: CoordinatorLink,
        message: Any,
        codes: Callable[[Any], Iterable[int]],
        *,
        at_most: int | None = None,
    ) -> tuple[ErrorCode, Any]:
        """Retry until decided; return the deciding error code and the response."""
        timer = RetryTimer(link.backoff(), self._patience_s)
        while True:
            problem: BuswayError
            code: ErrorCode | None = None
            try:
                answer = await link.ask(message, purpose=_PURPOSE, at_most=at_most)
            except UnsupportedByBroker as unsupported:
                raise TransactionFailed(f"{self._name}: {unsupported}") from None
            except (ConnectionFailed, RequestTimedOut) as failed:
                problem = failed
            except BrokerError as failed:  # from FindCoordinator
                if not failed.retriable:
                    raise self._refused(failed.code, "looking for its coordinator", abortable=False) from None
                problem = failed
            else:
                code = _worst(codes(answer))
                if not code.retriable:
                    return code, answer
                if code in MOVED or code is ErrorCode.REQUEST_TIMED_OUT:
                    link.forget()
                problem = BrokerError(code, self._name)
            if timer.is_expired:
                raise problem
            if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                name = type(message).__name__
                self._rate_limited_log.log(logging.INFO, name, "%s, asked again: %s", name, problem)
            await timer.sleep(SOON_S if code is ErrorCode.CONCURRENT_TRANSACTIONS else None)

    @property
    def _name(self) -> str:
        return f"transactional id {self._id}"

    def refused_for_good(self, code: ErrorCode) -> TransactionFailed | None:
        """Return why a batch's error stops the producer; None if the abort will report it."""
        if code is ErrorCode.PRODUCER_FENCED or (code in _PERMANENT and code is not ErrorCode.INVALID_TXN_STATE):
            return self._refused(code, "sending")
        return None

    def _refused(self, code: ErrorCode, what: str, *, abortable: bool | None = None) -> TransactionFailed:
        head = f"{self._name}: {what}"
        if code in FENCED:
            return ProducerFenced(f"{head}: {self.fenced_text()} ({code.name})", code)
        if abortable or (abortable is None and code not in _PERMANENT):
            return TransactionAbortable(f"{head}: {code.text}; abort it and begin again ({code.name})", code)
        return TransactionFailed(f"{head}: {self._text_of(code)} ({code.name})", code)

    def fenced_text(self) -> str:
        text = "another producer with the same transactional_id has taken over"
        if overdue := self._overdue():
            text = f"the transaction was aborted, {overdue}, or {text}"
        return f"{text}; nothing of this transaction is committed. Stop this producer; start a new one if it is the one that should work"

    def _overdue(self) -> str:
        open_s = 0.0 if self.opened_at is None else REAL_TIME.now_s() - self.opened_at
        if open_s * 1000 < self._timeout_ms:
            return ""
        return f"open for {open_s:.1f} s, longer than transaction_timeout_ms={self._timeout_ms}"

    def _text_of(self, code: ErrorCode) -> str:
        words = {
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "no right to use it: it needs Write and Describe on TransactionalId",
            ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the cluster has forgotten this producer, which made no transaction within "
            "transactional.id.expiration.ms; start a new one",
            ErrorCode.INVALID_TRANSACTION_TIMEOUT: f"transaction_timeout_ms={self._timeout_ms} is above the brokers' "
            "transaction.max.timeout.ms; ask for less, or raise that",
            ErrorCode.INVALID_TXN_STATE: f"{ErrorCode.INVALID_TXN_STATE.text}; start a new producer",
        }
        return words.get(code, code.text)


def _worst(numbers: Iterable[int]) -> ErrorCode:
    retriable = other = ErrorCode.NONE
    for code in map(error_for, numbers):
        if code.retriable:
            retriable = code
        elif code is ErrorCode.OPERATION_NOT_ATTEMPTED:
            other = code
        elif code is not ErrorCode.NONE:
            return code
    return other if retriable is ErrorCode.NONE else retriable
