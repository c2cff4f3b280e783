"""A service made of decorated functions.

Here: `Application`: starting, stopping, reading. Clients and workers are imported at the start, since declarations, and
commands that only read them, do without.
Not here: declarations (`declaring`), sending (`sending`), the consume loop (`handling.worker`), signals (`serving`).
"""

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar

from busway.app.calling.layers import Handler, prepare
from busway.app.declaring.lifespan import Lifespan, entered
from busway.app.declaring.options import check_options, keeping_together
from busway.app.declaring.table_declarations import TableDeclarations
from busway.app.extending.hooks import Hooks
from busway.app.handling.handler_output import OutsideOutput
from busway.app.model.topic import BadDeclaration, ConsumerRecord, OpenOutput, Topic
from busway.app.serving import serve
from busway.errors import NotRunning
from busway.net.clock import APP_TIME
from busway.net.machine import current_machine, has_threads
from busway.options import ConsumerOptions, ProducerOptions, options_from
from busway.security.choosing import chosen
from busway.security.options import SecurityOptions
from busway.serde.errors import Undecodable
from busway.serde.naming import SubjectNaming, topic_name
from busway.types import Addresses, TopicPartition

if TYPE_CHECKING:
    from busway.app.handling.lane import Sleep
    from busway.app.handling.worker import Worker
    from busway.app.queues.worker import QueueWorker
    from busway.consumer.consumer import Consumer
    from busway.producer.producer import Producer

logger: logging.Logger = logging.getLogger("busway.app")

FAREWELL_S: Final = 5.0
"""Seconds beyond drain_timeout_s for the last commit, leaving the group and sends in flight.

A supervisor may kill the process soon after (Kubernetes after 30 s).
"""
TRANSACTION_TIMEOUT_MS: Final = 10_000
"""Transaction timeout, at most the session timeout; `producer={"transaction_timeout_ms": …}` overrides it.

A killed process's transaction blocks readers for this long.
"""
_LEAST_S: Final = 1.0
"""Minimum for each of these steps, even after the time is used up."""

K = TypeVar("K")
V = TypeVar("V")


