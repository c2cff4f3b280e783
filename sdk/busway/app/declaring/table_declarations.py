"""`App.table` and `App.global_table`.

Here: declaring tables.
Not here: the tables (`busway.app.tables`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from busway.app.declaring.declarations import Declarations
from busway.app.model.topic import KeyedTopicOptions, Topic, TopicOptions

if TYPE_CHECKING:
    from busway.app.tables.global_table import GlobalTable
    from busway.app.tables.table import Table

K = TypeVar("K")
V = TypeVar("V")


class TableDeclarations(Declarations):
    """Declare the tables of an app besides its topics and handlers."""

    @overload
    def table(
        self,
        name: str,
        *,
        value: type[V],
        sources: Sequence[Topic[Any, Any]] = (),
        **options: Unpack[TopicOptions],
    ) -> "Table[str, V]": ...

    @overload
    def table(
        self,
        name: str,
        *,
        key: type[K],
        value: type[V],
        sources: Sequence[Topic[Any, Any]] = (),
        **options: Unpack[KeyedTopicOptions],
    ) -> "Table[K, V]": ...

    def table(
        self,
        name: str,
        *,
        key: Any = str,
        value: Any,
        sources: Sequence[Topic[Any, Any]] = (),
        **options: Unpack[KeyedTopicOptions],
    ) -> "Table[Any, Any]":
        """Declare state in a compacted topic: an instance has the rows of its assigned partitions; see `Table`.

        Args:
            name: of the topic.
            key, value, format, key_format: as for `topic`.
            partitions: by default, and necessarily, as many as the handlers' topics have.
            configs: of the topic when it is created, by Kafka's names; it is compacted.
            sources: the topics whose handlers change it, if not all topics that handlers read.

        Raises:
            BadDeclaration: as `topic`, or the key type is not hashable.
        """
        from busway.app.tables.table import Table

        partitions, configs = options.pop("partitions", None), options.pop("configs", None)
        topic: Topic[Any, Any] = self.topic(name, key=key, value=value, **options)
        return self.extend(Table(topic, partitions=partitions, configs=configs, sources=sources))

    @overload
    def global_table(
        self,
        name: str,
        *,
        value: type[V],
        read_only: bool = False,
        **options: Unpack[TopicOptions],
    ) -> "GlobalTable[str, V]": ...

    @overload
    def global_table(
        self,
        name: str,
        *,
        key: type[K],
        value: type[V],
        read_only: bool = False,
        **options: Unpack[KeyedTopicOptions],
    ) -> "GlobalTable[K, V]": ...

    def global_table(
        self,
        name: str,
        *,
        key: Any = str,
        value: Any,
        read_only: bool = False,
        **options: Unpack[KeyedTopicOptions],
    ) -> "GlobalTable[Any, Any]":
        """Declare a whole topic in the memory of every instance, loaded before the first record; see `GlobalTable`.

        Args:
            name: of the topic.
            key, value, format, key_format: as for `topic`.
            partitions, read_only: as for `topic`.
            configs: of the topic when it is created, by Kafka's names; it is compacted.

        Raises:
            BadDeclaration: as `topic`, or the key type is not hashable.
        """
        from busway.app.tables.global_table import GlobalTable

        partitions, configs = options.pop("partitions", None), options.pop("configs", None)
        topic: Topic[Any, Any] = self.topic(name, key=key, value=value, read_only=read_only, **options)
        return self.extend(GlobalTable(topic, partitions=partitions, configs=configs))
