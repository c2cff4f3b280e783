"""Transactions into the analytics store, and what each account spends a day.

    busway spark mybank.jobs.spending --out store --until-end

Here: two tables. `OUT/transactions` gets every captured row once, in order of arrival, corrections included;
`OUT/spending` is made again from it by each run with `--until-end`: it has one row for an account and a day.
Not here: alerts (`running`).
"""

import sys
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.streaming import StreamingQuery

from busway_spark.job import Job, run_job
from mybank.jobs.captured import ACCOUNTS, TRANSACTIONS, accounts, newest, possible, rows


def transform(transactions: DataFrame, known: DataFrame) -> DataFrame:
    """Daily spending: `account_id`, `day` (of UTC), `currency`, `transactions`, `spent`, `largest`.

    Args:
        transactions: rows as `captured.rows` makes them; of a row that was corrected the newest counts.
        known: accounts as `captured.accounts` makes them.
    """
    outgoing = possible(newest(transactions, "id"), known).where("kind <> 'DEPOSIT'")
    day = F.to_date(F.to_utc_timestamp("booked_at", F.current_timezone())).alias("day")
    return outgoing.groupBy("account_id", day, "currency").agg(
        F.count("*").alias("transactions"),
        F.sum("amount").cast("decimal(18,2)").alias("spent"),
        F.max("amount").alias("largest"),
    )


def work(job: Job) -> None:
    """The rows as a stream, exactly once; the days from what is then in the store."""

    def start() -> list[StreamingQuery | None]:
        return [job.store(rows(job.stream(TRANSACTIONS)), "transactions")]

    job.run(start, topics=[TRANSACTIONS])
    stored = job.spark.read.format(job.format).load(job.place("transactions"))
    daily = transform(stored, accounts(job.read(ACCOUNTS)))
    daily.write.format(job.format).mode("overwrite").save(job.place("spending"))


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; 0, or 1 with one line that says what is missing."""
    return run_job("spending", __doc__, argv, work, topics=lambda given: [TRANSACTIONS, ACCOUNTS])


if __name__ == "__main__":
    sys.exit(main())
