"""What is asked of Apache Kafka and of Busway alike about features: levels raised, lowered, refused, and what acts by them.

Here: the requests, as scenarios; each leaves the levels as it found them; beginning a test's clusters at other levels.
Not here: how answers are compared.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
from tests.integration.broker.admin_scenarios import AdminRun
from tests.integration.broker.transactions_probe import READ, TransactionsRun
from tests.support.patience import patient

from busway_bus.metadata import bootstrap
from busway_bus.metadata.features import (
    GROUP_VERSION,
    METADATA_VERSION,
    TRANSACTION_VERSION,
    levels_of_new_clusters,
)
from busway_protocol.messages.cluster import ApiVersionsRequest, FeatureUpdateKey, UpdateFeaturesRequest
from busway_protocol.messages.groups_modern import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from busway_protocol.messages.transactions import DescribeTransactionsRequest

Scenario = Callable[[AdminRun], Awaitable[None]]
UPGRADE, SAFE, UNSAFE = 1, 2, 3
VERSIONS: Final = (0, 1, 2)
DEADLINE_S: Final = patient(20.0)
SEEN: Final = (GROUP_VERSION, METADATA_VERSION, TRANSACTION_VERSION)
"""Features that both have with the same levels: the highest of `share.version` is 1 in Kafka 4.3.1, and 2 here, as in Kafka 4.4."""


def begin_at(monkeypatch: pytest.MonkeyPatch, name: str, level: int) -> None:
    """New clusters of this test begin with a feature at this level."""
    begun = {**levels_of_new_clusters(), name: level}
    monkeypatch.setattr(
        bootstrap, "levels_of_new_clusters", lambda: {feature: at for feature, at in begun.items() if at}
    )


def update(*levels: tuple[str, int], kind: int = UPGRADE, validate_only: bool = False) -> UpdateFeaturesRequest:
    """The request that sets these levels."""
    keys = [FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level in levels]
    return UpdateFeaturesRequest(feature_updates=keys, validate_only=validate_only)


async def feature_response(run: Any, at_most: int = 4) -> Any:
    """What a broker says of features."""
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    return await run.admin.request(request, at_most=at_most)


async def levels(run: Any, label: str) -> None:
    """Note the finalized levels and the supported ranges of what both have, for clients that read level 0 and that do not."""
    for version in (3, 4):
        answer = await feature_response(run, version)
        finalized = {
            feature.name: (feature.min_version_level, feature.max_version_level)
            for feature in answer.finalized_features
        }
        supported = {feature.name: (feature.min_version, feature.max_version) for feature in answer.supported_features}
        run.note(f"{label}: finalized, v{version}", [str((name, finalized.get(name))) for name in SEEN])
        run.note(f"{label}: supported, v{version}", [str((name, supported.get(name))) for name in SEEN])


async def until_told(run: Any, wanted: dict[str, int]) -> None:
    """Kafka's broker answers an update before it has read of it itself."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            finalized = {
                feature.name: feature.max_version_level for feature in (await feature_response(run)).finalized_features
            }
            if all(finalized.get(name, 0) == level for name, level in wanted.items()):
                return
            await asyncio.sleep(0.01)


async def set_to(run: Any, label: str, *wanted: tuple[str, int], kind: int = UPGRADE) -> None:
    """Change levels, and note them with whether the epoch rose."""
    before = (await feature_response(run)).finalized_features_epoch
    await run.ask(label, update(*wanted, kind=kind))
    await until_told(run, dict(wanted))
    await levels(run, label)
    run.note(f"{label}: epoch", [str((await feature_response(run)).finalized_features_epoch > before)])


async def refusals(run: AdminRun) -> None:
    """Each reason in each version; of several features none is changed by one that is refused."""
    for version in VERSIONS:

        async def ask(label: str, *wanted: tuple[str, int], kind: int = UPGRADE, version: int = version) -> None:
            await run.ask(f"v{version}, {label}", update(*wanted, kind=kind if version else UPGRADE), at_most=version)

        await ask("nothing")
        await ask("not known", ("none.version", 1))
        await ask("not known, off", ("none.version", 0))
        await ask("no name", ("", 1))
        await ask("lowered by an upgrade", (TRANSACTION_VERSION, 1))
        await ask("off by an upgrade", (TRANSACTION_VERSION, 0))
        await ask("below 0", (TRANSACTION_VERSION, -1))
        await ask("too high", (TRANSACTION_VERSION, 3))
        await ask("much too high", (GROUP_VERSION, 32767))
        await ask("metadata too high", (METADATA_VERSION, 31))
        await ask("metadata too low", (METADATA_VERSION, 6))
        await ask("metadata lowered by an upgrade", (METADATA_VERSION, 29))
        await ask("as it is", (METADATA_VERSION, 30), (TRANSACTION_VERSION, 2), (GROUP_VERSION, 1))
        await ask("one of two", (GROUP_VERSION, 1), (TRANSACTION_VERSION, 5))
        await ask("twice, the last counts", (TRANSACTION_VERSION, 5), (TRANSACTION_VERSION, 2))
        if not version:
            continue
        for kind in (SAFE, UNSAFE):
            await ask(f"metadata lowered, {kind}", (METADATA_VERSION, 29), kind=kind)
            await ask(f"metadata lowered far, {kind}", (METADATA_VERSION, 7), kind=kind)
            await ask(f"metadata off, {kind}", (METADATA_VERSION, 0), kind=kind)
            await ask(f"not known, off, {kind}", ("none.version", 0), kind=kind)
            await ask(f"lowered to more, {kind}", (TRANSACTION_VERSION, 3), kind=kind)
            await ask(f"lowered below 0, {kind}", (TRANSACTION_VERSION, -1), kind=kind)
            await ask(f"lowered to what it is, {kind}", (TRANSACTION_VERSION, 2), kind=kind)
            await ask(f"one of two lowered, {kind}", (TRANSACTION_VERSION, 1), (METADATA_VERSION, 29), kind=kind)
        for kind in (0, 4, -1, 127):
            await ask(f"no such type, {kind}", (TRANSACTION_VERSION, 1), kind=kind)
    await levels(run, "at last")


