"""The rules, without a bus and a database."""

import datetime as dt
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mybank import domain
from mybank.events import Hour, Kind, Reason, Thresholds, Transaction

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
    ("amount", "wishes", "told"),
    [
        ("999.99", None, False),
        ("1000.00", None, True),
        ("49.99", thresholds(TRANSFER="50.00"), False),
        ("50.00", thresholds(TRANSFER="50.00"), True),
        ("50.00", thresholds(CARD="50.00"), False),
    ],
)
def test_an_owner_is_told_from_the_threshold_on(amount: str, wishes: Thresholds | None, *, told: bool) -> None:
    """At the threshold, to the cent, of the transaction's own kind; the default where none is set."""
    assert (domain.single(booked(amount=amount), wishes, NOON) is not None) is told


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 3 * 3600)), max_size=30), st.integers(0, 29))
def test_an_hour_is_told_each_time_it_goes_over_and_never_twice(flows: list[tuple[int, int]], again: int) -> None:
    """Transactions in any order of time, some looked at twice: the alerts are those of the sums computed by definition."""
    wishes, hour, alerts, expected, over = thresholds(hourly="800.00"), Hour(account_id="a"), [], [], False
    for offset, (amount, second) in enumerate(flows):
        transaction = booked(offset, f"{amount}.00", second=second)
        hour, alert = domain.hourly(hour, transaction, wishes, offset, NOON)
        alerts += [alert.transaction_id] if alert is not None else []
        if offset == again:
            assert domain.hourly(hour, transaction, wishes, offset, NOON) == (hour, None)
        newest = max(one for _, one in flows[: offset + 1])
        total = sum(one for one, at in flows[: offset + 1] if newest - at < 3600)
        expected += [offset] if total >= 800 and not over else []
        over = total >= 800
    assert alerts == expected


@pytest.mark.parametrize("amount", ["0", "-1.00", "0.001", "NaN", "1000000000000.00"])
def test_no_such_amount(amount: str) -> None:
    """Nothing, less than nothing, fractions of a cent and more than there is are refused, naming the amount."""
    with pytest.raises(domain.Impossible, match="amount is"):
        domain.check(booked(amount=amount))


def test_an_alert_has_one_name() -> None:
    """The id tells transaction and reason, so it is the same however often the transaction is looked at."""
    first = domain.single(booked(7), None, NOON)
    second = domain.single(booked(7), None, NOON + dt.timedelta(seconds=9))
    assert first is not None
    assert second is not None
    assert first.alert_id == second.alert_id == f"7:{Reason.SINGLE.value}"
