"""The service on a real bus and registry: what is alerted, what is put aside, what survives."""

import asyncio
import datetime as dt
from collections import Counter
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import httpx2
import pytest
from mybank import domain, http, service
from mybank.events import Thresholds
from mybank.tests.captured import NOON, Captured
from tests.support.patience import patient
from tests.support.variants import with_variants

from busway import DeadLetters, Table
from busway.testing import TestBus, crash_points
from busway.web import serving

pytestmark = pytest.mark.slow


@pytest.fixture
async def bus() -> AsyncIterator[TestBus]:
    """The app on a fresh bus."""
    async with service.app.test() as running:
        yield running


@pytest.fixture
async def captured(bus: TestBus) -> AsyncIterator[Captured]:
    """The connector's side, with account `a` in the database."""
    async with Captured(bus.app) as writing:
        await writing.account("a")
        yield writing


async def alert_counts(bus: TestBus) -> Counter[str]:
    """How often each alert is in the topic, by id."""
    await bus.settle()
    return Counter(record.key or "" for record in await bus.records(service.alerts.topic))


def wishes(hourly: str | None = None, **single: str) -> Thresholds:
    """What the owner of `a` has set."""
    amounts = {kind: Decimal(amount) for kind, amount in single.items()}
    return domain.thresholds("a", amounts, None if hourly is None else Decimal(hourly), NOON)


async def test_owners_are_told_once_of_large_transactions_and_of_large_hours(bus: TestBus, captured: Captured) -> None:
    """Singles by kind, sums by the sliding hour; rows that are read again, or corrected, alert no owner twice."""
    await service.thresholds.put("a", wishes(hourly="800.00", CARD="500.00"))
    await captured.transaction(1, "499.99")
    await captured.transaction(2, "500.00", second=60)
    await captured.transaction(3, "20.00", second=120)
    await captured.transaction(4, "600.00", kind="TRANSFER", second=3 * 3600)
    await captured.transaction(5, "200.00", kind="WITHDRAWAL", second=3 * 3600 + 1)
    await captured.transaction(2, "500.00", second=60, op="r")
    await captured.transaction(1, "499.99", op="d")
    assert await alert_counts(bus) == Counter(["2:SINGLE", "2:HOURLY", "5:HOURLY"])
    await captured.transaction(1, "500.00", op="u")
    assert await alert_counts(bus) == Counter(["1:SINGLE", "2:SINGLE", "2:HOURLY", "5:HOURLY"])


@pytest.mark.parametrize("point", with_variants(crash_points(), gate=["before-commit"]))
async def test_killed_at_any_step_nothing_is_lost_or_told_twice(point: str, bus: TestBus, captured: Captured) -> None:
    """The service dies on a transaction that sets off two alerts; they are sent once, and the hour goes on from it."""
    await service.thresholds.put("a", wishes(hourly="800.00", CARD="500.00"))
    await captured.transaction(1, "400.00")
    await bus.settle()
    crash = bus.crash(at=point)
    await captured.transaction(2, "500.00", second=1)
    await crash
    await captured.transaction(3, "100.00", second=2)
    await captured.transaction(4, "900.00", kind="WITHDRAWAL", second=3 * 3600)
    assert await alert_counts(bus) == Counter(["2:SINGLE", "2:HOURLY"])
    assert [flow.transaction_id for flow in service.hours["a"].outflows] == [4]


