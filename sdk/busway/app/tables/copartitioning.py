"""Co-partitioning of a table's topic with its sources.

Here: creating it with their number of partitions, and refusals.
Not here: the table (`table`).
"""

from collections.abc import Collection

from busway.admin.missing import create_missing, partition_counts
from busway.admin.new_topic import NewTopic
from busway.app.model.topic import BadDeclaration
from busway.app.service import RunningService
from busway.app.tables.rows import names


async def make_beside(app: RunningService, wanted: NewTopic, sources: Collection[str]) -> int:
    """Create the table's topic if it is missing; return its number of partitions.

    Raises:
        BadDeclaration: the number differs from the sources', or they cannot be co-partitioned.
        BrokerError, ConnectionFailed: a topic is not available.
    """
    counts = await partition_counts(app, sources)
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name} has {count}" for name, count in sorted(counts.items()))
        raise BadDeclaration(
            f"table {wanted.name} goes with topics of as many partitions as each other, but {shown}; "
            "give app.table(…, sources=[…]) those that its handlers read"
        )
    (count,) = set(counts.values())
    strategies = app.consumer_options.get("partition_assignment_strategy", ("range",))
    assignor = app.consumer_options.get("group_remote_assignor", "range")
    if len(sources) > 1 and assignor != "range":
        raise BadDeclaration(
            f"table {wanted.name} goes with {names(sources)}, whose partitions only the assignor 'range' keeps together; "
            f"app {app.name} has group_remote_assignor={assignor!r}"
        )
    if len(sources) > 1 and strategies[0] != "range":
        raise BadDeclaration(
            f"table {wanted.name} goes with {names(sources)}, whose partitions only the strategy 'range' keeps "
            f"together; app {app.name} has partition_assignment_strategy={tuple(strategies)!r}"
        )
    new_topic = wanted if wanted.partitions > 0 else NewTopic(wanted.name, count, configs=wanted.configs)
    await create_missing(app, [new_topic])
    own_count = (await partition_counts(app, [wanted.name]))[wanted.name]
    if own_count != count:
        raise BadDeclaration(
            f"table {wanted.name} has {own_count} partitions and {names(sources)} {count}; they go together one by one, "
            f"so make {wanted.name} with {count}"
        )
    return own_count
