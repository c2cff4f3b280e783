"""What is asked of Apache Kafka and of Busway alike about transactions.

Here: one function for each subject; every scenario has transactional ids of its own.
Not here: how answers are compared.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from tests.integration.broker.transactions_probe import READ, TransactionsRun

from busway_protocol.messages.groups_classic import FindCoordinatorRequest
from busway_protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)

Scenario = Callable[[TransactionsRun], Awaitable[None]]
OTHER: Final = ("two", 1)
MISSING: Final = (("nowhere", 0), ("one", 7))


async def coordinators(run: TransactionsRun) -> None:
    """Where they are, in every version; there is none of another type."""
    for version in range(1, 7):
        if version < 4:
            await run.ask(f"v{version}", FindCoordinatorRequest(key="x", key_type=1), at_most=version)
        else:
            request = FindCoordinatorRequest(coordinator_keys=["x", "y"], key_type=1)
            await run.ask(f"v{version}", request, at_most=version)


async def identities(run: TransactionsRun) -> None:
    """Epochs rise; who names an identity goes on with it, repeats itself, or is fenced."""
    for version in range(6):
        await run.begun(f"v{version}", "ids", at_most=version)
    current = await run.begun("again", "ids")
    raised = await run.begun("raised", "ids", current)
    await run.begun("raised once more", "ids", current)
    await run.begun("raised twice", "ids", raised)
    for version in (3, 4, 5):
        await run.begun(f"long gone, v{version}", "ids", (current[0], 0), at_most=version)
    await run.begun("of another", "ids", (current[0] + 50_000, 3))
    await run.begun("of nobody", "ids-new", (current[0], 3))
    for timeout_ms in (-1, 0, 900_001):
        await run.begun(f"timeout {timeout_ms}", "ids", timeout_ms=timeout_ms)
    await run.begun("longest timeout", "ids", timeout_ms=900_000)
    await run.begun("an empty name", "")
    await run.begun("half an identity", "ids", (5, -1))


async def additions(run: TransactionsRun) -> None:
    """Partitions of topics that are there, by the current producer; all of a request or none."""
    current = await run.begun("begin", "add")
    for version in range(4):
        await run.add(f"v{version}", "add", current, at_most=version)
    await run.add("more", "add", current, OTHER, READ)
    await run.add("one is not there", "add", current, *MISSING, OTHER)
    for version in range(4):
        await run.add(f"unknown, v{version}", "add-none", current, at_most=version)
        await run.add(f"old epoch, v{version}", "add", (current[0], current[1] - 1), at_most=version)
        await run.add(f"other producer, v{version}", "add", (current[0] + 50_000, 0), at_most=version)
    await run.add("no name", "", current)
    for version in (4, 5):
        for verify in (True, False):
            label = f"v{version}, {'verify' if verify else 'add'}"
            await run.batch(label, "add", current, READ, OTHER, verify=verify, at_most=version)
            await run.batch(f"{label} what is not in it", "add", current, READ, ("one", 1), verify=verify)
            await run.batch(f"{label} of nobody", "add-none", current, READ, verify=verify)
            await run.batch(f"{label} of old", "add", (current[0], 77), READ, verify=verify)
            await run.batch(f"{label} of what is not there", "add", current, *MISSING, READ, verify=verify)
    await run.ask("describe", DescribeTransactionsRequest(transactional_ids=["add", "add-none", ""]))


async def offsets(run: TransactionsRun) -> None:
    """A group's partition joins; refused as others are."""
    current = await run.begun("begin", "off")
    for version in range(5):
        request = AddOffsetsToTxnRequest(
            transactional_id="off", producer_id=current[0], producer_epoch=current[1], group_id="g"
        )
        await run.ask(f"v{version}", request, at_most=version)
        old = AddOffsetsToTxnRequest(
            transactional_id="off", producer_id=current[0], producer_epoch=current[1] + 1, group_id="g"
        )
        await run.ask(f"other epoch, v{version}", old, at_most=version)
    await run.ask("describe", DescribeTransactionsRequest(transactional_ids=["off"]))
    await run.end("abort", "off", current, commit=False, at_most=4)


async def old_ends(run: TransactionsRun) -> None:
    """Clients whose epoch stays: commit, abort, each again and the other way, nothing to end, old producers."""
    current = await run.begun("begin", "old")
    for version in range(5):
        await run.end(f"nothing, v{version}", "old", current, at_most=version)
    for version in range(5):
        for commit in (True, False):
            label = f"{'commit' if commit else 'abort'}, v{version}"
            await run.add(f"add for {label}", "old", current)
            await run.end(label, "old", current, commit=commit, at_most=version)
            await run.end(f"{label} again", "old", current, commit=commit, at_most=version)
            await run.end(f"{label} otherwise", "old", current, commit=not commit, at_most=version)
        await run.end(f"unknown, v{version}", "old-none", current, at_most=version)
        await run.end(f"other epoch, v{version}", "old", (current[0], 9), at_most=version)
        await run.end(f"other producer, v{version}", "old", (current[0] + 50_000, 0), at_most=version)
    await run.end("no name", "", current, at_most=4)
    await run.ask("describe", DescribeTransactionsRequest(transactional_ids=["old"]))


