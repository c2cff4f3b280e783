"""The service: positions in, the newest of each truck and low-fuel alerts out. `busway run ingestion.service:app` runs it.

Here: topics, tables, the handler.
Not here: the rules (`domain`), the layers (`layers`), the page (`http`).

`trucks` and `TRUCK_ALERTS` are tables, in the partition that has the number of the truck's positions. An alert is written, and
acknowledged, before the truck's row that knows of it; it has the offset of its position, so a position that comes again after a crash
finds it there and sends no second one.
"""

import os
from pathlib import Path

from busway import App, ConsumerRecord, Retry
from busway.web import Web
from ingestion import domain, http
from ingestion.events import LowFuel, Position, Truck
from ingestion.layers import Layers

PARTITIONS = 10
TOPIC = "TRUCK_GPS"

app = App(
    "ingestion",
    bootstrap_servers=os.environ.get("BUSWAY_BOOTSTRAP_SERVERS", "localhost:9092"),
    schema_registry=os.environ.get("BUSWAY_SCHEMA_REGISTRY", "http://localhost:8081"),
    consumer={"group_instance_id": os.environ.get("INGESTION_INSTANCE")},
)
positions = app.topic(TOPIC, key=str, value=Position, partitions=PARTITIONS)
trucks = app.table("trucks", value=Truck)
alerts = app.table("TRUCK_ALERTS", value=LowFuel)
layers = app.extend(Layers(TOPIC, Path(os.environ.get("INGESTION_STORE", "store")) / TOPIC))
web = app.extend(Web(http.create(trucks, alerts, positions, layers)))


@app.subscribe(positions, retry=Retry(give_up_on=(domain.Impossible,)))
async def keep_truck(position: Position | None, record: ConsumerRecord[str, Position]) -> None:
    """Bring the truck up to date, and tell when it runs low."""
    if position is None:
        raise domain.Impossible("the value is missing; positions are never deleted")
    truck_id = position.truck_id
    before = trucks.get(truck_id)
    after, alert = domain.apply(before, position, record.offset)
    if alert is not None:
        known = alerts.get(truck_id)
        if known is None or known.offset < record.offset:
            await alerts.put(truck_id, alert, partition=record.partition)
            await alerts.flush()
    if after is not before:
        await trucks.put(truck_id, after, partition=record.partition)
    layers.add(record.partition, record.offset, position)