async def steps(run: AdminRun) -> None:
    """Down and up, each way, checked alone and done, one and several."""
    await levels(run, "at first")
    for version in (1, 2):
        down = update((TRANSACTION_VERSION, 1), kind=SAFE, validate_only=True)
        await run.ask(f"checked alone, v{version}", down, at_most=version)
        await run.ask(f"down, v{version}", update((TRANSACTION_VERSION, 1), kind=SAFE), at_most=version)
        await until_told(run, {TRANSACTION_VERSION: 1})
        await levels(run, f"down, v{version}")
        more = update((TRANSACTION_VERSION, 2), kind=UNSAFE)
        await run.ask(f"no downgrade, v{version}", more, at_most=version)
        await run.ask(f"up, v{version}", update((TRANSACTION_VERSION, 2)), at_most=version)
        await until_told(run, {TRANSACTION_VERSION: 2})
        await levels(run, f"up, v{version}")
    await set_to(run, "both off", (TRANSACTION_VERSION, 0), (GROUP_VERSION, 0), kind=UNSAFE)
    await run.ask("off once more", update((TRANSACTION_VERSION, 0), kind=SAFE))
    await run.ask("off by an upgrade", update((TRANSACTION_VERSION, 0)))
    await run.ask("up in version 0", update((TRANSACTION_VERSION, 1)), at_most=0)
    await until_told(run, {TRANSACTION_VERSION: 1})
    await levels(run, "up in version 0")
    await set_to(run, "both on", (TRANSACTION_VERSION, 2), (GROUP_VERSION, 1))


async def groups(run: AdminRun) -> None:
    """Consumer groups are there while `group.version` is 1, and again after it was not."""

    def beat(group_id: str, member_id: str = "m", epoch: int = 0) -> ConsumerGroupHeartbeatRequest:
        first = epoch == 0
        return ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=5000 if first else -1,
            subscribed_topic_names=["left"] if first else None,
            topic_partitions=[] if first else None,
        )

    await run.ask("join", beat("made-modern"))
    await set_to(run, "off", (GROUP_VERSION, 0), kind=SAFE)
    await run.ask("goes on while off", beat("made-modern", epoch=1))
    await run.ask("joins while off", beat("made-late"))
    await run.ask(
        "described while off",
        ConsumerGroupDescribeRequest(group_ids=["made-modern"], include_authorized_operations=False),
    )
    await set_to(run, "on", (GROUP_VERSION, 1))
    await run.ask("goes on", beat("made-modern", epoch=1))
    await run.ask("leaves", beat("made-modern", epoch=-1))


async def transactions(run: TransactionsRun) -> None:
    """An epoch for each transaction while `transaction.version` is 2, for transactions that are open while it changes too."""
    current = await run.begun("begin", "levels")
    for number, level in enumerate((1, 2, 0, 2, 1, 0, 1, 2)):
        now = f"{number}: level {level}"
        await run.add(f"{now}, add", "levels", current)
        kind = UPGRADE if level > (2, 1, 2, 0, 2, 1, 0, 1)[number] else SAFE
        await run.ask(f"{now}, set", update((TRANSACTION_VERSION, level), kind=kind))
        await until_told(run, {TRANSACTION_VERSION: level})
        await run.produce(f"{now}, write", "levels", current, READ, sequence=0, at_most=11)
        for at_most in (4, 5):
            before, current = current, await run.end(f"{now}, end v{at_most}", "levels", current, at_most=at_most)
            await run.end(f"{now}, end v{at_most} again", "levels", before, at_most=at_most)
            await run.batch(f"{now}, add v4 after v{at_most}", "levels", current, READ, verify=False)
        current = await run.end(f"{now}, abort", "levels", current, commit=False)
        current = await run.begun(f"{now}, begin anew", "levels", current)
        await run.read(f"{now}, read", READ, committed=True)
    await run.ask("describe", DescribeTransactionsRequest(transactional_ids=["levels"]))


SCENARIOS: Final[tuple[Scenario, ...]] = (refusals, steps, groups)
