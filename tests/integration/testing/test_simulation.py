"""A user's service under simulation: what holds, what is found, what is reported, what is refused."""

import asyncio
import dataclasses
import datetime as dt
import random
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import patient

from busway import App, BuswayError, ConsumerRecord, Retry
from busway.testing import NotSimulated, SimulatedBus, Simulation, SimulationFailed, simulate

pytestmark = [pytest.mark.slow, pytest.mark.simulation, pytest.mark.timeout(600)]


@dataclasses.dataclass
class Order:
    shop: str
    amount: int


@dataclasses.dataclass
class Total:
    amount: int = 0
    last: int = -1


def shop() -> App:
    """Adds up what was ordered; an order that comes again is known by its offset."""
    app = App("shop")
    orders = app.topic("orders", value=Order, partitions=3)
    totals = app.table("totals", value=Total)

    @app.subscribe(orders)
    async def count(record: ConsumerRecord[str, Order]) -> None:
        assert record.key is not None
        assert record.value is not None
        total = totals.get(record.key) or Total()
        if record.offset > total.last:
            await totals.put(record.key, Total(total.amount + record.value.amount, record.offset))

    return app


def forgetful_shop() -> App:
    """As `shop`, without looking at offsets."""
    app = App("shop")
    orders = app.topic("orders", value=Order, partitions=3)
    totals = app.table("totals", value=Total)

    @app.subscribe(orders)
    async def count(record: ConsumerRecord[str, Order]) -> None:
        total = totals.get(record.key or "") or Total()
        await totals.put(record.key or "", Total(total.amount + (record.value.amount if record.value else 0)))

    return app


def exact_shop() -> App:
    """As `forgetful_shop`, exactly once, with a bill for each order."""
    app = App("shop")
    orders = app.topic("orders", value=Order, partitions=3)
    bills = app.topic("bills", value=Order)
    totals = app.table("totals", value=Total)

    @app.publish(bills)
    @app.subscribe(orders, guarantee="exactly_once")
    async def count(record: ConsumerRecord[str, Order]) -> Order | None:
        total = totals.get(record.key or "") or Total()
        await totals.put(record.key or "", Total(total.amount + (record.value.amount if record.value else 0)))
        return record.value

    return app


def hasty_shop() -> App:
    """Begins with an order and says that it is done: it is committed before it is handled."""
    app = App("shop")
    orders = app.topic("orders", value=Order, partitions=3)
    bills = app.topic("bills", value=Order)
    tasks: set[asyncio.Task[Any]] = set()

    @app.subscribe(orders)
    async def bill(record: ConsumerRecord[str, Order]) -> None:
        async def soon() -> None:
            await asyncio.sleep(1)
            await bills.send(record.value, record.key)

        tasks.add(asyncio.create_task(soon()))

    return app


def let_be(_: Order) -> None:
    """Does nothing with an order."""


def shop_that(does: Callable[[Order], Any] = let_be, **options: Any) -> App:
    """One partition of orders; what is done with each is the test's."""
    app = App("shop")
    app.subscribe(app.topic("orders", value=Order, format="json", partitions=1), **options)(does)
    return app


OUTSIDE = shop()
"""The shop's topics, for who is no instance of it."""
ORDERS = OUTSIDE.topics["orders"]
BILLS = hasty_shop().topics["bills"]
PLAIN_ORDERS = shop_that().topics["orders"]


async def customers(bus: SimulatedBus) -> None:
    """Some orders, a few each second."""
    for number in range(12):
        await bus.send(ORDERS, Order("s", bus.chance.randrange(1, 100)), key=f"k{number % 4}")
        await bus.sleep(bus.chance.uniform(0, 2))


async def an_order(bus: SimulatedBus) -> None:
    """One, for a shop of one partition."""
    await bus.send(PLAIN_ORDERS, Order("s", 1))


async def totals_are_exact(bus: SimulatedBus) -> None:
    """Each order once."""
    wanted: Counter[str] = Counter()
    for sent in bus.sent:
        wanted[sent.key] += sent.value.amount
    records = await bus.records(OUTSIDE.topics["totals"])
    totals = {record.key: record.value.amount for record in records}
    assert totals == dict(wanted), f"{totals} is not {dict(wanted)}"


async def each_is_billed(bus: SimulatedBus) -> None:
    """At least once."""
    assert len({(record.key, record.value.amount) for record in await bus.records(BILLS)}) == len(
        {(sent.key, sent.value.amount) for sent in bus.sent}
    ), "an order was not billed"


