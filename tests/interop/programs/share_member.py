"""A member of a share group that takes records and never says what became of them: to be killed.

Arguments: bootstrap servers, topic, group. Prints a line for each record: partition, offset, delivery count.
"""

import asyncio
import sys

from busway import ShareConsumer


async def main(bootstrap_servers: str, topic: str, group: str) -> None:
    """Until it is killed."""
    async with ShareConsumer(topic, bootstrap_servers=bootstrap_servers, group_id=group) as consumer:
        while True:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                for record in records:
                    print(record.partition, record.offset, record.delivery_count, flush=True)


asyncio.run(main(*sys.argv[1:4]))
