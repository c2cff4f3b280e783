"""The service: transactions in, alerts out. `busway run mybank.service:app` from the folder above runs it.

Here: topics, tables, the handler.
Not here: the rules (`domain`), the page (`http`), the bank's own side (`bank`).

Why nothing is lost or alerted twice. The alerts of a transaction, the account's hour and the place among the transactions are committed
together, or not at all. The table of alerts is asked for another reason: the bank corrects rows and connectors read tables again, and
neither tells anybody twice.
"""

import datetime as dt
import os

from busway import App, ConsumerRecord, Retry
from busway.web import Web
from mybank import domain, http
from mybank.events import (
    AccountChange,
    AccountKey,
    Alert,
    Hour,
    Thresholds,
    TransactionChange,
    TransactionKey,
)
from mybank.pulse import Pulse
from mybank.topics import ALERTS, ALERTS_CONFIGS, PARTITIONS

CONCURRENCY = 64
"""Records of a partition that are under way at once, one of an account at a time: they wait for the same threshold to be read."""

pulse = Pulse()
app = App(
    "mybank",
    bootstrap_servers=os.environ.get("BUSWAY_BOOTSTRAP_SERVERS", "localhost:9092"),
    schema_registry=os.environ.get("BUSWAY_SCHEMA_REGISTRY", "http://localhost:8081"),
    # With a name of its own, an instance that comes back takes its partitions over at once (static membership).
    consumer={"group_instance_id": os.environ.get("MYBANK_INSTANCE"), "fetch_max_wait_ms": 100},
    lifespan=pulse.running,
)
transactions = app.topic(
    "mybank.public.transactions",
    key=TransactionKey,
    key_format="avro",
    value=TransactionChange,
    partitions=PARTITIONS,
    read_only=True,
)
accounts = app.global_table(
    "mybank.public.accounts", key=AccountKey, key_format="avro", value=AccountChange, partitions=1, read_only=True
)
thresholds = app.global_table("mybank.thresholds", value=Thresholds, partitions=1)
alerts = app.table(ALERTS, value=Alert, configs=ALERTS_CONFIGS)
hours = app.table("mybank.hours", value=Hour)
web = app.extend(Web(http.create(accounts, thresholds, alerts, pulse)))


def has_row(record: ConsumerRecord[TransactionKey, TransactionChange]) -> bool:
    """Whether it is a row that was read, inserted or corrected; a deleted one is nothing to tell."""
    return record.value is not None and record.value.after is not None


@app.subscribe(
    transactions,
    where=has_row,
    concurrency=CONCURRENCY,
    retry=Retry(give_up_on=(domain.Impossible,)),
    guarantee="exactly_once",
)
async def judge(change: TransactionChange, record: ConsumerRecord[TransactionKey, TransactionChange]) -> None:
    """Tell the owner what reaches a threshold."""
    row = change.after
    assert row is not None, "see has_row"
    key = AccountKey(id=row.account_id)
    # A threshold that was set and acknowledged, on whatever instance, is in force for every transaction from then on.
    await thresholds.caught_up()
    if key not in accounts:
        await accounts.caught_up()
    account = accounts.get(key)
    transaction = domain.booked(change, row, account.after if account is not None else None)
    hour = hours.get(row.account_id) or Hour(account_id=row.account_id)
    wishes = thresholds.get(row.account_id)
    after, raised = domain.judge(hour, transaction, wishes, dt.datetime.now(dt.UTC))
    new = [alert for alert in raised if alert.alert_id not in alerts]
    for alert in new:
        await alerts.put(alert.alert_id, alert, partition=record.partition)
    if after is not hour:
        await hours.put(row.account_id, after, partition=record.partition)
    pulse.judged(transaction, new)