def test_a_service_that_looks_at_offsets_is_exact() -> None:
    """With typed events, a table, a registry; the number of histories is returned."""
    assert simulate(shop, workload=customers, properties=[totals_are_exact], seeds=4) == 4


async def each_is_billed_once(bus: SimulatedBus) -> None:
    """No more and no less."""
    billed = Counter((record.key, record.value.amount) for record in await bus.records(BILLS))
    assert billed == Counter((sent.key, sent.value.amount) for sent in bus.sent)


def test_a_service_that_is_exactly_once_need_not_look() -> None:
    """Its totals are exact and its bills are there once, whatever is killed, frozen or cut off."""
    holds = [totals_are_exact, each_is_billed_once]
    assert simulate(exact_shop, workload=customers, properties=holds, seeds=8) == 8


async def nothing_is_ordered(bus: SimulatedBus) -> None:
    """Does not hold."""
    assert not bus.sent, "there are orders"


def test_a_service_on_three_nodes() -> None:
    """Faults of brokers hit each of three, or all; a failure names the number of nodes, and is the same with it."""
    holds = [totals_are_exact, each_is_billed_once]
    assert simulate(exact_shop, workload=customers, properties=holds, seeds=3, nodes=3) == 3
    simulation = Simulation(shop, nodes=3)
    simulation.workload(customers)
    simulation.outcome(nothing_is_ordered)
    with pytest.raises(SimulationFailed, match=r"(?s)there are orders.*broker-[123].*or --seed 4 --nodes 3") as failure:
        simulation.run(seed=4, shrink=False)
    assert "It is not the same" not in str(failure.value)
    with pytest.raises(ValueError, match=r"nodes=2: give 1, or 3 to 7"):
        simulation.run(nodes=2)


@pytest.mark.parametrize(
    ("service", "holds"), [(forgetful_shop, totals_are_exact), (hasty_shop, each_is_billed)], ids=["twice", "never"]
)
def test_a_service_that_is_wrong_is_found(service: Callable[[], App], holds: Any) -> None:
    """Within few seeds; the story tells of the fault that did it, and the seed that is named shows it again."""
    with pytest.raises(SimulationFailed) as failure:
        simulate(service, workload=customers, properties=[holds], seeds=30)
    failed = failure.value
    assert failed.history.problem is not None
    assert holds.__name__ in failed.history.problem
    assert failed.history.faults
    assert f"--seed {failed.seed}" in str(failed)
    assert "It is not the same" not in str(failed)
    assert any(word in failed.history.trace for word in ("is killed", "freezes", "cannot reach", "restarted", "loses"))
    with pytest.raises(SimulationFailed) as again:
        simulate(service, workload=customers, properties=[holds], seed=failed.seed, shrink=False)
    assert again.value.history == failed.history


def test_what_holds_always_is_looked_at_meanwhile() -> None:
    """An invariant that breaks ends the history, before everything is handled."""

    async def never_more_than_three(bus: SimulatedBus) -> None:
        assert len(await bus.records(ORDERS)) <= 3, "there are more"

    with pytest.raises(SimulationFailed, match="never_more_than_three: there are more") as failure:
        simulate(shop, workload=customers, invariants=[never_more_than_three], seed="1:")
    assert "is whole again" not in failure.value.history.trace


def test_time_and_chance_of_a_service_are_the_seeds() -> None:
    """Clocks, identifiers and random numbers that the service asks Python for are equal in both runs, and time is virtual."""
    heard: list[list[Any]] = []

    def note(_: Order) -> None:
        before = time.monotonic()
        time.sleep(60)
        assert time.monotonic() - before < 1
        moments = (dt.datetime.now(dt.UTC), time.time(), time.time_ns())
        heard[-1].append((*moments, uuid.uuid4(), random.random(), random.choice("abc"), uuid.uuid1().time))

    async def send(bus: SimulatedBus) -> None:
        heard.append([])
        for number in range(3):
            await bus.send(PLAIN_ORDERS, Order("s", number))
        await bus.sleep(60)
        await bus.send(PLAIN_ORDERS, Order("s", 9))

    before = time.time()
    simulate(lambda: shop_that(note), workload=send, seeds=[0, 0])
    _, first, second = heard
    assert first == second
    assert first[-1][0] - first[0][0] >= dt.timedelta(seconds=59)
    assert abs(first[0][1] - first[0][0].timestamp()) < 0.1
    assert time.time() - before < 100, "the clock is given back"


