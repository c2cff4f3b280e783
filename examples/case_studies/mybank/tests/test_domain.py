"""The rules, without a bus and a database."""

import datetime as dt
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mybank import domain
from mybank.events import (
    AccountRow,
    Hour,
    Kind,
    Reason,
    Source,
    Thresholds,
    Transaction,
    TransactionChange,
    TransactionRow,
)

NOON = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)


def booked(number: int = 1, amount: str = "1000.00", kind: Kind = Kind.TRANSFER, second: int = 0) -> Transaction:
    """A transaction of one account."""
    return Transaction(
        id=number,
        account_id="a",
        kind=kind,
        amount=Decimal(amount),
        currency="EUR",
        booked_at=NOON + dt.timedelta(seconds=second),
        committed_at=NOON,
    )


def thresholds(hourly: str | None = None, **single: str) -> Thresholds:
    """An owner's wishes."""
    return Thresholds(
        account_id="a",
        single={kind: Decimal(amount) for kind, amount in single.items()},
        hourly=None if hourly is None else Decimal(hourly),
        changed_at=NOON,
    )


@pytest.mark.parametrize(
    ("amount", "wishes", "alerted"),
    [
        ("999.99", None, False),
        ("1000.00", None, True),
        ("49.99", thresholds(TRANSFER="50.00"), False),
        ("50.00", thresholds(TRANSFER="50.00"), True),
        ("50.00", thresholds(CARD="50.00"), False),
    ],
)
def test_an_owner_is_told_from_the_threshold_on(amount: str, wishes: Thresholds | None, *, alerted: bool) -> None:
    """At the threshold, to the cent, of the transaction's own kind; the default where none is set."""
    assert (domain.single(booked(amount=amount), wishes, NOON) is not None) is alerted


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 3 * 3600)), max_size=30), st.integers(0, 29))
def test_an_hour_is_told_each_time_it_goes_over_and_never_twice(flows: list[tuple[int, int]], again: int) -> None:
    """Transactions in any order of time, some looked at twice: the alerts are those of the sums computed by definition."""
    wishes, hour, alerts, expected, over = thresholds(hourly="800.00"), Hour(account_id="a"), [], [], False
    for offset, (amount, second) in enumerate(flows):
        transaction = booked(offset, f"{amount}.00", second=second)
        hour, raised = domain.judge(hour, transaction, wishes, NOON)
        alerts += [alert.transaction_id for alert in raised]
        if offset == again:
            assert domain.judge(hour, transaction, wishes, NOON) == (hour, [])
        newest = max(amount for _, amount in flows[: offset + 1])
        total = sum(amount for amount, at in flows[: offset + 1] if newest - at < 3600)
        expected += [offset] if total >= 800 and not over else []
        over = total >= 800
    assert alerts == expected


def test_a_transaction_that_comes_again_takes_its_own_place() -> None:
    """Captured again, with a corrected amount, it counts once for the hour."""
    wishes, hour = thresholds(hourly="800.00"), Hour(account_id="a")
    hour, _ = domain.judge(hour, booked(1, "500.00"), wishes, NOON)
    hour, none = domain.judge(hour, booked(1, "700.00"), wishes, NOON)
    assert (none, [flow.amount for flow in hour.outflows]) == ([], [Decimal("700.00")])
    hour, (alert,) = domain.judge(hour, booked(2, "100.00"), wishes, NOON)
    assert (alert.alert_id, alert.amount) == ("2:HOURLY", Decimal("800.00"))


def test_what_comes_in_does_not_count_for_what_goes_out() -> None:
    """A deposit is alerted by itself and leaves the hour as it is."""
    hour, (alert,) = domain.judge(
        Hour(account_id="a"), booked(amount="1000.00", kind=Kind.DEPOSIT), thresholds(hourly="1.00"), NOON
    )
    assert (alert.reason, hour.outflows) == (Reason.SINGLE, [])


def captured(**changes: object) -> TransactionChange:
    """A row as the connector hands it over."""
    given = {
        "id": 1, "account_id": "a", "kind": "CARD", "amount": Decimal("10.00"), "currency": "EUR",
        "booked_at": "2026-06-01T14:00:00.000001+02:00", **changes,
    }  # fmt: skip
    return TransactionChange(after=TransactionRow(**given), source=Source(ts_us=1_780_315_200_000_000))  # type: ignore[arg-type]


def read(change: TransactionChange, account: AccountRow | None) -> Transaction:
    """What the rules make of it."""
    assert change.after is not None
    return domain.booked(change, change.after, account)


def test_a_row_becomes_a_transaction() -> None:
    """Amounts to the cent, times in UTC, whatever zone the database shows."""
    transaction = read(captured(), AccountRow(id="a", owner="customer", currency="EUR"))
    assert transaction == Transaction(
        id=1, account_id="a", kind=Kind.CARD, amount=Decimal("10.00"), currency="EUR",
        booked_at=NOON + dt.timedelta(microseconds=1), committed_at=NOON,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"amount": Decimal(0)}, "amount is 0"),
        ({"amount": Decimal("-1.00")}, r"amount is -1\.00"),
        ({"amount": Decimal("0.001")}, r"amount is 0\.001"),
        ({"amount": Decimal("NaN")}, "amount is NaN"),
        ({"amount": Decimal("1000000000000.00")}, "amount is 1000000000000"),
        ({"kind": "GIFT"}, "kind is 'GIFT'; there are TRANSFER"),
        ({"currency": "USD"}, "currency is 'USD', and account a is in EUR"),
        ({"booked_at": "infinity"}, "booked_at is 'infinity'"),
    ],
)
def test_rows_that_cannot_be_are_refused_by_column(changes: dict[str, object], named: str) -> None:
    """The reason names the column and what would be right."""
    with pytest.raises(domain.Impossible, match=named):
        read(captured(**changes), AccountRow(id="a", owner="customer", currency="EUR"))


def test_an_account_may_still_come() -> None:
    """An unknown account is another matter than an impossible row: it is tried again."""
    with pytest.raises(domain.UnknownAccount, match="account_id is 'a'"):
        read(captured(), None)


@pytest.mark.parametrize(
    ("single", "hourly", "named"),
    [
        ({"GIFT": Decimal(1)}, None, "single is 'GIFT'"),
        ({"CARD": Decimal(-1)}, None, r"single\.CARD is -1"),
        ({}, Decimal(0), "hourly is 0"),
    ],
)
def test_thresholds_that_cannot_be_are_refused(single: dict[str, Decimal], hourly: Decimal | None, named: str) -> None:
    """The refusal names the one."""
    with pytest.raises(domain.Impossible, match=named):
        domain.thresholds("a", single, hourly, NOON)


def test_an_alert_has_one_name() -> None:
    """The id tells transaction and reason, so it is the same however often the transaction is looked at."""
    first = domain.single(booked(7), None, NOON)
    second = domain.single(booked(7), None, NOON + dt.timedelta(seconds=9))
    assert first is not None
    assert second is not None
    assert first.alert_id == second.alert_id == f"7:{Reason.SINGLE.value}"