class Application(TableDeclarations):
    """A service; the arguments are those of `App`."""

    def __init__(
        self,
        name: str,
        bootstrap_servers: Addresses = "localhost:9092",
        schema_registry: str | None = None,
        *,
        group_id: str | None = None,
        auto_offset_reset: Literal["earliest", "latest", "none"] = "earliest",
        register_schemas: bool = True,
        subject_naming: SubjectNaming = topic_name,
        lifespan: Lifespan[Self] | None = None,
        commit_interval_s: float = 1.0,
        drain_timeout_s: float = 15.0,
        producer: dict[str, Any] | None = None,
        consumer: dict[str, Any] | None = None,
        security: SecurityOptions | None = None,
    ) -> None:
        super().__init__(
            name,
            group_id or name,
            bootstrap_servers,
            schema_registry,
            register_schemas=register_schemas,
            subject_naming=subject_naming,
        )
        self.security: SecurityOptions = chosen(security)
        self._auto_offset_reset = auto_offset_reset
        self._enter_lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = (
            None if lifespan is None else functools.partial(entered, lifespan, self)
        )
        self._commit_interval_s = commit_interval_s
        self.drain_timeout_s = drain_timeout_s
        self.producer_options: dict[str, Any] = producer or {}
        self.consumer_options: dict[str, Any] = consumer or {}
        check_options(name, self.producer_options, self.consumer_options)
        self._started_queues: list[QueueWorker] = []
        self._stack: AsyncExitStack | None = None
        self._starting: asyncio.Task[Any] | None = None
        self._not_starting = asyncio.Event()
        self._working: asyncio.Task[None] | None = None
        self._stop_by = 0.0
        self.worker: Worker | None = None
        """None while the app does not run, or without handlers."""
        self.shares_together = False
        """Whether one instance must own partition n of all topics, because a table has several sources."""
        self.sleep: Sleep = APP_TIME.sleep

    # Running

    async def start(self) -> None:
        """Connect, create missing topics, register schemas and start handling records.

        Raises:
            ConnectionFailed: no broker can be reached.
            RegistryUnreachable, RegistryRefused: a schema cannot be registered; the text names the incompatibility.
            BadDeclaration: a topic in Avro without a registry.
            TopicMissing: a handler reads a read_only topic that does not exist.
            ExtensionFailed: an extension could not start.
        """
        if self._stack is not None or self._starting is not None:
            raise NotRunning(f"app {self.name} is running already")
        self._starting = task = asyncio.current_task()
        self._not_starting = asyncio.Event()  # bound to this event loop, which may differ from the last start
        stopping = task.cancelling() if task is not None else 0
        try:
            await self._start()
        except asyncio.CancelledError:
            if task is not None and self._starting is None:  # by `stop`, not by the owner of this task
                if task.uncancel() > stopping:
                    raise
                raise NotRunning(f"app {self.name} was stopped while it started") from None
            raise
        finally:
            self._starting = None
            self._not_starting.set()
            if self._stack is None:
                self._producer = self._serdes = self.worker = None

    async def _start(self) -> None:
        from busway.admin.missing import ask_for
        from busway.app.declaring.declared_topics import create_declared
        from busway.producer.producer import Producer

        async with AsyncExitStack() as stack:
            self._made.clear()
            await create_declared(self)
            options = {"linger_ms": 0, **self.producer_options}
            self._producer = producer = Producer(
                self.bootstrap_servers, client_id=self.name, security=self.security, **options
            )
            await producer.start()
            stack.push_async_callback(lambda: producer.stop(self._time_left()))
            self._serdes = self.new_serdes()
            stack.push_async_callback(self._serdes.close)
            await self._serdes.prepare(self.topics.values())
            self._stack = stack.pop_all()
        try:
            state = None
            if self._enter_lifespan is not None:
                state = await self._stack.enter_async_context(self._enter_lifespan())
            hooks = Hooks(self.extensions)
            await hooks.start(self, self._stack)
            self._mark = hooks.sending if hooks.marks else None
            self._bound = True
            if self.routes or self.queue_routes:
                read = (topic.name for route in (*self.routes, *self.queue_routes) for topic in route.topics)
                await ask_for(self, read)
                await self._start_work(hooks, await prepare(self, state, hooks, self._stack))
        except BaseException:
            await self._stop()
            raise

    async def _start_work(self, hooks: Hooks, handlers: Sequence[Handler]) -> None:
        from busway.app.handling.worker import Worker
        from busway.app.handling.worker_context import WorkerContext
        from busway.app.queues.running import start_working

        assert self._stack is not None
        exactly_once = any(route.guarantee == "exactly_once" for route in self.routes)
        options = {
            "group_id": self.group_id,
            "auto_offset_reset": self._auto_offset_reset,
            "enable_auto_commit": False,
            **(keeping_together(self.consumer_options) if self.shares_together else {}),
            **self.consumer_options,
            **({"isolation_level": "read_committed"} if exactly_once else {}),
        }
        context = WorkerContext(
            group=self.group_id,
            handlers=handlers,
            read=self.serdes.read,
            send_raw=self._send_raw,
            on_assigned=self._assigned,
            hooks=hooks,
            sleep=self._sleep,
            commit_interval_s=self._commit_interval_s,
            drain_timeout_s=self.drain_timeout_s,
            make_producer=self._producers(options) if exactly_once else None,
        )
        if self.routes:
            self.worker = Worker(context)
            await self._start_consumer(self.worker, self._stack, options)
        self._working = await start_working(
            self, context, self._stack, worker=self.worker, queues=self._started_queues, reset=self._auto_offset_reset
        )

    async def _start_consumer(self, worker: "Worker", stack: AsyncExitStack, options: Mapping[str, Any]) -> None:
        from busway.app.waiting import ended, explain_wait
        from busway.consumer.consumer import Consumer

        if (transactor := worker.transactor) is not None:
            await transactor.start()
            stack.push_async_callback(lambda: transactor.stop(self._time_left()))
        consumer = Consumer(
            *sorted({topic.name for route in self.routes for topic in route.topics}),
            bootstrap_servers=self.bootstrap_servers,
            client_id=self.name,
            listener=worker,
            security=self.security,
            **options,
        )
        worker.reads(consumer)
        await consumer.start()
        stack.push_async_callback(self._leave, consumer)
        if has_threads():  # a simulation records everything itself
            stack.push_async_callback(ended, asyncio.ensure_future(explain_wait(self, consumer)))

    def _producers(self, consumer_options: dict[str, Any]) -> "Callable[[], Producer]":
        """Make the factory of this instance's transactional producers, with one transactional id.

        A static member's id derives from its group.instance.id, so a restart aborts its predecessor's transaction.
        Others get a random id: their open transactions end by timeout, for which the next owners wait because they
        fetch stable offsets (KIP-447).
        """
        from busway.producer.producer import Producer

        options = options_from(ConsumerOptions, consumer_options)
        own = options.group_instance_id or str(current_machine().uuid4())
        timeout_ms = min(TRANSACTION_TIMEOUT_MS, options.session_timeout_ms)
        if self.consumer_options.get("isolation_level", "read_committed") != "read_committed":
            raise BadDeclaration(
                f"app {self.name}: handlers that are exactly_once read what is committed; leave isolation_level out of consumer={{…}}"
            )
        producing = {"linger_ms": 0, "transaction_timeout_ms": timeout_ms, **self.producer_options}
        name = f"{self.group_id}-{own}"
        try:
            options_from(ProducerOptions, {"transactional_id": name, **producing})
        except ValueError as problem:
            raise BadDeclaration(f"app {self.name}: handlers are exactly_once, and {problem}") from None
        return lambda: Producer(
            self.bootstrap_servers, client_id=self.name, transactional_id=name, security=self.security, **producing
        )

    async def stop(self) -> None:
        """Drain handlers, commit and disconnect; idempotent. A pending start is cancelled first.

        Raises:
            NotRunning: called by a handler, for which it would wait; call it from another task.
        """
        if any(worker.is_handling(asyncio.current_task()) for worker in (self.worker, *self.queue_workers) if worker):
            raise NotRunning(
                f"app {self.name} cannot be stopped by its own handler, for which stop() waits; use another task"
            )
        if self._starting is not None and self._starting is not asyncio.current_task():
            starting, self._starting = self._starting, None
            starting.cancel()
            await self._not_starting.wait()
        await self._stop()

    async def _stop(self) -> None:
        working, self._working = self._working, None
        self._stop_by = APP_TIME.now_s() + self.drain_timeout_s + FAREWELL_S
        if working is not None:
            working.cancel()
            await APP_TIME.wait([working], timeout=self._time_left())
            if not working.done():
                logger.warning("%s: the last commit took too long; its records are handled again", self.name)
                working.cancel()
                await asyncio.wait([working])
        self._bound = False
        stack, self._stack = self._stack, None
        if stack is None:
            return
        try:
            await stack.aclose()
        finally:
            self._producer = self._serdes = self.worker = self._mark = None

    def _time_left(self) -> float:
        return max(_LEAST_S, self._stop_by - APP_TIME.now_s())

    async def _leave(self, consumer: "Consumer") -> None:
        try:
            async with APP_TIME.timeout(self._time_left()):
                await consumer.stop()
        except TimeoutError:
            logger.warning("%s: the group %s was not left in time; its session has to end", self.name, self.group_id)

    @property
    def problem(self) -> BaseException | None:
        """Why the app stopped by itself; None while it runs, and after `stop`."""
        working = self._working
        return working.exception() if working is not None and working.done() and not working.cancelled() else None

    async def wait(self) -> None:
        """Wait until the app is stopped; raise why, if it stopped by itself."""
        if (working := self._working) is None:
            raise NotRunning(f"app {self.name} has no handlers to wait for, or does not run")
        await asyncio.wait([working])
        if not working.cancelled():
            working.result()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def serve(self) -> None:
        """Run until SIGINT or SIGTERM, then drain, as `busway run` does; raises as `start` and `wait`."""
        await serve(self)

    @property
    def records_in_hand(self) -> int:
        return sum(worker.records_in_hand for worker in (self.worker, *self.queue_workers) if worker is not None)

    @property
    def is_starting(self) -> bool:
        return self._starting is not None

    # For extensions

    @property
    def producers(self) -> "tuple[Producer, ...]":
        transactor = None if self.worker is None else self.worker.transactor
        return (self.producer,) if transactor is None else (self.producer, transactor.producer)

    @property
    def queue_workers(self) -> "list[QueueWorker]":
        return self._started_queues if self.is_running else []

    def open_output(self, topics: Collection[str], partition: int) -> OpenOutput | None:
        worker = self.worker
        assigned = None if worker is None else worker.exactly_once_partition(topics, partition)
        if worker is None or worker.transactor is None or assigned is None:
            return None
        return OutsideOutput(assigned, worker.transactor.add)

    # Reading

    async def read(
        self, topic: Topic[K, V], *, partitions: Iterable[int] | None = None
    ) -> AsyncIterator[ConsumerRecord[K, V]]:
        """Read committed records of a topic, or of some partitions, up to the current end.

        Waits for open transactions.

        Raises:
            Undecodable: a record does not fit the topic's types; names partition and offset.
            NotRunning: the app is not running.
            BadDeclaration: the app had no such topic when it started.
        """
        from busway.consumer.snapshot import read_to_end

        serdes = self.serdes
        if not serdes.knows(topic):
            raise self._undeclared(topic)
        async for record in read_to_end(
            self.bootstrap_servers,
            topic.name,
            partitions,
            client_id=self.name,
            isolation_level="read_committed",
            security=self.security,
        ):
            try:
                yield await serdes.decode(record)
            except Undecodable as problem:
                raise Undecodable(f"{topic.name}-{record.partition} offset {record.offset}: {problem}") from None

    # Parts

    async def _assigned(self, partitions: Sequence[TopicPartition]) -> None:
        for function in self._on_assigned:
            await function(partitions)

    async def _sleep(self, seconds: float) -> None:
        await self.sleep(seconds)
