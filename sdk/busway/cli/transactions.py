"""`busway transactions`."""

from typing import Annotated

import typer

from busway.admin.admin import Admin
from busway.admin.transactions import HANGING_AFTER_MS, HangingTransaction
from busway.cli.output import BOOTSTRAP, AsJson, Bootstrap, CommandFailed, run, show, show_rows
from busway.types import TopicPartition

app: typer.Typer = typer.Typer(
    help="List, describe and abort transactions, and find those that no coordinator ends.", no_args_is_help=True
)
Topic = Annotated[str | None, typer.Option("--topic", "-t", help="Only in this topic; by default in all topics.")]
_IDLE_MINUTES = HANGING_AFTER_MS / 60_000
_IDLE_MINUTES_MAX = 1_000_000
IdleMinutes = Annotated[
    float,
    typer.Option(
        "--idle-minutes",
        help="Only of producers without a write for this time.",
        min=0,
        max=_IDLE_MINUTES_MAX,
    ),
]


@app.command("list")
def list_transactions(
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Ongoing, CompleteCommit and so on; repeatable.")
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List transactional ids with the states of their transactions."""

    async def work() -> list[dict[str, object]]:
        async with Admin(bootstrap) as admin:
            return [
                {
                    "transactional_id": transaction.transactional_id,
                    "state": transaction.state,
                    "producer_id": transaction.producer_id,
                }
                for transaction in await admin.list_transactions(states=state or ())
            ]

    show_rows(run(work()), as_json=as_json, title="transactions")


@app.command("describe")
def describe(
    transactional_id: Annotated[str, typer.Argument(help="The transactional id.")],
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show the coordinator's state of a transactional id and the partitions of its transaction."""

    async def work() -> dict[str, object]:
        async with Admin(bootstrap) as admin:
            transaction = await admin.describe_transaction(transactional_id)
        return {
            "transactional_id": transactional_id,
            "state": transaction.state,
            "coordinator": transaction.coordinator,
            "producer_id": transaction.producer_id,
            "producer_epoch": transaction.producer_epoch,
            "timeout_ms": transaction.timeout_ms,
            "started_ms": transaction.started_ms if transaction.started_ms >= 0 else None,
            "partitions": [f"{topic}-{number}" for topic, number in sorted(transaction.partitions)],
        }

    row = run(work())
    if as_json:
        show(row, "", as_json=True)
    else:
        show_rows([row], as_json=False, title="transactions")


@app.command("hanging")
def hanging(
    topic: Topic = None,
    idle_minutes: IdleMinutes = _IDLE_MINUTES,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Find transactions that are open in a partition and unknown to their coordinator: readers wait for ever."""

    async def work() -> list[dict[str, object]]:
        async with Admin(bootstrap) as admin:
            return [_row(transaction) for transaction in await _hanging(admin, topic, idle_minutes)]

    show_rows(run(work()), as_json=as_json, title="hanging transactions")


@app.command("abort")
def abort(
    transactional_id: Annotated[
        str | None, typer.Argument(help="Fence the producer of this id and abort its open transaction.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Abort a hanging transaction: the topic that it is open in.")
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", help="The partition of that topic.")] = None,
    open_from: Annotated[
        int | None, typer.Option("--open-from", help="Its first offset, as `busway transactions hanging` shows it.")
    ] = None,
    idle_minutes: IdleMinutes = _IDLE_MINUTES,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Abort the transaction of a transactional id, or a hanging one of a partition."""

    async def work() -> str:
        async with Admin(bootstrap) as admin:
            if transactional_id is not None:
                await admin.abort_transaction(transactional_id)
                return transactional_id
            where = TopicPartition(topic or "", -1 if partition is None else partition)
            for transaction in await _hanging(admin, topic, idle_minutes):
                if transaction.partition == where and transaction.open_from == open_from:
                    await admin.abort_hanging_transaction(transaction)
                    return f"the transaction at offset {open_from} of {where.topic}-{where.partition}"
        raise CommandFailed(
            f"no transaction hangs at offset {open_from} of {where.topic}-{where.partition}; "
            "`busway transactions hanging` shows those that do"
        )

    by_place = (topic, partition, open_from)
    if (transactional_id is None) is (None in by_place) or (transactional_id and any(by_place)):
        raise CommandFailed("give a transactional id, or --topic, --partition and --open-from of one that hangs")
    what = run(work())
    show({"aborted": what}, f"aborted {what}", as_json=as_json)


async def _hanging(admin: Admin, topic: str | None, idle_minutes: float) -> list[HangingTransaction]:
    topics = await admin.describe_topics(None if topic is None else [topic])
    partitions = [
        TopicPartition(name, info.number) for name, topic_info in topics.items() for info in topic_info.partitions
    ]
    return await admin.find_hanging_transactions(partitions, idle_ms=int(idle_minutes * 60_000))


def _row(transaction: HangingTransaction) -> dict[str, object]:
    return {
        "topic": transaction.partition.topic,
        "partition": transaction.partition.partition,
        "open_from": transaction.open_from,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "transactional_id": transaction.transactional_id,
        "last_ms": transaction.last_ms,
    }
