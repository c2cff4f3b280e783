"""The rules: which transactions alert whom.

Here: pure functions over exact decimals.
Not here: topics, the database, time.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Final

from mybank.events import (
    AccountRow,
    Alert,
    Hour,
    Kind,
    Outflow,
    Reason,
    Thresholds,
    Transaction,
    TransactionChange,
    TransactionRow,
)

DEFAULT_SINGLE: Final = Decimal("1000.00")
"""From which amount on an owner without thresholds is alerted."""
MOST: Final = Decimal("999999999999.99")
HOUR: Final = dt.timedelta(hours=1)
OUTGOING: Final = frozenset({Kind.TRANSFER, Kind.CARD, Kind.WITHDRAWAL})
OUTFLOWS_MOST: Final = 2000
"""Transactions of one account that an hour is kept of; the oldest are summed up no more beyond it, which no person's account reaches."""
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_KINDS: Final = ", ".join(kind.value for kind in Kind)


class Impossible(ValueError):
    """A transaction or a threshold that cannot be; names the field."""


class UnknownAccount(LookupError):
    """A transaction of an account that has not come yet; it may still."""


def check_money(name: str, amount: Decimal) -> Decimal:
    """The amount in cents, if it is one.

    Raises:
        Impossible: it is negative, zero, too large, or has fractions of a cent.
    """
    if not amount.is_finite() or not 0 < amount <= MOST:
        raise Impossible(f"{name} is {amount}; an amount is over 0 and at most {MOST}")
    if amount != amount.quantize(Decimal("0.01")):
        raise Impossible(f"{name} is {amount}; cents are the smallest")
    return amount.quantize(Decimal("0.01"))


def kind_of(name: str, text: str) -> Kind:
    """The kind that is called so.

    Raises:
        Impossible: none is.
    """
    try:
        return Kind(text)
    except ValueError:
        raise Impossible(f"{name} is {text!r}; there are {_KINDS}") from None


def booked(change: TransactionChange, row: TransactionRow, account: AccountRow | None) -> Transaction:
    """The transaction in a captured row.

    Raises:
        Impossible: it cannot be true; names the column.
        UnknownAccount: there is no such account, so far.
    """
    amount, kind = check_money("amount", row.amount), kind_of("kind", row.kind)
    try:
        booked_at = dt.datetime.fromisoformat(row.booked_at).astimezone(dt.UTC)
    except (ValueError, OverflowError):
        raise Impossible(f"booked_at is {row.booked_at!r}, which is no time of the calendar") from None
    if account is None:
        raise UnknownAccount(f"account_id is {row.account_id!r}, and there is no such account; add it and replay this")
    if row.currency != account.currency:
        raise Impossible(f"currency is {row.currency!r}, and account {account.id} is in {account.currency}")
    return Transaction(
        id=row.id,
        account_id=row.account_id,
        kind=kind,
        amount=amount,
        currency=row.currency,
        booked_at=booked_at,
        committed_at=_EPOCH + dt.timedelta(microseconds=change.source.ts_us or 0),
    )


def thresholds(
    account_id: str, singles: Mapping[str, Decimal], hourly: Decimal | None, changed_at: dt.datetime
) -> Thresholds:
    """An owner's wishes, if they make sense.

    Raises:
        Impossible: an amount or a kind cannot be; names it.
    """
    return Thresholds(
        account_id=account_id,
        single={
            kind_of("single", name).value: check_money(f"single.{name}", amount) for name, amount in singles.items()
        },
        hourly=None if hourly is None else check_money("hourly", hourly),
        changed_at=changed_at,
    )


def threshold_of(wishes: Thresholds | None, kind: Kind) -> Decimal:
    """From which amount on one transaction of this kind is alerted."""
    return DEFAULT_SINGLE if wishes is None else wishes.single.get(kind.value, DEFAULT_SINGLE)


def judge(
    hour: Hour, transaction: Transaction, wishes: Thresholds | None, now: dt.datetime
) -> tuple[Hour, Sequence[Alert]]:
    """The hour with a transaction in it, and the alerts that it sets off.

    A transaction that comes again (its row was corrected, or the table was read again) takes the place of the one with its id.
    """
    alone = single(transaction, wishes, now)
    after, together = hourly(hour, transaction, wishes, now)
    return after, [alert for alert in (alone, together) if alert is not None]


def single(transaction: Transaction, wishes: Thresholds | None, now: dt.datetime) -> Alert | None:
    """The alert for a transaction by itself, if it reaches the threshold of its kind."""
    threshold = threshold_of(wishes, transaction.kind)
    if transaction.amount < threshold:
        return None
    return _alert(transaction, Reason.SINGLE, transaction.amount, threshold, now)


def hourly(
    hour: Hour, transaction: Transaction, wishes: Thresholds | None, now: dt.datetime
) -> tuple[Hour, Alert | None]:
    """The hour with a transaction in it, and the alert if its sum reaches the threshold that it was below.

    The hour ends with the newest `booked_at`, so that it is the same whenever the transaction is looked at.
    """
    if transaction.kind not in OUTGOING:
        return hour, None
    own_flow = Outflow(transaction_id=transaction.id, amount=transaction.amount, booked_at=transaction.booked_at)
    others = [flow for flow in hour.outflows if flow.transaction_id != transaction.id]
    flows = sorted([*others, own_flow], key=lambda flow: (flow.booked_at, flow.transaction_id))
    newest = flows[-1].booked_at
    flows = [flow for flow in flows if newest - flow.booked_at < HOUR][-OUTFLOWS_MOST:]
    limit = None if wishes is None else wishes.hourly
    total = sum((flow.amount for flow in flows), Decimal(0))
    over = limit is not None and total >= limit
    after = replace(hour, outflows=flows, over=over)
    if limit is None or not over or hour.over:
        return after, None
    return after, _alert(transaction, Reason.HOURLY, min(total, MOST), limit, now)


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
        committed_at=transaction.committed_at,
        raised_at=now,
    )
