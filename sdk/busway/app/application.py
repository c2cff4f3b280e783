"""A service made of decorated functions.

What lives here: `Application`: starting and stopping, reading. What does not: declaring (`declaring`), sending (`sending`), the consume loop
(`handling.worker`), signals (`serving`), the public `App`, which can be tested (`busway.testable_app`).
"""

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar

from busway.admin.missing import ask_for
from busway.app.calling.layers import Handler, prepare
from busway.app.declaring.declared_topics import create_declared
from busway.app.declaring.lifespan import Lifespan, entered
from busway.app.declaring.options import check_options, keeping_together
from busway.app.declaring.table_declarations import TableDeclarations
from busway.app.extending.hooks import Hooks
from busway.app.handling.lane import Sleep
from busway.app.handling.work import OutsideWork
from busway.app.handling.worker import Worker
from busway.app.handling.worker_parts import WorkerParts
from busway.app.model.topic import BadDeclaration, ConsumerRecord, OpenWork, Topic
from busway.app.queues.running import start_working
from busway.app.queues.worker import QueueWorker
from busway.app.serving import serve
from busway.app.waiting import ended, explain_wait
from busway.cluster.client import Addresses
from busway.consumer.consumer import Consumer
from busway.consumer.snapshot import read_to_end
from busway.errors import NotRunning
from busway.net.clock import APP_TIME
from busway.net.machine import current_machine, has_threads
from busway.options import ConsumerOptions, ProducerOptions, options_from
from busway.producer.producer import Producer
from busway.serde.errors import Undecodable
from busway.serde.naming import SubjectNaming, topic_name
from busway.types import TopicPartition

logger = logging.getLogger("busway.app")

FAREWELL_S: Final = 5.0
"""When an app stops, the last commit, leaving the group and results on their way get no longer than this beyond drain_timeout_s: what
is not committed is handled again, and whoever stops the process would kill it soon (Kubernetes after 30 s)."""
TRANSACTION_TIMEOUT_MS: Final = 10_000
"""A transaction is open for milliseconds. One that a killed process leaves open keeps readers of committed records waiting so long, or
for as long as a session lasts if that is less; `producer={"transaction_timeout_ms": …}` says otherwise."""
_LEAST_S: Final = 1.0
"""Each of them gets as long as this, even when others have used up the time."""

K = TypeVar("K")
V = TypeVar("V")


