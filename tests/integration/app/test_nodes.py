"""`app.test(nodes=3)`: a service goes on while the nodes of its cluster are killed one after the other."""

import dataclasses

import pytest

from busway import App

pytestmark = pytest.mark.slow


@dataclasses.dataclass
class Ride:
    number: int


async def test_each_node_is_killed_under_an_exactly_once_service() -> None:
    """Each event has one effect, whichever node leads its partition, the group or the transaction."""
    app = App("rides-service")
    rides = app.topic("rides", value=Ride, partitions=3)
    fares = app.topic("fares", value=Ride, partitions=3)

    @app.subscribe(rides, guarantee="exactly_once")
    async def price(ride: Ride) -> None:
        await fares.send(Ride(ride.number))

    async with app.test(nodes=3) as bus:
        number = 0
        for node in bus.cluster.node_ids:
            for _ in range(10):
                await bus.send(rides, Ride(number))
                number += 1
            await bus.cluster.kill(node)
            for _ in range(10):
                await bus.send(rides, Ride(number))
                number += 1
            await bus.settle()
            await bus.cluster.restart(node)
        await bus.settle()
        assert sorted(record.value.number for record in await bus.records(fares)) == list(range(number))


async def test_the_number_of_nodes_is_checked() -> None:
    """Two nodes lose their majority with the first that fails."""
    app = App("rides-service")
    with pytest.raises(ValueError, match=r"nodes=2: give 1, or 3 to 7"):
        async with app.test(nodes=2):
            pass
