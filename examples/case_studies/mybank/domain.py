"""The rules: which transactions are told to whom.

What lives here: pure functions over exact decimals. What does not: topics, the database, time.
"""

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import Final

from mybank.events import Alert, Hour, Kind, Outflow, Reason, Thresholds, Transaction

DEFAULT_SINGLE: Final = Decimal("1000.00")
"""From which amount on an owner is told who has said nothing."""
MOST: Final = Decimal("999999999999.99")
HOUR: Final = dt.timedelta(hours=1)
OUTGOING: Final = frozenset({Kind.TRANSFER, Kind.CARD, Kind.WITHDRAWAL})
OUTFLOWS_MOST: Final = 2000
"""Transactions of one account that an hour is kept of; the oldest are summed up no more beyond it, which no person's account reaches."""


class Impossible(ValueError):
    """A transaction or a threshold that cannot be; names the field."""


def check_money(name: str, amount: Decimal, *, zero: bool = False) -> Decimal:
    """The amount, if it is one.

    Raises:
        Impossible: it is negative, zero, too large, or has fractions of a cent.
    """
    if not amount.is_finite() or amount < 0 or (amount == 0 and not zero) or amount > MOST:
        raise Impossible(f"{name} is {amount}; an amount is over 0 and at most {MOST}")
    if amount != amount.quantize(Decimal("0.01")):
        raise Impossible(f"{name} is {amount}; cents are the smallest")
    return amount.quantize(Decimal("0.01"))


def check(transaction: Transaction) -> None:
    """Whether a transaction can be true.

    Raises:
        Impossible: it cannot.
    """
    check_money("amount", transaction.amount)
    if len(transaction.currency) != 3 or not (transaction.currency.isalpha() and transaction.currency.isupper()):
        raise Impossible(f"currency is {transaction.currency!r}; give three capital letters (ISO 4217)")
    if not transaction.account_id:
        raise Impossible("account_id is empty")


def threshold_of(thresholds: Thresholds | None, kind: Kind) -> Decimal:
    """From which amount on one transaction of this kind is told."""
    return DEFAULT_SINGLE if thresholds is None else thresholds.single.get(kind.value, DEFAULT_SINGLE)


def single(transaction: Transaction, thresholds: Thresholds | None, now: dt.datetime) -> Alert | None:
    """The alert for a transaction by itself, if it reaches the threshold of its kind."""
    threshold = threshold_of(thresholds, transaction.kind)
    if transaction.amount < threshold:
        return None
    return _alert(transaction, Reason.SINGLE, transaction.amount, threshold, now)


def hourly(
    hour: Hour, transaction: Transaction, thresholds: Thresholds | None, offset: int, now: dt.datetime
) -> tuple[Hour, Alert | None]:
    """The hour with a transaction in it, and the alert if its sum reaches the threshold that it was below.

    The hour ends with the newest `booked_at`, so that it is the same whenever the transaction is looked at. What is known already, at or
    below `last_offset`, changes nothing.
    """
    if offset <= hour.last_offset:
        return hour, None
    if transaction.kind not in OUTGOING:
        return replace(hour, last_offset=offset), None
    mine = Outflow(transaction_id=transaction.id, amount=transaction.amount, booked_at=transaction.booked_at)
    flows = sorted([*hour.outflows, mine], key=lambda flow: (flow.booked_at, flow.transaction_id))
    newest = flows[-1].booked_at
    flows = [flow for flow in flows if newest - flow.booked_at < HOUR][-OUTFLOWS_MOST:]
    limit = None if thresholds is None else thresholds.hourly
    total = sum((flow.amount for flow in flows), Decimal(0))
    over = limit is not None and total >= limit
    after = replace(hour, outflows=flows, over=over, last_offset=offset)
    if not over or hour.over:
        return after, None
    assert limit is not None
    return after, _alert(transaction, Reason.HOURLY, total, limit, now)


def _alert(transaction: Transaction, reason: Reason, amount: Decimal, threshold: Decimal, now: dt.datetime) -> Alert:
    return Alert(
        alert_id=f"{transaction.id}:{reason.value}",
        account_id=transaction.account_id,
        transaction_id=transaction.id,
        kind=transaction.kind,
        reason=reason,
        amount=amount,
        threshold=threshold,
        currency=transaction.currency,
        booked_at=transaction.booked_at,
        raised_at=now,
    )
