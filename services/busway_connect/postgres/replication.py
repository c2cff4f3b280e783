"""PostgreSQL's streaming replication protocol, on psycopg 3's layer over libpq.

Here: creating a slot, reading messages, confirming positions.
Not here: meaning of messages (`pgoutput`), when to confirm (`reader`).

psycopg 3 has no replication, and psycopg 2's confirms by itself what it considers handled, which could lose changes:
here only `tell` confirms. Source: PostgreSQL 15, "Streaming Replication Protocol".
"""

import struct
import time
from typing import Final

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo
from psycopg.errors import error_from_result
from psycopg.sql import Identifier, Literal

from busway_connect.postgres.pgoutput import POSTGRES_EPOCH_US, Malformed
from busway_connect.postgres.positions import lsn_number, lsn_text

_DATA: Final = struct.Struct("!cQQq")
_KEEPALIVE: Final = struct.Struct("!cQqB")
_IS_DATA: Final = ord("w")
_IS_KEEPALIVE: Final = ord("k")
_STATUS: Final = struct.Struct("!cQQQqB")


class ReplicationConnection:
    """A connection to a database's walsender; blocks only for connecting and commands.

    Raises:
        psycopg.OperationalError: connecting failed.
    """

    def __init__(self, conninfo: str) -> None:
        self._libpq = pq.PGconn.connect(make_conninfo(conninfo, replication="database").encode())
        if self._libpq.status != pq.ConnStatus.OK:
            problem = self._libpq.get_error_message()
            self._libpq.finish()
            raise psycopg.OperationalError(problem)
        self.sent_lsn = 0
        """Everything before was sent, by the server's last keepalive."""
        self.reply_wanted = False

    def fileno(self) -> int:
        return self._libpq.socket

    def _command(self, text: str, expected: pq.ExecStatus) -> pq.abc.PGresult:
        result = self._libpq.exec_(text.encode())
        if result.status != expected:
            raise error_from_result(result)
        return result

    def create_slot(self, name: str, plugin: str) -> tuple[int, str]:
        """Create a logical slot. Return its stream's beginning and the snapshot, valid until the connection's next
        command.
        """
        command = f"CREATE_REPLICATION_SLOT {Identifier(name).as_string()} LOGICAL {plugin} EXPORT_SNAPSHOT"
        result = self._command(command, pq.ExecStatus.TUPLES_OK)
        point, snapshot = result.get_value(0, 1), result.get_value(0, 2)
        assert point is not None
        assert snapshot is not None
        return lsn_number(point.decode()), snapshot.decode()

    def start(self, slot: str, lsn: int, publication: str) -> None:
        """Start streaming at `lsn`, or at the slot's beginning if later."""
        names = Literal(Identifier(publication).as_string()).as_string()
        command = f"START_REPLICATION SLOT {Identifier(slot).as_string()} LOGICAL {lsn_text(lsn)}"
        command += f" (proto_version '1', publication_names {names})"
        self._command(command, pq.ExecStatus.COPY_BOTH)

    def read(self) -> tuple[int, bytes] | None:
        """Return the next message with its LSN; None if none has arrived.

        Raises:
            psycopg.Error: the stream has ended.
            Malformed: another message.
        """
        looked = False
        while True:
            size, data = self._libpq.get_copy_data(1)
            if size < 0:
                raise self._ended()
            if size == 0:
                if looked:
                    return None
                self._libpq.consume_input()
                looked = True
            elif data[0] == _IS_DATA and size >= _DATA.size:
                return _DATA.unpack_from(data)[1], bytes(data[_DATA.size :])
            elif data[0] == _IS_KEEPALIVE and size == _KEEPALIVE.size:
                _, sent_lsn, _, wanted = _KEEPALIVE.unpack(data)
                self.sent_lsn = max(self.sent_lsn, sent_lsn)
                self.reply_wanted = self.reply_wanted or bool(wanted)
            else:
                raise Malformed(
                    f"no message of the replication protocol begins with {bytes(data[:1])!r} in {size} bytes"
                )

    def _ended(self) -> psycopg.Error:
        result = self._libpq.get_result()
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            return error_from_result(result)
        return psycopg.OperationalError("the server has ended the stream")

    def tell(self, written_lsn: int, flushed_lsn: int) -> None:
        """Send the position read, and the LSN before which the server may discard the log."""
        now_us = time.time_ns() // 1000 - POSTGRES_EPOCH_US
        self._libpq.put_copy_data(_STATUS.pack(b"r", written_lsn, flushed_lsn, flushed_lsn, now_us, 0))
        self._libpq.flush()
        self.reply_wanted = False

    def close(self) -> None:
        self._libpq.finish()
