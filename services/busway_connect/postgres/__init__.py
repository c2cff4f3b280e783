"""Change data capture for PostgreSQL, in Debezium's envelope.

Here: the connector `io.debezium.connector.postgresql.PostgresConnector`, short `postgres`. Its guarantees:

Stream. Every committed change of a captured table becomes one record (with its tombstone, or the pair of a changed
key), in commit order; its offset identifies the change. From a stored offset the connector continues after that change.
With the runtime's marks on records (`Source.position`) nothing is lost or duplicated when a process, a broker or the
server is killed. The server may discard only the log before stored offsets.

Snapshot. The first start reads all rows in the snapshot of the new replication slot, then the changes from exactly
there. PostgreSQL cannot keep a snapshot over a crash: after a kill the connector continues after the last returned row,
by key, in a new snapshot, and then reads the log from the slot's beginning. So each row has at most one `r`; a row
changed in between has its newer values, a row inserted or deleted in between its `c` or `d`; every change since the
slot's beginning comes exactly once. Applying all records of a key in order gives the final state, but may show newer
values before older changes on the way. Exceptions: a table with a key type that Python does not order like the server
(numeric, float, char(n), citext, enum …) may repeat the rows since the stored offset, one without a key all rows.

Position lost. If the slot is gone, was invalidated, or begins after the stored offset, the connector fails with a
remedy.
"""

from busway_connect.postgres.connector import PostgresConnector

__all__ = ["PostgresConnector"]