async def test_an_hour_that_cannot_be_written_takes_its_alert_with_it(
    bus: TestBus, captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler fails between the two: the alert of that attempt is never in the topic, that of the next one is, once."""
    put = Table.put
    failed: list[Any] = []

    async def put_but_once(table: Table[Any, Any], key: Any, value: Any, **options: Any) -> None:
        if table is service.hours and not failed:
            failed.append(service.alerts["1:SINGLE"].raised_at)
            raise ConnectionError("killed here")
        await put(table, key, value, **options)

    monkeypatch.setattr(Table, "put", put_but_once)
    await captured.transaction(1, "5000.00")
    assert await alert_counts(bus) == Counter(["1:SINGLE"])
    (record,) = await bus.records(service.alerts.topic)
    assert record.value is not None
    assert record.value.raised_at > failed[0]
    assert [flow.transaction_id for flow in service.hours["a"].outflows] == [1]


async def test_tables_come_back_after_a_restart_and_a_crash_of_the_broker(bus: TestBus, captured: Captured) -> None:
    """Alerts and hours are read back before the first record: what was sent is known, the hour goes on."""
    await service.thresholds.put("a", wishes(hourly="800.00"))
    await captured.transaction(1, "1000.00", kind="DEPOSIT")
    await captured.transaction(2, "700.00", second=1)
    await bus.settle()
    await bus.restart()
    await captured.transaction(1, "1000.00", kind="DEPOSIT", op="r")
    await bus.crash_broker()
    await captured.transaction(3, "100.00", second=2)
    assert await alert_counts(bus) == Counter(["1:SINGLE", "3:HOURLY"])


async def test_a_threshold_is_in_force_once_it_is_acknowledged(bus: TestBus, captured: Captured) -> None:
    """Written past the service, as another instance would: the very next transaction is judged by it, twenty times in a row."""
    expected = []
    for number in range(20):
        low = number % 2 == 0
        await service.thresholds.topic.send(wishes(CARD="50.00" if low else "90.00"), "a")
        await captured.transaction(number, "60.00")
        await bus.settle()
        expected += [f"{number}:SINGLE"] if low else []
    assert await alert_counts(bus) == Counter(expected)


async def test_rows_that_cannot_be_are_put_aside_with_the_reason(bus: TestBus, captured: Captured) -> None:
    """Each with its reason at the first attempt; other transactions of the account go on."""
    await captured.account("f", "CHF")
    await captured.transaction(1, "-5000.00")
    await captured.transaction(2, "0.00")
    await captured.transaction(3, "5000.00", kind="GIFT")
    await captured.transaction(4, "5000.00", account="f")
    await captured.transaction(5, "5000.00")
    assert await alert_counts(bus) == Counter(["5:SINGLE"])
    letters = await bus.dead_letters(service.transactions)
    assert {letter.attempts for letter in letters} == {1}
    assert sorted(letter.error.partition(";")[0] for letter in letters) == [
        "Impossible: amount is -5000.00",
        "Impossible: amount is 0.00",
        "Impossible: currency is 'EUR', and account f is in CHF",
        "Impossible: kind is 'GIFT'",
    ]


async def test_what_is_no_change_at_all_is_put_aside(bus: TestBus, captured: Captured) -> None:
    """A value that is no Avro, and a tombstone: the one is a dead letter, the other nothing."""
    await captured.raw("a", b"nonsense")
    await captured.raw("a", None)
    await captured.transaction(1, "5000.00")
    assert await alert_counts(bus) == Counter(["1:SINGLE"])
    (letter,) = await bus.dead_letters(service.transactions)
    assert letter.error.startswith("Undecodable: the value is not what topic mybank.public.transactions holds")


async def test_a_dead_letter_is_replayed_when_its_account_is_there(bus: TestBus, captured: Captured) -> None:
    """A transaction of an unknown account is tried for a while, put aside, and alerted once it is replayed."""
    await captured.transaction(1, "5000.00", account="late")
    await bus.settle()
    (letter,) = await bus.dead_letters(service.transactions)
    assert (letter.attempts, letter.error.partition(",")[0]) == (5, "UnknownAccount: account_id is 'late'")
    await captured.account("late")
    async with DeadLetters(bus.app.bootstrap_servers) as dead:
        await dead.replay("mybank.public.transactions.mybank.dlt")
    assert await alert_counts(bus) == Counter(["1:SINGLE"])


async def test_an_account_that_comes_a_moment_later_costs_nothing() -> None:
    """The transaction overtakes its account: it is tried again until the account is there."""
    async with service.app.test(clock="manual") as bus, Captured(bus.app) as captured:
        await captured.transaction(1, "5000.00", account="new")
        await bus.resting()
        await captured.account("new")
        await bus.advance(1)
        assert await alert_counts(bus) == Counter(["1:SINGLE"])
        assert await bus.dead_letters(service.transactions) == []


@pytest.fixture
async def client(bus: TestBus) -> AsyncIterator[httpx2.AsyncClient]:
    """The service's own paths."""
    own = http.create(service.accounts, service.thresholds, service.alerts, service.pulse)
    async with serving(own) as url, httpx2.AsyncClient(base_url=url, timeout=patient(20)) as opened:
        yield opened


async def test_a_threshold_is_in_force_when_put_returns(
    captured: Captured, client: httpx2.AsyncClient, bus: TestBus
) -> None:
    """What was put is what is read and what judges; deleted, the default holds again."""
    await service.accounts.caught_up()
    answer = await client.put("/thresholds/a", json={"single": {"CARD": "50.00"}, "hourly": "800.00"})
    assert (answer.status_code, answer.json()["single"]["CARD"], answer.json()["hourly"]) == (200, "50.00", "800.00")
    assert (await client.get("/thresholds/a")).json() == answer.json()
    await captured.transaction(1, "50.00")
    await bus.settle()
    (alert,) = (await client.get("/alerts?account=a")).json()
    assert (alert["alert_id"], alert["amount"], alert["threshold"]) == ("1:SINGLE", "50.00", "50.00")
    assert (await client.delete("/thresholds/a")).json()["single"]["CARD"] == "1000.00"
    (account,) = (await client.get("/accounts")).json()
    assert (account["id"], account["thresholds"]["hourly"]) == ("a", None)


REFUSED: tuple[tuple[Any, str], ...] = (
    ({"single": {"CARD": "-1"}}, "single.CARD is -1; an amount is over 0"),
    ({"single": {"CARD": "0"}}, "single.CARD is 0"),
    ({"single": {"GIFT": "1"}}, "single is 'GIFT'; there are"),
    ({"hourly": "0.001"}, "hourly is 0.001; cents"),
    ({"hourly": "much"}, "hourly: Invalid decimal"),
    ({"hourly": "NaN"}, "hourly is NaN"),
    ([], "the body: Expected `object`"),
)


async def test_what_cannot_be_is_refused(captured: Captured, client: httpx2.AsyncClient) -> None:
    """4xx as JSON, naming the field and what would be right; nothing is written."""
    await service.accounts.caught_up()
    for body, named in REFUSED:
        answer = await client.put("/thresholds/a", json=body)
        assert (answer.status_code, named in answer.json()["error"]) == (422, True), answer.text
    assert "a" not in service.thresholds
    for method in ("GET", "PUT", "DELETE"):
        answer = await client.request(method, "/thresholds/nobody", json={})
        assert (answer.status_code, answer.json()["error"]) == (
            404, "account: there is no 'nobody'; GET /accounts lists them",
        )  # fmt: skip
    for limit in ("0", "1001", "x", "-1"):
        answer = await client.get(f"/alerts?limit={limit}")
        assert (answer.status_code, "limit is" in answer.json()["error"]) == (422, True)


async def test_the_page_hears_of_alerts_and_seconds(
    captured: Captured, client: httpx2.AsyncClient, bus: TestBus
) -> None:
    """An alert comes as a server-sent event, and so does the end of a second with its figures; the page itself is one file."""
    page = (await client.get("/")).text
    assert "MyBank" in page
    assert "https://" not in page.replace("https://www.w3.org", "")
    async with client.stream("GET", "/live") as live:
        lines = live.aiter_lines()
        assert await anext(lines) == "retry: 1000"
        await captured.transaction(1, "5000.00")
        async with asyncio.timeout(patient(20)):
            async for line in lines:
                if '"alert_id":"1:SINGLE"' in line:
                    break
        await bus.settle()
        service.pulse.tick(dt.datetime.now(dt.UTC), 1.0)
        async with asyncio.timeout(patient(20)):
            async for line in lines:
                if '"p99_ms":' in line:
                    break
