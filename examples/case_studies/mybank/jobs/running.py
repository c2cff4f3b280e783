"""The alerts once more, by Spark: the service's own rule on the same topic, with its state kept by `transformWithState`.

    busway spark mybank.jobs.running --out store --until-end

Here: the rule around `domain.judge`, and its state.
Not here: the rule. On a topic whose thresholds have not changed meanwhile the alerts are those of the service; so it is
a check of the service, and what alerts would have been with other thresholds.
"""

import datetime as dt
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec
import pandas as pd  # type: ignore[import-untyped, unused-ignore]
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from busway_spark.job import Job, run_job
from mybank import domain
from mybank.events import Alert, Hour, Kind, Thresholds, Transaction
from mybank.jobs.captured import ACCOUNTS, THRESHOLDS, TRANSACTIONS, accounts, newest, possible, rows

COLUMNS: Final = (
    "alert_id string, account_id string, transaction_id long, kind string, reason string, amount decimal(14,2), "
    "threshold decimal(14,2), currency string, booked_us long"
)


_EVER: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Running(StatefulProcessor):  # type: ignore[misc, unused-ignore]
    """The hour of one account, and which of its alerts were raised; both as in the service's tables."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """The state's columns."""
        self._hour = handle.getValueState("hour", "json string")
        self._raised = handle.getMapState("raised", "alert_id string", "raised boolean")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803 - Spark's names
        """Judge the transactions of a micro-batch in the order of the topic."""
        account: str = key[0]
        known = self._hour.exists()
        hour = msgspec.json.decode(self._hour.get()[0], type=Hour) if known else Hour(account_id=account)
        new_alerts: list[Alert] = []
        for row in pd.concat(rows).sort_values("position").to_dict("records"):
            transaction = _transaction(row)
            hour, alerts = domain.judge(hour, transaction, _wishes(row), transaction.committed_at)
            for alert in alerts:
                if not self._raised.containsKey((alert.alert_id,)):
                    self._raised.updateValue((alert.alert_id,), (True,))
                    new_alerts.append(alert)
        self._hour.update((msgspec.json.encode(hour).decode(),))
        if new_alerts:
            yield pd.DataFrame([_columns(alert) for alert in new_alerts])

    def close(self) -> None:
        """Nothing is open."""


def _transaction(row: dict[str, Any]) -> Transaction:
    return Transaction(
        id=int(row["id"]),
        account_id=row["account_id"],
        kind=Kind(row["kind"]),
        amount=row["amount"],
        currency=row["currency"],
        booked_at=_EVER + dt.timedelta(microseconds=int(row["booked_us"])),
        committed_at=_EVER + dt.timedelta(microseconds=int(row["committed_us"])),
    )


def _wishes(row: dict[str, Any]) -> Thresholds | None:
    if row["single"] is None:
        return None
    single = msgspec.json.decode(row["single"], type=dict[str, Decimal])
    hourly = None if row["hourly"] is None else Decimal(row["hourly"])
    return Thresholds(account_id=row["account_id"], single=single, hourly=hourly, changed_at=_EVER)


def _columns(alert: Alert) -> dict[str, Any]:
    return {
        "alert_id": alert.alert_id,
        "account_id": alert.account_id,
        "transaction_id": alert.transaction_id,
        "kind": alert.kind.value,
        "reason": alert.reason.value,
        "amount": alert.amount,
        "threshold": alert.threshold,
        "currency": alert.currency,
        "booked_us": (alert.booked_at - _EVER) // dt.timedelta(microseconds=1),
    }


def wishes(thresholds: DataFrame) -> DataFrame:
    """The thresholds in force: `account_id`, `single` as JSON and `hourly` as text, so that no amount is ever a float.

    Args:
        thresholds: as `read_topic` returns the compacted topic.
    """
    rows_of_wishes = thresholds.where("error IS NULL").select(
        F.col("key").cast("string").alias("account_id"),
        "deleted",
        F.to_json(F.transform_values("event.single", lambda _, amount: amount.cast("string"))).alias("single"),
        F.col("event.hourly").cast("string").alias("hourly"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
    )
    return newest(rows_of_wishes, "account_id").where(~F.col("deleted")).select("account_id", "single", "hourly")


def transform(changes: DataFrame, known: DataFrame, thresholds: DataFrame) -> DataFrame:
    """The alerts: `COLUMNS`, with `booked_at` as a timestamp.

    Args:
        changes: the captured transactions, as `read_topic` or `stream_topic` returns them.
        known: as `captured.accounts` makes them.
        thresholds: as `wishes` makes them.
    """
    judged = possible(rows(changes), known).join(thresholds, "account_id", "left")
    # Times as numbers: pandas gets timestamps in the session's time zone, and without it. No name that begins with `_`: it would be lost.
    numbers = judged.select(
        "account_id",
        "id",
        "kind",
        "amount",
        "currency",
        "single",
        "hourly",
        F.col("_offset").alias("position"),
        F.unix_micros("booked_at").alias("booked_us"),
        F.unix_micros("committed_at").alias("committed_us"),
    )
    alerts = numbers.groupBy("account_id").transformWithStateInPandas(Running(), COLUMNS, "append", "none")
    return alerts.withColumn("booked_at", F.timestamp_micros("booked_us")).drop("booked_us")


def work(job: Job) -> None:
    """Alerts as a stream; accounts and thresholds as they are when it starts."""

    def start() -> list[StreamingQuery | None]:
        known, thresholds = accounts(job.read(ACCOUNTS)), wishes(job.read(THRESHOLDS))
        return [job.store(transform(job.stream(TRANSACTIONS), known, thresholds), "alerts")]

    job.run(start, topics=[TRANSACTIONS])


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; 0, or 1 with one line that says what is missing."""
    return run_job("running", __doc__, argv, work, topics=lambda given: [TRANSACTIONS, ACCOUNTS, THRESHOLDS])


if __name__ == "__main__":
    sys.exit(main())
