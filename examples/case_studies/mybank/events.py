"""The events, as they are in the topics.

Here: the rows that change data capture hands over, in the words of their tables, and the events of the service's own,
whose Avro schemas are in the registry.
Not here: what follows from them (`domain`).

The captured records are Debezium's: `__avro_aliases__` say what they are called there. Only the fields that are read are here.
"""

import datetime as dt
import enum
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated

from busway import Precision

Money = Annotated[Decimal, Precision(14, 2)]


class Kind(enum.Enum):
    """What moves money."""

    TRANSFER = "TRANSFER"
    CARD = "CARD"
    WITHDRAWAL = "WITHDRAWAL"
    DEPOSIT = "DEPOSIT"


# Captured


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountKey:
    """The primary key of `accounts`."""

    __avro_namespace__ = "mybank"
    __avro_aliases__ = ("mybank.public.accounts.Key",)

    id: str


@dataclass(slots=True, kw_only=True)
class AccountRow:
    """A row of `accounts`."""

    __avro_namespace__ = "mybank"
    __avro_aliases__ = ("mybank.public.accounts.Value",)

    id: str
    owner: str
    currency: str


@dataclass(slots=True, kw_only=True)
class AccountChange:
    """A change of `accounts`; `after` is None when the row was deleted."""

    __avro_namespace__ = "mybank"
    __avro_aliases__ = ("mybank.public.accounts.Envelope",)

    after: AccountRow | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionKey:
    """What the connector keys transactions by (`message.key.columns`), so that those of an account stay in their order."""

    __avro_namespace__ = "mybank"
    __avro_aliases__ = ("mybank.public.transactions.Key",)

    account_id: str


@dataclass(slots=True, kw_only=True)
class TransactionRow:
    """A row of `transactions`; `booked_at` is ISO 8601, as Debezium writes `timestamptz`."""

    __avro_namespace__ = "mybank"
    __avro_aliases__ = ("mybank.public.transactions.Value",)

    id: int
    account_id: str
    kind: str
    amount: Money
    currency: str
    booked_at: str


@dataclass(slots=True, kw_only=True)
class Source:
    """Where a change comes from; `ts_us` is when it was committed, in microseconds."""

    __avro_namespace__ = "mybank"
    __avro_aliases__ = ("io.debezium.connector.postgresql.Source",)

    ts_us: int | None = None


@dataclass(slots=True, kw_only=True)
class TransactionChange:
    """A change of `transactions`; `after` is None when the row was deleted."""

    __avro_namespace__ = "mybank"
    __avro_aliases__ = ("mybank.public.transactions.Envelope",)

    after: TransactionRow | None
    source: Source


# The service's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transaction that can be true: what `domain.booked` makes of a row.

    Attributes:
        id: the table's primary key.
        account_id: whose.
        kind: what it was.
        amount: over nothing, whichever way the money went.
        currency: ISO 4217, the account's own.
        booked_at: when, in UTC.
        committed_at: when the database committed it, in UTC.
    """

    id: int
    account_id: str
    kind: Kind
    amount: Decimal
    currency: str
    booked_at: dt.datetime
    committed_at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """From which amounts an account's owner wants alerts; the newest for each account stays in the compacted topic.

    Attributes:
        account_id: whose.
        single: for one transaction of a kind; kinds that are missing have the default.
        hourly: for all that left the account within an hour; None for never.
        changed_at: when, in UTC.
    """

    __avro_namespace__ = "mybank"

    account_id: str
    single: dict[str, Money] = field(default_factory=dict)
    hourly: Money | None = None
    changed_at: dt.datetime


class Reason(enum.Enum):
    """What an alert is for."""

    SINGLE = "SINGLE"
    """One transaction reached the threshold of its kind."""
    HOURLY = "HOURLY"
    """With this transaction, what left within an hour reached the threshold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """The owner of an account is alerted.

    Attributes:
        alert_id: `TRANSACTION:REASON`; the same however often the transaction is looked at.
        account_id, transaction_id, kind, currency, booked_at, committed_at: of the transaction that set it off.
        reason: which threshold was reached.
        amount: of the transaction, or of the hour.
        threshold: that was reached.
        raised_at: when the service raised it, in UTC.
    """

    __avro_namespace__ = "mybank"

    alert_id: str
    account_id: str
    transaction_id: int
    kind: Kind
    reason: Reason
    amount: Money
    threshold: Money
    currency: str
    booked_at: dt.datetime
    committed_at: dt.datetime
    raised_at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Outflow:
    """A transaction that counts for the hour."""

    __avro_namespace__ = "mybank"

    transaction_id: int
    amount: Money
    booked_at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Hour:
    """What left an account within the last hour; the newest for each account stays in the compacted topic.

    Attributes:
        account_id: whose.
        outflows: in the order of `booked_at`.
        over: whether their sum has reached the threshold; one alert for each time it does.
    """

    __avro_namespace__ = "mybank"

    account_id: str
    outflows: list[Outflow] = field(default_factory=list)
    over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Transferred:
    """The bank has moved money from one account to another; written with both transactions, by the outbox.

    Attributes:
        transfer_id: of the transfer.
        from_account, to_account: the payer's and the payee's.
        amount, currency: what was moved.
        transaction_ids: of the payer's booking and of the payee's.
        booked_at: when, in UTC.
    """

    __avro_namespace__ = "mybank"

    transfer_id: str
    from_account: str
    to_account: str
    amount: Money
    currency: str
    transaction_ids: list[int]
    booked_at: dt.datetime
