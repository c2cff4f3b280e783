"""Very large transactions, within milliseconds: a filter without state in Spark's Real-Time Mode, from topic to topic.

    busway spark mybank.jobs.large --amount 100000 --to mybank.large

Here: the filter.
Not here: thresholds of owners (`running`); this is what the bank itself watches.
"""

import argparse
import sys
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.streaming import StreamingQuery

from busway_spark.job import Job, add_mode, run_job
from mybank.jobs.captured import TRANSACTIONS, rows


def transform(changes: DataFrame, amount: Decimal) -> DataFrame:
    """`key` (the account) and `value` (JSON, amounts as text) of each row from that amount on."""
    large = rows(changes).where(F.col("amount") >= F.lit(amount).cast("decimal(14,2)"))
    columns = large.select(
        "account_id", "id", "kind", F.col("amount").cast("string").alias("amount"), "currency", "booked_at"
    )
    return columns.select(F.col("account_id").alias("key"), F.to_json(F.struct("*")).alias("value"))


def work(job: Job) -> None:
    """Until it is stopped, or with `--until-end` what there is."""

    def start() -> list[StreamingQuery | None]:
        large = transform(job.stream(TRANSACTIONS, source="kafka"), job.given.amount)
        return [job.publish(large, job.given.to, "large", reads=[TRANSACTIONS])]

    job.run(start, topics=[TRANSACTIONS])


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_mode(parser)
    parser.add_argument(
        "--amount", type=_amount, default=Decimal("100000.00"), help="minimum amount; default 100000.00"
    )
    parser.add_argument("--to", default="mybank.large", help="existing output topic; default mybank.large")


def _amount(text: str) -> Decimal:
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise argparse.ArgumentTypeError(f"{text!r} is no amount") from None
    if not amount.is_finite() or amount <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not over 0")
    return amount


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; 0, or 1 with one line that says what is missing."""
    return run_job("large", __doc__, argv, work, topics=lambda given: [TRANSACTIONS], add_arguments=_arguments)


if __name__ == "__main__":
    sys.exit(main())
