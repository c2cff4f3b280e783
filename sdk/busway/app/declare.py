"""What a service declares: its topics and its handlers.

What lives here: `Declarations`, the decorators, and what is refused at once. What does not: running anything (`bus`).
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from busway.app.binding import bind, name_of
from busway.app.declare_tables import TableDeclarations
from busway.app.extension import Extension
from busway.app.failures import Retry, dead_letter_topic
from busway.app.routes import BadDeclaration, Format, Route, Topic, is_topic_name
from busway.types import TopicPartition

if TYPE_CHECKING:
    from busway.app.bus import App

K = TypeVar("K")
V = TypeVar("V")
F = TypeVar("F", bound=Callable[..., Any])
X = TypeVar("X", bound=Extension)
Assigned = Callable[[Sequence[TopicPartition]], Awaitable[None]]


class Declarations(TableDeclarations):
    """The topics and handlers of an app; `App` runs them.

    Args:
        name: of the service.
        group_id: its consumer group.
    """

    def __init__(self, name: str, group_id: str) -> None:
        self.name = name
        self.group_id = group_id
        self.topics: dict[str, Topic[Any, Any]] = {}
        self.routes: list[Route] = []
        self.extensions: list[Extension] = []
        self._on_assigned: list[Assigned] = []

    @overload
    def topic(
        self,
        name: str,
        *,
        value: type[V],
        format: Format = "avro",
        partitions: int | None = None,
        configs: dict[str, str] | None = None,
    ) -> Topic[str, V]: ...

    @overload
    def topic(
        self,
        name: str,
        *,
        key: type[K],
        value: type[V],
        format: Format = "avro",
        key_format: Format | None = None,
        partitions: int | None = None,
        configs: dict[str, str] | None = None,
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
        configs: dict[str, str] | None = None,
    ) -> Topic[Any, Any]:
        """A topic with the types of its keys and values.

        Args:
            name: as the brokers know it.
            key: str (written as UTF-8), int (its digits), bytes, or with `key_format` any type.
            value: a dataclass, a struct, or what the format takes.
            format: "avro" through the registry, "json", or "raw" bytes.
            key_format: for keys of other types.
            partitions: how many to create if the topic is not there.
            configs: its settings then, by Kafka's names, such as {"cleanup.policy": "compact"}.

        Raises:
            BadDeclaration: the name is illegal, or the topic was declared before in another way.
        """
        found: Topic[Any, Any] = Topic(
            name=name,
            key=key,
            value=value,
            format=format,
            key_format=key_format,
            partitions=partitions,
            configs=tuple(sorted((configs or {}).items())),
            app=cast("App", self),
        )
        known = self.topics.setdefault(name, found)
        if (known.key, known.value, known.format, known.key_format) != (key, value, format, key_format):
            raise BadDeclaration(f"topic {name} was declared before with other types; declare it once and import it")
        if partitions not in {None, known.partitions} or (configs and found.configs != known.configs):
            raise BadDeclaration(f"topic {name} was declared before with other settings; declare it once and import it")
        return known

    def subscribe(
        self, *topics: Topic[Any, Any], retry: Retry | None = None, dead_letter: bool = True
    ) -> Callable[[F], F]:
        """Decorates a function that handles the records of these topics, one at a time for each partition, in order.

        A coroutine function runs in the event loop, a plain one in a thread. When it returns, the record counts as handled; when it
        raises, it is called again as `retry` says, and then the record goes to the topic `<topic>.<group>.dlt`.

        Args:
            topics: what to read.
            retry: by default five attempts with growing waits.
            dead_letter: False stops the app instead of putting a record aside.

        Raises:
            BadDeclaration: no topic, or a parameter that cannot be bound; names the line.
        """

        def decorate(function: F) -> F:
            if not topics or not all(isinstance(topic, Topic) and topic.app is self for topic in topics):
                raise BadDeclaration(
                    f"subscribe: handler {name_of(function)} names no topic made by app.topic(…) of app {self.name}"
                )
            for topic in topics:
                if dead_letter and not is_topic_name(dead_letter_topic(topic.name, self.group_id)):
                    raise BadDeclaration(
                        f"dead letters of topic {topic.name} would go to {dead_letter_topic(topic.name, self.group_id)!r}, "
                        "which is no name for a topic; choose another group_id, or dead_letter=False"
                    )
            self.routes.append(
                Route(
                    function=function,
                    topics=topics,
                    call=bind(function, topics),
                    retry=retry or Retry(),
                    dead_letter=dead_letter,
                )
            )
            return function

        return decorate

    def on_assigned(self, function: Assigned) -> Assigned:
        """Decorates a coroutine function that is told of partitions that came, before the first of their records is handled: the
        place to load what a service keeps for them."""
        self._on_assigned.append(function)
        return function

    def extend(self, extension: X) -> X:
        """Let an extension watch and surround the app; returns it. Once is enough: the same one again changes nothing.

        It starts after the lifespan was entered and before the first record; the first extended is asked first and surrounds the others.

        Raises:
            BadDeclaration: it is not an `Extension`.
        """
        if not isinstance(extension, Extension):
            raise BadDeclaration(f"app {self.name}: extend takes an Extension, not {extension!r:.80}")
        if not any(one is extension for one in self.extensions):
            self.extensions.append(extension)
        return extension