async def new_ends(run: TransactionsRun) -> None:
    """Clients of transaction version 2: each end raises the epoch; the same things again."""
    current = await run.begun("begin", "new")
    await run.end("nothing to commit", "new", current)
    current = await run.end("nothing to abort", "new", current, commit=False)
    for number, commit in enumerate((True, False, True)):
        label = f"{number}: {'commit' if commit else 'abort'}"
        await run.batch(f"add for {label}", "new", current, READ, verify=False)
        before, current = current, await run.end(label, "new", current, commit=commit)
        await run.end(f"{label} again", "new", before, commit=commit)
        await run.end(f"{label} otherwise", "new", before, commit=not commit)
        await run.end(f"{label} of the next", "new", current)
        await run.begun(f"{label}, an old one begins", "new", (before[0], before[1] - 1))
    await run.end("unknown", "new-none", current)
    await run.end("a later epoch", "new", (current[0], 99))
    await run.end("other producer", "new", (current[0] + 50_000, 0))
    await run.end("no name", "", current)
    await run.ask("describe", DescribeTransactionsRequest(transactional_ids=["new"]))


async def fences(run: TransactionsRun) -> None:
    """A new producer aborts what is open; the earlier one is refused from then on."""
    for version, name in ((3, "fence-old"), (5, "fence-new")):
        old = await run.begun(f"{name}: begin", name)
        await run.add(f"{name}: add", name, old)
        new = await run.begun(f"{name}: begin anew", name)
        await run.add(f"{name}: the old one adds", name, old)
        await run.end(f"{name}: the old one commits", name, old, at_most=version)
        await run.end(f"{name}: the old one aborts", name, old, commit=False, at_most=version)
        await run.begun(f"{name}: the old one goes on", name, old)
        await run.add(f"{name}: the new one adds", name, new)
        await run.end(f"{name}: the new one commits", name, new, at_most=version)


async def timeouts(run: TransactionsRun) -> None:
    """What is open for too long is aborted and its producer fenced."""
    current = await run.begun("begin", "slow", timeout_ms=300)
    await run.add("add", "slow", current)
    await run.until("slow", "CompleteAbort")
    await run.ask("describe", DescribeTransactionsRequest(transactional_ids=["slow"]))
    await run.end("too late", "slow", current)
    await run.end("too late for an old client", "slow", current, at_most=1)
    await run.begun("goes on", "slow", current)
    await run.begun("begins anew", "slow")


async def records(run: TransactionsRun) -> None:
    """What is written within transactions, added by the client or by the broker; who reads what."""
    place = ("two", 0)
    current = await run.begun("begin", "rec")
    await run.produce("was not added, v10", "rec", current, place, sequence=0, at_most=10)
    await run.produce("was not added, v11", "rec", current, place, sequence=0, at_most=11)
    await run.add("add", "rec", current, place)
    await run.produce("committed", "rec", current, place, sequence=0, at_most=11)
    await run.produce("nameless", None, current, place, sequence=1, at_most=11)
    await run.read("while it is open", place, committed=True)
    await run.read("while it is open, all", place, committed=False)
    current = await run.end("commit", "rec", current)
    await run.produce("aborted", "rec", current, place, sequence=0, at_most=12)
    await run.produce("aborted too", "rec", current, place, sequence=1, at_most=12)
    old, current = current, await run.end("abort", "rec", current, commit=False)
    await run.produce("of an old epoch", "rec", old, place, sequence=2, at_most=12)
    await run.produce("open", "rec", current, place, sequence=0, at_most=12)
    await run.read("in the end", place, committed=True)
    await run.read("in the end, all", place, committed=False)
    await run.end("commit the last", "rec", current)
    await run.read("and all is over", place, committed=True)


async def lists(run: TransactionsRun) -> None:
    """By state, producer, age and name; what is no state, and no expression."""
    first = await run.begun("begin a", "list-a")
    second = await run.begun("begin b", "list-b")
    await run.add("add", "list-b", second)
    producer_ids = [first[0], second[0]]

    def asked(**filters: object) -> ListTransactionsRequest:
        return ListTransactionsRequest(**{"state_filters": [], "producer_id_filters": producer_ids, **filters})  # type: ignore[arg-type]

    for version in range(3):
        await run.ask(f"all, v{version}", asked(), at_most=version)
    for states in (["Ongoing"], ["Empty"], ["ongoing", "Nope", "Dead"], ["Empty", "Ongoing", "Nope"]):
        await run.ask(f"{states}", asked(state_filters=states))
    for age in (-2, 0, 3_600_000):
        await run.ask(f"older than {age}", asked(duration_filter=age))
    for pattern in (
        "",
        "list",
        "list-.",
        "list-[b-z]",
        ".*a|x",
        "(?i)LIST-A",
        "\\Qlist-\\E\\w",
        "list-a{1,2}",
        "^list-b$",
    ):
        await run.ask(f"like {pattern}", asked(transactional_id_pattern=pattern))
    for pattern in ("(", "[", "*", "a**", "(?=a)", "\\1", "a{2,1}", "[z-a]", "\\"):
        await run.ask(f"like no pattern {pattern}", asked(transactional_id_pattern=pattern))
    await run.ask("describe none", DescribeTransactionsRequest(transactional_ids=[]))


SCENARIOS: Final[tuple[Scenario, ...]] = (
    coordinators,
    identities,
    additions,
    offsets,
    old_ends,
    new_ends,
    fences,
    timeouts,
    records,
    lists,
)
SETTINGS: Final = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