class Application(TableDeclarations):
    """Run a service; the arguments are those of `App`."""

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
    ) -> None:
        super().__init__(
            name,
            group_id or name,
            bootstrap_servers,
            schema_registry,
            register_schemas=register_schemas,
            subject_naming=subject_naming,
        )
        self._auto_offset_reset = auto_offset_reset
        self._enter_lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = (
            None if lifespan is None else functools.partial(entered, lifespan, self)
        )
        self._commit_interval_s = commit_interval_s
        self.drain_timeout_s = drain_timeout_s
        self.producer_options = producer or {}
        self.consumer_options = consumer or {}
        check_options(name, self.producer_options, self.consumer_options)
        self._started_queues: list[QueueWorker] = []
        self._stack: AsyncExitStack | None = None
        self._starting: asyncio.Task[Any] | None = None
        self._not_starting = asyncio.Event()
        self._working: asyncio.Task[None] | None = None
        self._stop_by = 0.0
        self.worker: Worker | None = None
        """The running consume loop with its counters; None when the app does not run or has no handlers."""
        self.shares_together = False
        """Whether partition n of all topics must go to the same instance, because a table goes with several of them."""
        self.sleep: Sleep = APP_TIME.sleep
        """How the app waits between attempts; tests put a clock of their own here."""

    # Running

    async def start(self) -> None:
        """Connect, create topics that are missing, register schemas, begin to handle records.

        Raises:
            ConnectionFailed: no broker can be reached.
            RegistryUnreachable, RegistryRefused: a schema cannot be registered; the text says where it is incompatible.
            BadDeclaration: a topic in Avro without a registry.
            TopicMissing: a handler reads a read_only topic that does not exist.
            ExtensionFailed: an extension could not start.
        """
        if self._stack is not None or self._starting is not None:
            raise NotRunning(f"app {self.name} is running already")
        self._starting = task = asyncio.current_task()
        self._not_starting = asyncio.Event()  # of this event loop, which may be another than last time
        stopping = task.cancelling() if task is not None else 0
        try:
            await self._start()
        except asyncio.CancelledError:
            if task is not None and self._starting is None:  # by `stop`, not by whoever runs this task
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
        async with AsyncExitStack() as stack:
            self._made.clear()
            await create_declared(self)
            options = {"linger_ms": 0, **self.producer_options}
            self._producer = producer = Producer(self.bootstrap_servers, client_id=self.name, **options)
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
            self._bound = True
            if self.routes or self.queue_routes:
                read = (topic.name for route in (*self.routes, *self.queue_routes) for topic in route.topics)
                await ask_for(self, read)
                await self._start_work(hooks, await prepare(self, state, hooks, self._stack))
        except BaseException:
            await self._stop()
            raise

    async def _start_work(self, hooks: Hooks, handlers: Sequence[Handler]) -> None:
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
        parts = WorkerParts(
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
            self.worker = Worker(parts)
            await self._start_consumer(self.worker, self._stack, options)
        self._working = await start_working(
            self, parts, self._stack, worker=self.worker, queues=self._started_queues, reset=self._auto_offset_reset
        )

    async def _start_consumer(self, worker: Worker, stack: AsyncExitStack, options: Mapping[str, Any]) -> None:
        if (transactor := worker.transactor) is not None:
            await transactor.start()
            stack.push_async_callback(lambda: transactor.stop(self._time_left()))
        consumer = Consumer(
            *sorted({topic.name for route in self.routes for topic in route.topics}),
            bootstrap_servers=self.bootstrap_servers,
            client_id=self.name,
            listener=worker,
            **options,
        )
        worker.reads(consumer)
        await consumer.start()
        stack.push_async_callback(self._leave, consumer)
        if has_threads():  # a simulation's reader has the whole story
            stack.push_async_callback(ended, asyncio.ensure_future(explain_wait(self, consumer)))

    def _producers(self, consumer_options: dict[str, Any]) -> Callable[[], Producer]:
        """What makes this instance's transactional producers, all of one name.

        A static member has the name of its own, so that one that is started again aborts what the one before left open. Any other gets
        a new one: what it leaves open when it is killed ends by its timeout. The next owners of its partitions wait for that, as they ask
        for stable offsets (KIP-447), where the group gives them the partitions before.
        """
        options = options_from(ConsumerOptions, consumer_options)
        own = options.group_instance_id or str(current_machine().uuid4())
        timeout_ms = min(TRANSACTION_TIMEOUT_MS, options.session_timeout_ms)
        if self.consumer_options.get("isolation_level", "read_committed") != "read_committed":
            raise BadDeclaration(
                f"app {self.name}: handlers that are exactly_once read what is committed; leave isolation_level out of consumer={{…}}"
            )
        chosen = {"linger_ms": 0, "transaction_timeout_ms": timeout_ms, **self.producer_options}
        name = f"{self.group_id}-{own}"
        try:
            options_from(ProducerOptions, {"transactional_id": name, **chosen})
        except ValueError as problem:
            raise BadDeclaration(f"app {self.name}: handlers are exactly_once, and {problem}") from None
        return lambda: Producer(self.bootstrap_servers, client_id=self.name, transactional_id=name, **chosen)

    async def stop(self) -> None:
        """Let running handlers end, commit, disconnect; an app that is starting is stopped first. Safe to call twice.

        Raises:
            NotRunning: a handler called it, which would wait for itself; let another task do it.
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
            self._producer = self._serdes = self.worker = None

    def _time_left(self) -> float:
        return max(_LEAST_S, self._stop_by - APP_TIME.now_s())

    async def _leave(self, consumer: Consumer) -> None:
        try:
            async with APP_TIME.timeout(self._time_left()):
                await consumer.stop()
        except TimeoutError:
            logger.warning("%s: the group %s was not left in time; its session has to end", self.name, self.group_id)

    @property
    def problem(self) -> BaseException | None:
        """Why it stopped by itself; None while it runs, and when it was stopped."""
        working = self._working
        return working.exception() if working is not None and working.done() and not working.cancelled() else None

    async def wait(self) -> None:
        """Returns when the app has been stopped.

        Raises:
            HandlerFailed, BuswayError: it stopped by itself.
        """
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
        """Run until SIGINT or SIGTERM, then drain; what `busway run` does.

        Raises:
            HandlerFailed, BuswayError: the app could not start, or stopped by itself.
        """
        await serve(self)

    @property
    def records_in_hand(self) -> int:
        """How many records handlers are called with at this moment."""
        return sum(worker.records_in_hand for worker in (self.worker, *self.queue_workers) if worker is not None)

    @property
    def is_starting(self) -> bool:
        """Whether `start` is under way."""
        return self._starting is not None

    # For extensions

    @property
    def producers(self) -> tuple[Producer, ...]:
        """What sends its records: that of the app, and where handlers are exactly_once, that of their transactions."""
        transactor = None if self.worker is None else self.worker.transactor
        return (self.producer,) if transactor is None else (self.producer, transactor.producer)

    @property
    def queue_workers(self) -> list[QueueWorker]:
        """What works off its queues, with counters; none while it does not run."""
        return self._started_queues if self.is_running else []

    def open_work(self, topics: Collection[str], partition: int) -> OpenWork | None:
        """Return work that is committed with what is handled exactly once of these topics' partition.

        Returns:
            None where this instance has no such partition.
        """
        worker = self.worker
        home = None if worker is None else worker.home_of(topics, partition)
        if worker is None or worker.transactor is None or home is None:
            return None
        return OutsideWork(home, worker.transactor.add)

    # Reading

    async def read(
        self, topic: Topic[K, V], *, partitions: Iterable[int] | None = None
    ) -> AsyncIterator[ConsumerRecord[K, V]]:
        """All records of a topic, or of some partitions, up to what is the end now, but for those of transactions that were aborted; one
        that is open is waited for.

        Raises:
            Undecodable: a record is not what the topic holds; names partition and offset.
            NotRunning: the app is not running.
            BadDeclaration: the app had no such topic when it started.
        """
        serdes = self.serdes
        if not serdes.knows(topic):
            raise self._undeclared(topic)
        async for record in read_to_end(
            self.bootstrap_servers, topic.name, partitions, client_id=self.name, isolation_level="read_committed"
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
