"""`App.table` and `App.global_table`.

Here: declaring tables.
Not here: the tables (`busway.app.tables`).
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from busway.app.declaring.declarations import Declarations
from busway.app.model.topic import Format, Topic

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
        format: Format = "avro",
        partitions: int | None = None,
        configs: Mapping[str, str] | None = None,
        sources: Sequence[Topic[Any, Any]] = (),
    ) -> "Table[str, V]": ...

    @overload
    def table(
        self,
        name: str,
        *,
        key: type[K],
        value: type[V],
        format: Format = "avro",
        key_format: Format | None = None,
        partitions: int | None = None,
        configs: Mapping[str, str] | None = None,
        sources: Sequence[Topic[Any, Any]] = (),
    ) -> "Table[K, V]": ...

    def table(
        self,
        name: str,
        *,
        key: Any = str,
        value: Any,
        format: Format = "avro",
        key_format: Format | None = None,
        partitions: int | None = None,
        configs: Mapping[str, str] | None = None,
        sources: Sequence[Topic[Any, Any]] = (),
    ) -> "Table[Any, Any]":
        """Declare rows in a compacted topic, in memory for the assigned partitions; see `Table`.

        Args:
            name, key, value, format, key_format: as for `topic`.
            partitions: by default, and necessarily, as many as the handlers' topics have.
            configs: of the topic when it is created, by Kafka's names; it is compacted.
            sources: the topics whose handlers change it, if not all that handlers read.

        Raises:
            BadDeclaration: as `topic`, or the key type is not hashable.
        """
        from busway.app.tables.table import Table

        topic: Topic[Any, Any] = self.topic(name, key=key, value=value, format=format, key_format=key_format)
        return self.extend(Table(topic, partitions=partitions, configs=configs, sources=sources))

    @overload
    def global_table(
        self,
        name: str,
        *,
        value: type[V],
        format: Format = "avro",
        partitions: int | None = None,
        configs: Mapping[str, str] | None = None,
        read_only: bool = False,
    ) -> "GlobalTable[str, V]": ...

    @overload
    def global_table(
        self,
        name: str,
        *,
        key: type[K],
        value: type[V],
        format: Format = "avro",
        key_format: Format | None = None,
        partitions: int | None = None,
        configs: Mapping[str, str] | None = None,
        read_only: bool = False,
    ) -> "GlobalTable[K, V]": ...

    def global_table(
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
    ) -> "GlobalTable[Any, Any]":
        """Declare a topic in every instance's memory, loaded before the first record; see `GlobalTable`.

        Args:
            name, key, value, format, key_format, partitions, read_only: as for `topic`.
            configs: of the topic when it is created, by Kafka's names; it is compacted.

        Raises:
            BadDeclaration: as `topic`, or the key type is not hashable.
        """
        from busway.app.tables.global_table import GlobalTable

        topic: Topic[Any, Any] = self.topic(
            name, key=key, value=value, format=format, key_format=key_format, read_only=read_only
        )
        return self.extend(GlobalTable(topic, partitions=partitions, configs=configs))
