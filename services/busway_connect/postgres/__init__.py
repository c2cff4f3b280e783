"""Change data capture for PostgreSQL, in Debezium's envelope.

What lives here: the connector `io.debezium.connector.postgresql.PostgresConnector`, short `postgres`. What it promises:

Stream. Every committed change of a captured table becomes one record (with its tombstone, or the pair that a changed key makes), in
the order of the commits, and its offset says exactly which change it was. Started with a stored offset it goes on behind that
change; together with the runtime's marks on records (`Source.position`) nothing is lost or doubled when a process, a broker or the
server is killed. The server is only allowed to forget what is stored for good.

Snapshot. The first start reads every row in the snapshot that the new replication slot exports, then the changes from exactly there on.
PostgreSQL cannot keep a snapshot alive over a crash. Killed in the middle, the connector goes on behind the last row of the key
that it handed over, in a new snapshot, and then reads the log from the slot's beginning. So each row comes once as `r` at most; a row
that changed in between comes with its newer values, a row that came or went in between comes with its `c` or `d`; and every change since
the slot's beginning comes exactly once. Who applies all records of a key in order has the database's state at the end; on the way,
after such a kill, a row may show newer values before its older changes come. Exceptions: a table without a key, or with a key of a type
that Python does not order as the server does (numeric, float, char(n), citext, enum …), may repeat the rows since the stored offset,
and without a key all its rows.

Position lost. When the slot is gone, was invalidated, or begins behind the stored offset, the connector refuses to go on and says what to do.
"""

from busway_connect.postgres.connector import PostgresConnector

__all__ = ["PostgresConnector"]
