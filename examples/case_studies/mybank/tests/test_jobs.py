"""The Spark jobs on a topic as the connector writes it, and the live rule beside them."""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from mybank import domain, generate
from mybank.events import AccountRow, Hour, Source, Thresholds, TransactionChange, TransactionRow
from mybank.tests.captured import NOON, Captured
from tests.spark.conftest import bus  # noqa: F401 - a fixture
from tests.support.patience import patient

from busway import Admin, App, Consumer, TopicPartition

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]
TRANSACTIONS = 400
ACCOUNTS = generate.accounts(0, 1)
NONSENSE = ("CARD", "-5.00"), ("GIFT", "7.00"), ("CARD", "0.00")


def rows() -> list[TransactionRow]:
    """Transactions of all accounts, nonsense among them."""
    made = [
        TransactionRow(
            id=number, account_id=row.account_id, kind=row.kind, amount=row.amount, currency=row.currency,
            booked_at=row.booked_at.isoformat(),
        )
        for number, row in zip(range(TRANSACTIONS), generate.rows(ACCOUNTS, 0, 1), strict=False)
    ]  # fmt: skip
    first = made[0]
    for number, (kind, amount) in enumerate(NONSENSE, TRANSACTIONS):
        made.append(
            TransactionRow(
                id=number, account_id=first.account_id, kind=kind, amount=Decimal(amount), currency=first.currency,
                booked_at=NOON.isoformat(),
            )
        )  # fmt: skip
    return made


def wishes() -> dict[str, Thresholds]:
    """What owners have set."""
    return {
        account.id: domain.thresholds(
            account.id,
            {kind: Decimal(amount) for kind, amount in account.single.items()},
            None if account.hourly is None else Decimal(account.hourly) / 2,
            NOON,
        )
        for account in ACCOUNTS
        if account.single or account.hourly
    }


def live(transactions: list[TransactionRow]) -> dict[str, Decimal]:
    """The alerts by the rules of the service, with their amounts."""
    thresholds = wishes()
    hours: dict[str, Hour] = {}
    alerted: dict[str, Decimal] = {}
    known = {
        account.id: AccountRow(id=account.id, owner=account.owner, currency=account.currency) for account in ACCOUNTS
    }
    for row in transactions:
        try:
            transaction = domain.booked(
                TransactionChange(after=row, source=Source(ts_us=1)), row, known.get(row.account_id)
            )
        except domain.Impossible:
            continue
        hour = hours.get(row.account_id) or Hour(account_id=row.account_id)
        hours[row.account_id], alerts = domain.judge(hour, transaction, thresholds.get(row.account_id), NOON)
        alerted |= {alert.alert_id: alert.amount for alert in alerts}
    return alerted


@pytest.fixture
def topics(bus: Any) -> list[TransactionRow]:  # noqa: F811 - the fixture
    """Accounts, thresholds and transactions in their topics."""
    made = rows()

    async def write() -> None:
        async with writing(bus) as (captured, thresholds):
            for account in ACCOUNTS:
                await captured.account(account.id, account.currency)
            for account_id, wish in wishes().items():
                await thresholds.send(wish, account_id)
            for row in made:
                await captured.row(row)

    bus.run(write())
    return made


@asynccontextmanager
async def writing(bus: Any) -> AsyncIterator[Any]:  # noqa: F811 - the fixture's value
    """Both writers."""
    app = App("writer", bus.bootstrap_servers, bus.registry)
    thresholds = app.topic("mybank.thresholds", value=Thresholds)
    async with app, Captured(app) as captured:
        yield captured, thresholds


def test_spending_is_what_left_the_account_each_day(
    bus: Any,  # noqa: F811 - the fixture
    spark: Any,
    topics: list[TransactionRow],
    tmp_path: Path,
) -> None:
    """Every row once in the store, over two runs; sums by day without nonsense, exactly to the cent."""
    from mybank.jobs import spending

    for _ in range(2):
        assert spending.main([*bus.arguments, "--out", str(tmp_path), "--until-end"]) == 0
    assert spark.read.parquet(str(tmp_path / "transactions")).count() == len(topics)
    expected: dict[tuple[str, str], Decimal] = {}
    for row in topics:
        good = row.amount > 0 and row.currency != "XXX" and row.kind in {"TRANSFER", "CARD", "WITHDRAWAL"}
        if good:
            at = row.account_id, row.booked_at[:10]
            expected[at] = expected.get(at, Decimal(0)) + row.amount
    rows = spark.read.parquet(str(tmp_path / "spending")).collect()
    assert {(row.account_id, str(row.day)): row.spent for row in rows} == expected


