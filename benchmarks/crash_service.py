"""A service of one handler, which `benchmarks.crash` kills: `python -m benchmarks.crash_service BOOTSTRAP TOPIC GROUP`.

Here: the service; it prints a line of JSON for each record.
Not here: killing it, and the clock (`crash`).
"""

import asyncio
import sys

from busway import App


def main(bootstrap: str, topic: str, group: str) -> None:
    """Handle records until killed."""
    app = App("crash", bootstrap, group_id=group)

    @app.subscribe(app.topic(topic, value=bytes, format="raw"))
    async def handle(value: bytes) -> None:
        print("{}", flush=True)

    asyncio.run(app.serve())


if __name__ == "__main__":
    main(*sys.argv[1:])