def connect(address: tuple[str, int]) -> None:
    with socket.socket() as opened:
        opened.connect(address)


REFUSED: dict[str, Callable[[], Any]] = {
    "a thread": lambda: threading.Thread(target=print).start(),
    "a socket": lambda: connect(("127.0.0.1", 1)),
    "SQLite": lambda: sqlite3.connect(":memory:"),
    "a program": lambda: subprocess.run(["true"], check=True),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_simulated_is_refused_by_name(what: str) -> None:
    """Not tried again or put aside: it ends the simulation, and tells what to do instead."""

    def use(_: Order) -> None:
        REFUSED[what]()

    with pytest.raises(NotSimulated, match=f"{what}.* is not simulated"):
        simulate(lambda: shop_that(use, retry=Retry(attempts=3)), workload=an_order, seeds=1)


def test_a_service_that_stops_by_itself_has_failed() -> None:
    """A record that may not be put aside stops it."""

    async def fail(_: Order) -> None:
        raise ValueError("no such shop")

    with pytest.raises(SimulationFailed, match=r"stopped by itself: HandlerFailed.*no such shop"):
        simulate(lambda: shop_that(fail, retry=Retry(attempts=1), dead_letter=False), workload=an_order, seeds=1)


async def test_it_is_called_from_a_plain_test() -> None:
    """The message says so."""
    with pytest.raises(BuswayError, match="plain test"):
        simulate(shop, workload=customers)


def test_a_simulation_without_a_workload_says_so() -> None:
    """And one has no two of them."""
    simulation = Simulation(shop)
    with pytest.raises(ValueError, match="no workload"):
        simulation.run()
    simulation.workload(customers)
    with pytest.raises(ValueError, match="already"):
        simulation.workload(customers)


SERVICE = """
from dataclasses import dataclass
from busway import App

@dataclass
class Order:
    number: int

app = App("shop")
orders = app.topic("orders", value=Order, format="json", partitions=1)
bills = app.topic("bills", value=Order, format="json", partitions=1)
seen = set()

@app.publish(bills)
@app.subscribe(orders)
async def bill(order: Order) -> Order | None:
    if order.number in seen:
        return None
    seen.add(order.number)
    return order
"""
PROMISES = """
import shop
from busway.testing import SimulatedBus, Simulation

simulation = Simulation("shop:app")

@simulation.workload
async def customers(bus: SimulatedBus) -> None:
    for number in range(15):
        await bus.send(shop.orders, shop.Order(number))
        await bus.sleep(1)

@simulation.outcome
async def each_order_is_billed_once(bus: SimulatedBus) -> None:
    billed = sorted(one.value.number for one in await bus.records(shop.bills))
    assert billed == list(range(15)), f"billed were {billed}"
"""


def test_the_command_line(tmp_path: Path) -> None:
    """A service that keeps what it has seen in a variable is found out: what comes back is a new process. 1 and the story, 0 and a line."""
    (tmp_path / "shop.py").write_text(SERVICE)
    (tmp_path / "promises.py").write_text(PROMISES)

    def busway(*arguments: str) -> tuple[int, str, str]:
        ran = subprocess.run(
            [sys.executable, "-m", "busway.cli", "simulate", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=patient(500),
            check=False,
        )
        return ran.returncode, ran.stdout, ran.stderr

    code, said, _ = busway("promises:simulation", "--seeds", "40")
    assert code == 1, said
    assert "each_order_is_billed_once: billed were" in said
    again = said.rpartition("--seed ")[2].strip()
    assert busway("promises:simulation", "--seed", again)[0] == 1
    assert busway("promises:simulation", "--seed", "3:")[:2] == (
        0,
        "promises:simulation: 1 histories hold, seed 3:\n",
    )
    assert busway("promises:simulation", "--seed", "3:", "--nodes", "3")[:2] == (
        0,
        "promises:simulation: 1 histories hold on 3 nodes, seed 3:\n",
    )
    code, _, wrong = busway("promises:simulation", "--nodes", "2")
    assert code == 1
    assert "--nodes: nodes=2: give 1, or 3 to 7" in wrong
    code, _, wrong = busway("shop:app")
    assert code == 1
    assert "not a Simulation" in wrong