def test_running_sums_alert_as_the_service_does(
    bus: Any,  # noqa: F811 - the fixture
    spark: Any,
    topics: list[TransactionRow],
    tmp_path: Path,
) -> None:
    """The same alerts with the same amounts, from transformWithState; a second run finds nothing new."""
    from mybank.jobs import running

    due = live(topics)
    assert {alert_id.partition(":")[2] for alert_id in due} == {"SINGLE", "HOURLY"}
    for _ in range(2):
        assert running.main([*bus.arguments, "--out", str(tmp_path), "--until-end"]) == 0
    rows = spark.read.parquet(str(tmp_path / "alerts")).collect()
    assert len(rows) == len(due)
    assert {row.alert_id: row.amount for row in rows} == due


def test_large_ones_come_out_while_they_come_in(
    bus: Any,  # noqa: F811 - the fixture
    spark: Any,
    topics: list[TransactionRow],
    tmp_path: Path,
) -> None:
    """Real-Time Mode: what is there, and what comes while the query runs."""
    from mybank.jobs import large

    from busway_spark import realtime, stream_topic

    bus.topic("mybank.large")
    changes = stream_topic(spark, "mybank.public.transactions", source="kafka", **bus.servers)
    writer = large.transform(changes, Decimal("500.00")).writeStream.format("kafka").option("topic", "mybank.large")
    writer = writer.option("kafka.bootstrap.servers", bus.bootstrap_servers)
    query = realtime(writer.option("checkpointLocation", str(tmp_path)), "5 seconds").start()
    due = {row.id: str(row.amount) for row in topics if row.amount >= 500}
    assert due

    async def one_more() -> None:
        async with writing(bus) as (captured, _):
            await captured.transaction(9000, "500.00", account=ACCOUNTS[0].id)

    try:
        assert ran(bus, amounts_in(bus, "mybank.large", len(due))) == due
        ran(bus, one_more())
        assert ran(bus, amounts_in(bus, "mybank.large", len(due) + 1)) == {**due, 9000: "500.00"}
    finally:
        query.stop()


async def amounts_in(bus: Any, topic: str, count: int) -> dict[int, str]:  # noqa: F811 - the fixture's value
    """The amounts of the first transactions in a topic, by their ids."""
    async with Consumer(topic, bootstrap_servers=bus.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        async with asyncio.timeout(patient(50)):
            records = [json.loads((await consumer.getone()).value or b"") for _ in range(count)]
    return {transaction["id"]: transaction["amount"] for transaction in records}


def test_large_ones_in_micro_batches_to_the_end(
    bus: Any,  # noqa: F811 - the fixture
    spark: Any,
    topics: list[TransactionRow],
    tmp_path: Path,
) -> None:
    """With --until-end the job ends, and what it is started for again comes out once."""
    from mybank.jobs import large

    bus.topic("mybank.large")
    arguments = [*bus.arguments, "--out", str(tmp_path), "--amount", "500", "--until-end"]
    assert large.main(arguments) == 0
    assert large.main(arguments) == 0
    due = {row.id: str(row.amount) for row in topics if row.amount >= 500}
    assert ran(bus, amounts_in(bus, "mybank.large", len(due))) == due

    async def written() -> int:
        async with Admin(bus.bootstrap_servers) as admin:
            return sum((await admin.list_offsets({TopicPartition("mybank.large", 0): -1})).values())

    assert ran(bus, written()) == len(due)


def test_real_time_mode_wants_a_slot_for_each_partition(
    bus: Any,  # noqa: F811 - the fixture
    spark: Any,
    tmp_path: Path,
    capfd: Any,
) -> None:
    """More partitions than a local master has threads would leave some of them unread: it is refused, with the remedy."""
    from mybank.jobs import large

    bus.topic("mybank.public.transactions", spark.sparkContext.defaultParallelism + 1)
    bus.topic("mybank.large")

    async def start() -> None:
        async with writing(bus) as (captured, _):
            await captured.transaction(1, "500.00")

    ran(bus, start())
    assert large.main([*bus.arguments, "--out", str(tmp_path)]) == 1
    assert "Real-Time Mode holds a task slot for each of the 3 partitions" in capfd.readouterr().err


def ran(bus: Any, work: Coroutine[Any, Any, Any]) -> Any:  # noqa: F811 - the fixture's value
    """In the bus's own loop."""
    return bus.run(work)
