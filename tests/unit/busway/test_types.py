"""What type checkers make of a service: handlers keep their types, dependencies stand as defaults, what a test reads is typed."""

from pathlib import Path

import pytest
from mypy import api

pytestmark = pytest.mark.slow

SERVICE = """
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Annotated, Any, assert_type

from busway import App, Batch, ConsumerRecord, Context, Depends, Topic
from busway.testing import DeadLetter, TestBus

@dataclass
class Ride:
    id: str

class Rates: ...

async def open_rates() -> AsyncIterator[Rates]:
    yield Rates()

async def lifespan(app: App) -> AsyncIterator[dict[str, int]]:
    yield {}

app = App("surge", lifespan=lifespan)
rides = app.topic("rides", value=Ride)
numbers = app.topic("numbers", key=int, value=dict[str, Any], format="json")
assert_type(rides, Topic[str, Ride])
assert_type(numbers, Topic[int, dict[str, Any]])

@app.publish(rides)
@app.subscribe(rides)
async def quote(
    ride: Ride, context: Context[dict[str, int]], again: Annotated[Rates, Depends(open_rates)], rates: Rates = Depends(open_rates)
) -> Ride:
    assert_type(context.state, dict[str, int])
    return ride

@app.subscribe(rides)
async def watch(ride: Ride, context: Context) -> None:
    assert_type(context.attempt, int)

@app.subscribe(rides, batch=Batch())
def many(records: list[ConsumerRecord[str, Ride]]) -> None:
    assert_type(records[0].value, Ride | None)

called: Callable[[list[ConsumerRecord[str, Ride]]], None] = many

async def use() -> None:
    await quote(3)  # type: ignore[arg-type, call-arg]
    await rides.send(3)  # type: ignore[arg-type]
    await rides.send(Ride("r"), key=3)  # type: ignore[arg-type]
    async with app.test(clock="manual") as bus:
        assert_type(bus, TestBus)
        assert_type(await bus.records(numbers), list[ConsumerRecord[int, dict[str, Any]]])
        assert_type(await bus.dead_letters(rides), list[DeadLetter[str, Ride]])
        await bus.send(rides, 3)  # type: ignore[misc]
"""


@pytest.mark.variant
def test_a_service_keeps_its_types(tmp_path: Path) -> None:
    """By mypy in strict mode; an ignore that is not needed fails, too."""
    service = tmp_path / "service.py"
    service.write_text(SERVICE)
    said, wrong, code = api.run(["--strict", "--warn-unused-ignores", str(service)])
    assert (code, wrong) == (0, ""), said
