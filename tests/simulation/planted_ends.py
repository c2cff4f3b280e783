"""Bugs put on purpose into the ends of transactions, the cleaning of compacted topics, and the durability of the broker's own topics.

Here: what each of them changes.
Not here: how they are put in, and all others (`planted`).
"""

from typing import Any, Final

from tests.simulation.planting import Planted

_ENDS: Final = "ends"
_COMPACTION: Final = "compaction"
_DURABILITY: Final = "durability"
_AT_ONCE: Final = 1
"""Offsets in one of the pieces that a commit is written in."""

# Ends


def _asks_once(_: Any) -> Any:
    async def _verify(self: Any, transactional_id: str, producer: Any, batches: Any) -> None:
        await self._ask(transactional_id, producer, batches, last=True)

    return _verify


def _once(_: Any) -> Any:
    return 1


def _void_is_in_none(original: Any) -> Any:
    def _check_transaction(self: Any, header: Any, verification: Any, entry: Any) -> None:
        from busway_protocol.errors import ErrorCode, KafkaError

        try:
            original(self, header, verification, entry)
        except KafkaError as problem:
            if problem.code is ErrorCode.NOT_ENOUGH_REPLICAS:
                raise KafkaError(ErrorCode.INVALID_TXN_STATE) from None
            raise

    return _check_transaction


def _in_pieces(original: Any) -> Any:
    async def commit_in_transaction(
        self: Any, group_id: str, committer: Any, offsets: Any, *, producer: Any, verifier: Any, add: bool
    ) -> Any:
        codes, places = {}, tuple(offsets)
        verify = self._verifications.verify
        for start in range(0, len(places), _AT_ONCE):
            part = {place: offsets[place] for place in places[start : start + _AT_ONCE]}
            codes.update(await original(self, group_id, committer, part, producer=producer, verifier=verifier, add=add))
            self._verifications.verify = _agrees  # the first answer is for all of them
        self._verifications.verify = verify
        return codes

    async def _agrees(*_: Any, **__: Any) -> None:
        pass

    return commit_in_transaction


def _keeps_identity(original: Any) -> Any:
    class Ending(original):  # type: ignore[misc]
        def __setattr__(self, name: str, value: Any) -> None:
            if name != "identity" or value is not None or not hasattr(self, name):
                object.__setattr__(self, name, value)

    return Ending


# Compaction


def _aborted_supersedes(original: Any) -> Any:
    def add(self: Any, header: Any, records: Any, *, rolled_back: bool = False) -> Any:
        return original(self, header, records)

    return add


def _nothing_is_rolled_back(original: Any) -> Any:
    def records(self: Any, header: Any) -> bool:
        original(self, header)
        return False

    return records


def _keeps_the_first(original: Any) -> Any:
    def add(self: Any, header: Any, records: Any, *, rolled_back: bool = False) -> Any:
        known = dict(self._offsets)
        more = original(self, header, records, rolled_back=rolled_back)
        self._offsets.update(known)
        return more

    return add


# Durability


def _as_the_broker(_: Any) -> Any:
    def fixed_configs(topic: str) -> Any:
        return {}

    return fixed_configs


PLANTED: Final = (
    Planted(
        "verification of a transaction not retried",
        "the marker of the last transaction invalidates the verification of the next one, whose first batches are refused",
        (
            ("busway_bus.handlers.produce:_ProduceOperation._verify", _asks_once),
            ("busway_bus.log.producer_state:ProducerState._check_transaction", _void_is_in_none),
        ),
        _ENDS,
    ),
    Planted(
        "verification of a transaction's offsets not retried",
        "the marker of the last transaction invalidates the verification of the next one, whose first offsets are refused",
        (("busway_bus.coordinator.offset_commit_verification:VERIFICATION_ASKS_MAX", _once),),
        _ENDS,
    ),
    Planted(
        "transactional offsets committed in parts",
        "an end comes between two parts: the later ones belong to the producer's next transaction",
        (("busway_bus.coordinator.group_coordinator:GroupCoordinator.commit_in_transaction", _in_pieces),),
        _ENDS,
    ),
    Planted(
        "next transaction without its markers",
        "a transaction is prepared while the end of the previous one becomes durable, and counts as that one",
        (("busway_bus.coordinator.markers:_Ending", _keeps_identity),),
        _ENDS,
    ),
    Planted(
        "aborted record supersedes a committed one",
        "the cleaner removes the value before an aborted one",
        (("busway_bus.log.compaction:KeyOffsets.add", _aborted_supersedes),),
        _COMPACTION,
    ),
    Planted(
        "aborted record outlives its marker",
        "the cleaner keeps an aborted record and removes the marker",
        (("busway_bus.log.cleaned_transactions:CleanedTransactions.records", _nothing_is_rolled_back),),
        _COMPACTION,
    ),
    Planted(
        "cleaner keeps the first record of a key",
        "a later record of the same key does not update the map of keys",
        (("busway_bus.log.compaction:KeyOffsets.add", _keeps_the_first),),
        _COMPACTION,
    ),
    Planted(
        "internal topics with the broker's durability",
        "a power cut removes decided ends and commits from a broker with a weaker `log.durability`, and tears transactions",
        (("busway_bus.replication.topic_log_configs:fixed_configs", _as_the_broker),),
        _DURABILITY,
    ),
)
"""All of them."""
