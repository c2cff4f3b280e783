"""`App.table` and `App.global_table`.

Here: declaring tables.
Not here: the tables (`busway.app.tables`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from busway.app.declaring.declarations import Declarations
from busway.app.model.topic import BadDeclaration, KeyedTopicOptions, Topic, TopicOptions

if TYPE_CHECKING:
    from busway.app.tables.global_table import GlobalTable
    from busway.app.tables.table import Table

K = TypeVar("K")
V = TypeVar("V")


class TableDeclarations(Declarations):
    """Topics, handlers and tables of an app."""

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
        """Declare rows in a compacted topic, in memory for the assigned partitions; see `Table`.

        Args:
            name, key, value, format, key_format: as for `topic`.
            partitions: by default, and necessarily, as many as the handlers' topics have.
            configs: of the topic when it is created, by Kafka's names; it is compacted.
            sources: the topics whose handlers change it, if not all that handlers read.

        Raises:
            BadDeclaration: as `topic`, the key type is not hashable, or the table is declared already.
        """
        from busway.app.tables.table import Table

        partitions, configs = options.pop("partitions", None), options.pop("configs", None)
        topic: Topic[Any, Any] = self.topic(name, key=key, value=value, **options)
        self._check_table(Table, topic, partitions)
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
        """Declare a topic in every instance's memory, loaded before the first record; see `GlobalTable`.

        Args:
            name, key, value, format, key_format, partitions, read_only: as for `topic`.
            configs: of the topic when it is created, by Kafka's names; it is compacted.

        Raises:
            BadDeclaration: as `topic`, the key type is not hashable, or the table is declared already.
        """
        from busway.app.tables.global_table import GlobalTable

        partitions, configs = options.pop("partitions", None), options.pop("configs", None)
        topic: Topic[Any, Any] = self.topic(name, key=key, value=value, read_only=read_only, **options)
        self._check_table(GlobalTable, topic, partitions)
        return self.extend(GlobalTable(topic, partitions=partitions, configs=configs))

    def _check_table(
        self,
        kind: "type[Table[Any, Any]] | type[GlobalTable[Any, Any]]",
        topic: Topic[Any, Any],
        partitions: int | None,
    ) -> None:
        """Refuse no partitions, and a second table of one topic: neither would see the other's changes."""
        if partitions is not None and (not isinstance(partitions, int) or partitions < 1):
            raise BadDeclaration(f"table {topic.name}: partitions is 1 or more, not {partitions!r}")
        if any(isinstance(extension, kind) and extension.topic is topic for extension in self.extensions):
            raise BadDeclaration(f"table {topic.name} is declared twice in app {self.name}: use the first one")
