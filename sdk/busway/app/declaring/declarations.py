"""Declarations of a service: its topics and its handlers.

Here: the decorators, and immediate refusals.
Not here: running anything (`application`).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar, Unpack, overload

from busway.app.calling.binding import is_coroutine_function, refusal
from busway.app.calling.layers import binder
from busway.app.declaring.queue_declarations import queue
from busway.app.extending.extension import Extension
from busway.app.model.retry import Retry, dead_letter_topic
from busway.app.model.topic import (
    GUARANTEES,
    OPEN_MAX_EXACTLY,
    ORDERINGS,
    BadDeclaration,
    Batch,
    ConsumerRecord,
    Format,
    Guarantee,
    KeyedTopicOptions,
    Ordering,
    Publication,
    Route,
    Topic,
    TopicOptions,
    TransactionalInbox,
    is_topic_name,
)
from busway.app.sending import Sending
from busway.serde.naming import SubjectNaming
from busway.types import Addresses, TopicPartition

K = TypeVar("K")
V = TypeVar("V")
F = TypeVar("F", bound=Callable[..., Any])
X = TypeVar("X", bound=Extension)
Assigned = Callable[[Sequence[TopicPartition]], Awaitable[None]]
CONCURRENCY_MAX: Final = 1000
"""As many records of a partition are fetched ahead; more concurrency would find no work."""


class Declarations(Sending):
    """Topics and handlers of an app; the arguments are those of `App`."""

    def __init__(
        self,
        name: str,
        group_id: str,
        bootstrap_servers: Addresses,
        schema_registry: str | None,
        *,
        register_schemas: bool,
        subject_naming: SubjectNaming,
    ) -> None:
        super().__init__(
            name, bootstrap_servers, schema_registry, register_schemas=register_schemas, subject_naming=subject_naming
        )
        self.group_id = group_id
        self.topics: dict[str, Topic[Any, Any]] = {}
        self.routes: list[Route] = []
        self.queue_routes: list[Route] = []
        self.extensions: list[Extension] = []
        self.overrides: dict[Callable[..., Any], Any] = {}
        """Replacements of dependencies, by the function named in `Depends`, from the next start on: functions or
        values.
        """
        self._on_assigned: list[Assigned] = []
        self._bound = False
        """Whether handlers were bound for a start; a later one would never be called."""

    @overload
    def topic(
        self,
        name: str,
        *,
        value: type[V],
        read_only: bool = False,
        **options: Unpack[TopicOptions],
    ) -> Topic[str, V]: ...

    @overload
    def topic(
        self,
        name: str,
        *,
        key: type[K],
        value: type[V],
        read_only: bool = False,
        **options: Unpack[KeyedTopicOptions],
    ) -> Topic[K, V]: ...

    def topic(
        self,
        name: str,
        *,
        key: Any = str,
        value: Any,
        format: Format = "avro",
        key_format: Format | None = None,
        partitions: int | None = None,
        configs: Mapping[str, str] | None = None,
        read_only: bool = False,
    ) -> Topic[Any, Any]:
        """Declare a topic with the types of its keys and values.

        Args:
            key: str (written as UTF-8), int (its digits), bytes, or with `key_format` any type.
            value: a dataclass, a struct, or what the format takes.
            format: "avro" through the registry, "json", or "raw" bytes.
            key_format: for keys of other types.
            partitions: of a topic that is created; None is the broker's default.
            configs: its settings then, by Kafka's names, such as {"cleanup.policy": "compact"}.
            read_only: another service or a connector writes it. Unless partitions or configs are given, it must exist
                when a handler reads it. No schema is registered: the types only name what this app reads. A class whose
                record has another name there lists that in `__avro_aliases__`.

        Raises:
            BadDeclaration: the name is illegal, or the topic was declared differently before.
        """
        topic: Topic[Any, Any] = Topic(
            name=name,
            key=key,
            value=value,
            format=format,
            key_format=key_format,
            partitions=partitions,
            configs=tuple(sorted((configs or {}).items())),
            read_only=read_only,
            app=self,
        )
        declared = self.topics.setdefault(name, topic)
        if (declared.key, declared.value, declared.format, declared.key_format) != (key, value, format, key_format):
            raise BadDeclaration(f"topic {name} was declared before with other types; declare it once and import it")
        if (
            partitions not in {None, declared.partitions}
            or (configs and topic.configs != declared.configs)
            or read_only != declared.read_only
        ):
            raise BadDeclaration(f"topic {name} was declared before with other settings; declare it once and import it")
        return declared

    def subscribe(
        self,
        *topics: Topic[Any, Any],
        retry: Retry | None = None,
        dead_letter: bool = True,
        ordering: Ordering = "key",
        concurrency: int = 1,
        where: Callable[[ConsumerRecord[Any, Any]], bool] | None = None,
        timeout_s: float | None = None,
        batch: Batch | None = None,
        sql: TransactionalInbox | None = None,
        guarantee: Guarantee = "at_least_once",
    ) -> Callable[[F], F]:
        """Decorate a function that handles the records of these topics.

        A coroutine function runs in the event loop, a plain one in a thread of the app, at most 256 at once. When it
        returns, the record is handled. When it raises, it is called again as `retry` says; then the record goes to the
        topic `<topic>.<group>.dlt`. An offset is committed once every record before it is done. Several handlers of a
        topic get every record, each at its own pace; with tables they take turns at rows, see `Table`.

        Args:
            retry: by default five attempts with growing waits.
            dead_letter: False stops the app instead of dead-lettering a record.
            ordering: "key": records of a key are handled one after another; while one waits for its next attempt, later
                ones of its key wait and other keys continue. "partition": it holds the whole partition. "none": no
                order.
            concurrency: how many records of a partition are handled at once, never two of one key; above 1, records
                without a key are unordered. With 1, records that have not failed are handled in the partition's order.
            where: takes the record; false filters it out for this handler. An exception is a failure of the record.
            timeout_s: maximum duration of one call, which then fails with `HandlerTimedOut`. A plain function continues
                in its thread, beside the next attempt. Waiting for a table's rows does not count.
            batch: calls the function with a list of records of one partition, in order, or of their values. A batch
                that failed for good is halved until the poison record is alone; that one is dead-lettered, the others
                are handled.
            sql: a database that remembers handled records: the function runs inside its transaction, passed as `tx`,
                and a record handled before is skipped. If it is an `Extension`, the app is extended with it.
            guarantee: "at_least_once": after a crash, records whose offset was not committed are handled again.
                "exactly_once": the handler's sends, publications, table rows and dead letters and the offset of its
                record are committed in one transaction or not at all; only committed records are read. Records are sent
                when the handler has returned, so `send` returns at once, with offset -1. A topic has one handler then.

        Raises:
            BadDeclaration: no topic, contradictory options, or a parameter that cannot be bound; names the line.
        """

        for topic in topics:
            if not isinstance(topic, Topic):
                raise self._no_topic(topic, "subscribe")

        def decorate(function: F) -> F:
            self._check_topics(function, topics, dead_letter=dead_letter)
            route = Route(
                function=function,
                topics=topics,
                retry=retry or Retry(),
                dead_letter=dead_letter,
                ordering=ordering,
                concurrency=concurrency,
                where=where,
                timeout_s=timeout_s,
                batch=batch,
                sql=sql,
                guarantee=guarantee,
            )
            if (why := _not_an_option(route) or _contradiction(route) or self._beside(route)) is not None:
                raise refusal(function, why)
            binder(route).bind(function)
            extension: Any = sql
            if isinstance(extension, Extension):
                self.extend(extension)
            self.routes.append(route)
            return function

        return decorate

    def _beside(self, route: Route) -> str | None:
        for other in self.routes:
            common = [topic.name for topic in route.topics if topic in other.topics]
            if common and "exactly_once" in {route.guarantee, other.guarantee}:
                return (
                    f"reads {common[0]}, as {other.name} does; a topic whose handler is exactly_once has one handler in an app, because what "
                    "is committed are records, not handlers: make one function of them, or give this one an App with a group_id of its own"
                )
        return None

    def queue(
        self,
        *topics: Topic[Any, Any] | str,
        group: str | None = None,
        concurrency: int = 1,
        retry: Retry | None = None,
        dead_letter: bool = True,
        where: Callable[[ConsumerRecord[Any, Any]], bool] | None = None,
        timeout_s: float | None = None,
    ) -> Callable[[F], F]:
        """Decorate a function that works off the records of these topics as a queue.

        A queue is a share group (KIP-932): its members, of which there may be more than partitions, take single records,
        in no order.

        When the function returns, its record is done. When it raises, the record waits as `retry` says and then goes to
        any member. After the last attempt, or at once for `Reject` and `retry.give_up_on`, it goes to the topic
        `<topic>.<group>.dlt`. A running function's record stays locked. A dead process's records go to others once
        their lock has expired (30 s by default), which counts as an attempt. Brokers deliver a record 5 times at most
        by default; more `attempts` need another group.share.delivery.count.limit.

        Args:
            topics: or names of topics of this app.
            group: the share group; by default the app's group with the suffix `.queue`. Other handlers of the app
                cannot have the same.
            concurrency: how many records are handled at once in this process.
            retry, dead_letter, where, timeout_s: as in `subscribe`.

        Raises:
            BadDeclaration: no topic, contradictory options, or a parameter that cannot be bound; names the line.
        """

        def check(route: Route) -> None:
            self._check_topics(route.function, route.topics, dead_letter=False)
            self._check_dead_letters(route.topics, route.group or "", dead_letter=dead_letter)
            if (why := _not_an_option(route) or _contradiction(route)) is not None:
                raise refusal(route.function, why)

        return queue(
            self,
            topics,
            group=group,
            concurrency=concurrency,
            retry=retry,
            dead_letter=dead_letter,
            where=where,
            timeout_s=timeout_s,
            check=check,
        )

    def _no_topic(self, argument: Any, decorator: str) -> BadDeclaration:
        if callable(argument):
            return refusal(argument, f"stands under a bare {decorator}; write @app.{decorator}(topic)")
        return BadDeclaration(f"{decorator} of app {self.name} takes what app.topic(…) returned, not {argument!r:.80}")

    def _check_topics(
        self, function: Callable[..., Any], topics: Sequence[Topic[Any, Any]], *, dead_letter: bool
    ) -> None:
        if not callable(function):
            raise BadDeclaration(f"app {self.name} cannot subscribe {function!r:.80}, which is no function")
        if self._bound:
            raise refusal(function, f"app {self.name} is running; subscribe before it starts")
        if not topics or not all(topic.app is self for topic in topics):
            raise refusal(function, f"subscribe names no topic made by app.topic(…) of app {self.name}")
        self._check_dead_letters(topics, self.group_id, dead_letter=dead_letter)

    def _check_dead_letters(self, topics: Sequence[Topic[Any, Any]], group: str, *, dead_letter: bool) -> None:
        for topic in topics:
            if dead_letter and not is_topic_name(dead_letter_topic(topic.name, group)):
                raise BadDeclaration(
                    f"dead letters of topic {topic.name} would go to {dead_letter_topic(topic.name, group)!r}, "
                    f"which is no name for a topic; choose another group{'_id' * (group == self.group_id)}, or dead_letter=False"
                )

    def publish(self, topic: Topic[Any, Any] | str, key: Callable[[Any], Any] | None = None) -> Callable[[F], F]:
        """Decorate a function above `subscribe`; its result is sent.

        The record is handled once the result is acknowledged. None sends nothing, a list sends each member.

        Args:
            topic: or the name of a topic of this app.
            key: takes the result, returns the key; without it, the key of the handled record (of a batch: none).

        Raises:
            BadDeclaration: it is not above subscribe; at start, that the topic does not take such values or keys.
        """

        if not isinstance(topic, str | Topic):
            raise self._no_topic(topic, "publish")

        def decorate(function: F) -> F:
            if isinstance(topic, Topic) and topic.app is not self:
                raise refusal(function, f"publishes to {topic.name}, which is no topic of app {self.name}")
            lists = (self.routes, self.queue_routes)
            subscribed = [
                (routes, at) for routes in lists for at, route in enumerate(routes) if route.function is function
            ]
            if not subscribed:
                raise refusal(function, f"is not subscribed yet; put publish above the subscribe of app {self.name}")
            new = Publication(topic=topic, key=key)
            for routes, at in subscribed:
                routes[at] = replace(routes[at], publications=(*routes[at].publications, new))
            return function

        return decorate

    def on_assigned(self, function: Assigned) -> Assigned:
        """Decorate a coroutine function called with new partitions before their first record.

        Raises:
            BadDeclaration: it is no coroutine function.
        """
        if not is_coroutine_function(function):
            raise refusal(function, "on_assigned waits for it, so it is an async def", "function")
        self._on_assigned.append(function)
        return function

    def extend(self, extension: X) -> X:
        """Add an extension and return it; idempotent.

        It starts after the lifespan was entered and before the first record; the first one is called first and
        surrounds the others.

        Raises:
            BadDeclaration: it is not an `Extension`.
        """
        if not isinstance(extension, Extension):
            raise BadDeclaration(f"app {self.name}: extend takes an Extension, not {extension!r:.80}")
        if not any(extended is extension for extended in self.extensions):
            self.extensions.append(extension)
        return extension


def _not_an_option(route: Any) -> str | None:
    """Refuse an option of a wrong type, which would fail late or do nothing."""
    if not isinstance(route.retry, Retry):
        return f"retry is a Retry(attempts=…), not {route.retry!r:.80}"
    if route.where is not None and (not callable(route.where) or is_coroutine_function(route.where)):
        return "where is a plain function that takes the record and returns at once; look things up in the handler"
    if route.batch is not None and not isinstance(route.batch, Batch):
        return f"batch is a Batch(max_records=…), not {route.batch!r:.80}"
    if route.sql is not None and not isinstance(route.sql, TransactionalInbox):
        return f"sql is a Sql(engine), not {route.sql!r:.80}"
    if not isinstance(route.concurrency, int) or isinstance(route.timeout_s, str):
        return "concurrency and timeout_s are numbers"
    return None


def _contradiction(route: Route) -> str | None:
    if route.ordering not in ORDERINGS:
        return f"ordering is {', '.join(ORDERINGS)}, not {route.ordering!r}"
    if not 1 <= route.concurrency <= CONCURRENCY_MAX:
        return f"concurrency is 1 to {CONCURRENCY_MAX}, not {route.concurrency}"
    if route.concurrency > 1 and route.ordering == "partition":
        return "concurrency above 1 and ordering='partition' contradict each other; choose ordering='key'"
    if route.concurrency > 1 and route.batch is not None:
        return "a batch holds its partition, so concurrency stays 1; leave one of the two out"
    if route.batch is not None and route.sql is not None:
        return "sql marks one record at a time; leave batch out"
    if route.guarantee not in GUARANTEES:
        return f"guarantee is {' or '.join(GUARANTEES)}, not {route.guarantee!r}"
    if route.guarantee == "exactly_once" and route.sql is not None:
        return "sql commits in the database, and exactly_once in the bus: there is no transaction of both; leave one of the two out"
    if route.guarantee == "exactly_once" and route.concurrency > OPEN_MAX_EXACTLY:
        return f"with exactly_once, concurrency is at most {OPEN_MAX_EXACTLY}, not {route.concurrency}"
    if route.timeout_s is not None and route.timeout_s <= 0:
        return f"timeout_s is above 0, not {route.timeout_s}"
    return None
