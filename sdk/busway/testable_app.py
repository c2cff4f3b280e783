"""`App`: a service made of decorated functions, testable in this process.

Not here: all else (`busway.app.application`), a test's broker and clock (`busway.testing`).
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

from busway.app.application import Application

if TYPE_CHECKING:
    from busway.testing.bus import TestBus
    from busway.testing.clock import ClockName


class App(Application):
    """A service: topics, handlers, and their connections.

    Args:
        name: of the service; also its consumer group.
        bootstrap_servers: `host:port`, several with commas or as a list.
        schema_registry: address of the registry; needed for topics in Avro.
        group_id: another consumer group than `name`.
        auto_offset_reset: where a new group begins; earliest, so that nothing is missed.
        register_schemas: register schemas at start; else they must be in the registry.
        subject_naming: under which subject.
        lifespan: takes the app; an async generator function that yields once, or a function that returns an async
            context manager. It is entered before the first record and left after the last; what it yields is
            `Context.state` for handlers.
        commit_interval_s: how often finished offsets are committed; also at a rebalance and at the end.
        drain_timeout_s: how long running handlers may take to end when the app stops or loses a partition; a stop whose
            brokers do not answer takes 5 s more.
        producer, consumer: further options of `ProducerOptions` and `ConsumerOptions`. linger_ms is 0 here, because a
            handler that awaits each send should not wait for a batch to fill; records still share a batch while another
            is in flight.
        security: TLS and SASL of all its connections to brokers; by default the environment's, else plain text.
    """

    @contextlib.asynccontextmanager
    async def test(
        self,
        *,
        overrides: Mapping[Callable[..., Any], Any] | None = None,
        clock: "ClockName" = "skip",
        nodes: int = 1,
    ) -> AsyncIterator["TestBus"]:
        """Run the app on a fresh broker and registry in this process, for tests; see `busway.testing.TestBus`.

        Args:
            overrides: replacements of dependencies meanwhile, beside `App.overrides`.
            clock: "skip": waits between attempts take no time; "manual": all waits of the app, its handlers' sleeps and
                deadlines included, end by `TestBus.advance`; clients, broker and the test keep real time.
            nodes: 3 runs a cluster of three, of which `TestBus.cluster` kills and restarts single nodes; up to 7.

        Raises:
            NotRunning: the app is running already; it keeps running.
            MissingExtra: the registry's packages are not installed.
        """
        from busway.testing.bus import running_test_bus

        before = dict(self.overrides)
        self.overrides.update(overrides or {})
        try:
            async with running_test_bus(self, clock=clock, nodes=nodes) as bus:
                yield bus
        finally:
            self.overrides.clear()
            self.overrides.update(before)
