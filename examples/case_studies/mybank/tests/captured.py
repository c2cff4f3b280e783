"""Changes as the connector writes them, for tests without a database.

Here: Debezium's records of the bank's tables, by the schemas in `schemas`, which are those that the connector registers
(`test_capture` compares them).
Not here: the connector.
"""

import datetime as dt
import json
import time
from contextlib import AsyncExitStack
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from mybank.events import TransactionRow

from busway import AvroCodec, Producer, RecordMetadata, RegistryClient, RunningService

SCHEMAS: Final = Path(__file__).parent / "schemas"
NOON: Final = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)
PREFIX: Final = "mybank.public"


def schema(table: str, part: str) -> Any:
    """The schema of keys or values of a captured table."""
    return json.loads((SCHEMAS / f"{table}-{part}.avsc").read_text())


class Captured:
    """Writes changes where an app reads them."""

    def __init__(self, app: RunningService) -> None:
        self._app = app
        self._stack = AsyncExitStack()
        self._codecs: dict[tuple[str, str], tuple[AvroCodec[Any], bytes]] = {}
        self._lsn = 0

    async def __aenter__(self) -> "Captured":
        assert self._app.schema_registry is not None
        registry = await self._stack.enter_async_context(RegistryClient(self._app.schema_registry))
        self._producer = await self._stack.enter_async_context(Producer(self._app.bootstrap_servers))
        for table in ("accounts", "transactions"):
            for part in ("key", "value"):
                codec: AvroCodec[Any] = AvroCodec(dict, schema(table, part))
                number = await registry.register(f"{PREFIX}.{table}-{part}", codec.schema_text)
                self._codecs[table, part] = codec, b"\0" + number.to_bytes(4, "big")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def account(self, account_id: str, currency: str = "EUR") -> None:
        """A row inserted into `accounts`."""
        await self._change(
            "accounts", {"id": account_id}, {"id": account_id, "owner": "customer", "currency": currency}
        )

    async def transaction(
        self,
        number: int,
        amount: str,
        *,
        account: str = "a",
        kind: str = "CARD",
        currency: str = "EUR",
        second: int = 0,
        op: str = "c",
    ) -> RecordMetadata:
        """A row inserted into `transactions`, or with another `op` read, updated or deleted."""
        booked_at = (NOON + dt.timedelta(seconds=second)).isoformat()
        row = TransactionRow(
            id=number, account_id=account, kind=kind, amount=Decimal(amount), currency=currency, booked_at=booked_at
        )
        return await self.row(row, op)

    async def row(self, row: TransactionRow, op: str = "c") -> RecordMetadata:
        """As `transaction`, with the row given whole."""
        return await self._change("transactions", {"account_id": row.account_id}, asdict(row), op)

    async def raw(self, account: str, value: bytes | None) -> RecordMetadata:
        """Any bytes as a transaction's value; None is a tombstone."""
        key = self._encode("transactions", "key", {"account_id": account})
        return await self._producer.send_and_wait(f"{PREFIX}.transactions", value, key)

    async def _change(self, table: str, key: dict[str, Any], row: dict[str, Any], op: str = "c") -> RecordMetadata:
        self._lsn += 8
        now_us = time.time_ns() // 1000
        source = {
            "version": "3.7.0", "connector": "postgresql", "name": "mybank", "ts_ms": now_us // 1000, "ts_us": now_us,
            "ts_ns": now_us * 1000, "snapshot": "false", "db": "postgres", "sequence": None, "schema": "public", "table": table,
            "txId": self._lsn, "lsn": self._lsn, "xmin": None, "origin": None, "origin_lsn": None,
        }  # fmt: skip
        value = {
            "before": row if op == "d" else None, "after": None if op == "d" else row, "source": source, "transaction": None,
            "op": op, "ts_ms": now_us // 1000, "ts_us": now_us, "ts_ns": now_us * 1000,
        }  # fmt: skip
        return await self._producer.send_and_wait(
            f"{PREFIX}.{table}", self._encode(table, "value", value), self._encode(table, "key", key)
        )

    def _encode(self, table: str, part: str, value: dict[str, Any]) -> bytes:
        codec, prefix = self._codecs[table, part]
        return codec.encode(value, prefix)
