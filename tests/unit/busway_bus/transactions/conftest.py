"""What the tests of transactions share: a shard on a clock that only moves when asked, whose records are applied at once."""

from collections.abc import Callable
from typing import Any

import pytest

from busway_bus.kernel.decision import Decision
from busway_bus.kernel.limits import TRANSACTIONS_BYTES_MAX
from busway_bus.transactions.fencing import Identity
from busway_bus.transactions.shard import Change, Levels, TransactionShard, transactions_share
from busway_bus.transactions.transaction import TopicPartition, Transaction
from busway_protocol.errors import ErrorCode, KafkaError

P0, P1 = ("t", 0), ("t", 1)


class Bench:
    """A shard, and the records that it wrote."""

    def __init__(self, server: int = 2, limit: int = TRANSACTIONS_BYTES_MAX) -> None:
        self.share = transactions_share(limit)
        self.shard = TransactionShard(self.share)
        self.now = 1_000_000
        self.server = server
        self.written: list[Change] = []
        self.next_id = 100

    def carry_out(self, decision: Decision[Any]) -> Any:
        """Append and apply."""
        for record in decision.records:
            self.written.append(record)
            self.shard.apply(record, self.now)
        return decision.reply

    def levels(self, client: int) -> Levels:
        """What is allowed to a client of this version."""
        return Levels(client=client, server=self.server)

    def begin(
        self, expected: Identity | None = None, *, timeout_ms: int = 60_000, name: str = "x", host: str = "here"
    ) -> Any:
        """InitProducerId: the identity, or the name of the error, or `aborting`."""
        new_id = None
        while True:
            try:
                decision = self.shard.begin(name, timeout_ms, expected, new_id, self.levels(0), now=self.now, host=host)
            except KafkaError as problem:
                return problem.code
            begun = self.carry_out(decision)
            if not begun.needs_id:
                return begun.identity or "aborting"
            new_id, self.next_id = self.next_id, self.next_id + 1

    def add(
        self, identity: Identity, *partitions: TopicPartition, client: int = 2, name: str = "x", host: str = "here"
    ) -> ErrorCode:
        """AddPartitionsToTxn."""
        levels = self.levels(client)
        try:
            self.carry_out(self.shard.add(name, identity, partitions or (P0,), levels, now=self.now, host=host))
        except KafkaError as problem:
            return problem.code
        return ErrorCode.NONE

    def end(self, identity: Identity, *, commit: bool = True, client: int = 2, name: str = "x") -> Any:
        """EndTxn: the identity after it, or the error."""
        new_id = None
        while True:
            try:
                decision = self.shard.end(name, identity, new_id, self.levels(client), commit=commit, now=self.now)
            except KafkaError as problem:
                return problem.code
            ended = self.carry_out(decision)
            if not ended.needs_id:
                return ended.identity
            new_id, self.next_id = self.next_id, self.next_id + 1

    def complete(self, name: str = "x") -> bool:
        """Every partition has the marker."""
        known = self.transaction(name)
        identity = (known.producer_id, known.epoch)
        done = self.carry_out(self.shard.complete(name, identity, self.levels(0), self.now))
        assert isinstance(done, bool)
        return done

    def transaction(self, name: str = "x") -> Transaction:
        """What is known of an id."""
        return self.shard.transactions[name]

    def shard_change(self) -> Change:
        """A record of any kind."""
        self.begin()
        return self.written[-1]

    def at(self, epoch: int) -> Identity:
        """A producer in this epoch, without anything open."""
        producer_id, _ = self.begin()
        known = self.transaction().initialized(60_000, epoch, -1, self.now)
        self.carry_out(Decision(records=(Change("x", known),), reply=None))
        return producer_id, epoch


@pytest.fixture
def bench() -> Bench:
    """A shard at transaction.version 2."""
    return Bench()


@pytest.fixture
def bench_of() -> Callable[[int], Bench]:
    """Makes a shard at the given level."""
    return Bench
