"""Apps for tests of `busway check`: one that fits the brokers of the tests, and one that does not."""

from dataclasses import dataclass

from busway import App


@dataclass
class Ride:
    id: str
    zone: str = "centre"


@dataclass
class Fare:
    id: str
    amount: float


good = App("good", schema_registry="http://localhost:8081")
rides = good.topic("good.rides", key=str, value=Ride, partitions=2, configs={"retention.ms": "86400000"})
totals = good.table("good.totals", key=str, value=int, format="json")
pages = good.global_table("good.pages", key=str, value=str, format="json")
plain = good.topic("good.plain", value=dict, format="json")


@good.subscribe(rides)
async def handle(ride: Ride) -> None:
    """Do nothing."""


@good.queue(plain, group="good.queue")
async def work(job: dict) -> None:  # type: ignore[type-arg]
    """Do nothing."""


bad = App("bad", schema_registry="http://localhost:8081", register_schemas=False)
fares = bad.topic("bad.fares", key=str, value=Fare, partitions=3, configs={"retention.ms": "1000"})
zones = bad.topic("bad.zones", key=str, value=dict, format="json", partitions=2)
both = bad.table("bad.both", key=str, value=int, format="json")
refused = bad.topic("bad.refused", value=dict, format="json", configs={"cleanup.policy": "burn"})
read = bad.topic("bad.raeding", key=str, value=Ride, read_only=True)


@bad.subscribe(fares)
async def take(fare: Fare) -> None:
    """Do nothing."""


@bad.subscribe(zones)
async def know(zone: dict) -> None:  # type: ignore[type-arg]
    """Do nothing."""


@bad.subscribe(read)
async def see(ride: Ride) -> None:
    """Do nothing."""


incompatible = App("incompatible", schema_registry="http://localhost:8081")
changed = incompatible.topic("bad.fares", key=str, value=Ride)
reader = incompatible.topic("bad.zones", key=str, value=Fare, read_only=True)
