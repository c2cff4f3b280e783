"""The service of `benchmarks.exactly_once` in Quix Streams: bootstrap, group, topic, topic of results, guarantee, records, folder.

Here: one dataframe from topic to topic.
Not here: Busway, which is not installed where this runs.

Prints the seconds, and those of processor time, from its first record until it has stopped with all of them committed.
"""

import json
import sys
import time

from quixstreams import Application

bootstrap, group, topic, results, guarantee, records, folder = sys.argv[1:]
began: list[tuple[float, float]] = []


def price(ride: dict[str, object]) -> dict[str, object]:
    """The work."""
    if not began:
        began.append((time.monotonic(), time.process_time()))
    return ride


service = Application(
    bootstrap,
    consumer_group=group,
    auto_offset_reset="earliest",
    processing_guarantee=guarantee,
    state_dir=folder,
    loglevel="ERROR",
)
rides = service.dataframe(service.topic(topic, value_deserializer="json"))
rides.apply(price).to_topic(service.topic(results, value_serializer="json"))
service.run(count=int(records))
at, cpu_at = began[0]
print(json.dumps({"seconds": time.monotonic() - at, "cpu_s": time.process_time() - cpu_at}))
