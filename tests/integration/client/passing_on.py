"""A service that reads a topic and sends every record on, exactly once, until it is killed: python passing_on.py ADDRESS SOURCE TARGET GROUP

It says after each transaction that it is committed.
"""

import asyncio
import sys

from busway import Consumer, Producer

BATCH = 5


async def main(address: str, source: str, target: str, group: str) -> None:
    """Read, send on and commit the offsets, in one transaction for each poll."""
    async with (
        Consumer(
            source,
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            session_timeout_ms=1_000,
            heartbeat_interval_ms=200,
            max_poll_records=BATCH,
        ) as consumer,
        Producer(address, transactional_id=f"passing-{group}", linger_ms=0) as producer,
    ):
        while True:
            polled = await consumer.getmany(timeout_ms=500)
            if not polled:
                continue
            async with producer.transaction():
                for partition, records in polled.items():
                    for record in records:
                        await producer.send(target, record.value, partition=partition.partition)
                offsets = {partition: records[-1].offset + 1 for partition, records in polled.items()}
                await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            print("committed", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
