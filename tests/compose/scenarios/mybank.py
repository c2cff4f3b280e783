"""Customers of MyBank: they order transfers at the bank, which knows nothing of the bus, and are alerted to what reaches their thresholds.

Here: the orders, and which alerts and notices must come of them. Accounts are rows of the bank's database, as in any
bank; the connector is installed with the command that compose/README.md tells.
"""

import asyncio
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, Final

import httpx2
from tests.compose.scenarios import eventually
from tests.compose.stack import Stack
from tests.support.patience import patient

CUSTOMERS: Final = 12
ORDERS: Final = 12
LARGE_OF: Final = 4
"""One transfer of so many is large."""
SMALL: Final = "100.00"
LARGE: Final = "1500.00"
HOURLY: Final = "1800.00"
"""Reached with the first large transfer, behind three small ones."""
PASSWORD: Final = "${env:BANK_PASSWORD}"
"""Where Connect has it; it is in no setting."""
_scenario: Final[Iterator[int]] = itertools.count(1)


class MyBank:
    """Twelve customers at once; see `Scenario`."""

    service = "mybank"

    def __init__(self, stack: Stack) -> None:
        self.half_way = asyncio.Event()
        self._stack = stack
        number = next(_scenario)
        self._accounts = [f"DE{number:02d}-{customer:04d}" for customer in range(CUSTOMERS)]
        self._expected: dict[str, set[str]] = defaultdict(set)
        self._ordered = 0

    async def prepare(self, http: httpx2.AsyncClient) -> None:
        """Accounts, the connector, and thresholds."""
        rows = ", ".join(f"('{account}', 'Customer {account}', 'EUR')" for account in self._accounts)
        await self._sql(f"INSERT INTO accounts (id, owner, currency) VALUES {rows}")
        install = ("exec", "-T", "bank", "python", "-m", "mybank.capture", "http://connect:8083")
        await asyncio.to_thread(self._stack.compose, *install, "--password", PASSWORD)

        async def captured() -> bool:
            known = {account["id"] for account in (await http.get("/accounts")).json()}
            return known.issuperset(self._accounts)

        await eventually(captured)
        for account in self._accounts:
            wishes = {"single": {"TRANSFER": LARGE}, "hourly": HOURLY}
            answer = await http.put(f"/thresholds/{account}", json=wishes)
            assert answer.status_code == 200, answer.text

    async def load(self, http: httpx2.AsyncClient) -> None:
        """All customers at once, each one order after the other, to the next customer."""
        bank = httpx2.AsyncClient(base_url=self._stack.url("BANK"), timeout=patient(60), trust_env=False)
        async with bank, asyncio.TaskGroup() as tasks:
            for source, to in itertools.pairwise([*self._accounts, self._accounts[0]]):
                tasks.create_task(self._order(bank, source, to))

    async def _order(self, bank: httpx2.AsyncClient, source: str, to: str) -> None:
        for number in range(1, ORDERS + 1):
            large = number % LARGE_OF == 0
            order = {"from_account": source, "to_account": to, "amount": LARGE if large else SMALL}
            answer = await bank.post("/transfers", json=order)
            assert answer.status_code == 201, answer.text
            sent, received = answer.json()["transaction_ids"]
            if large:
                self._expected[source].add(f"{sent}:SINGLE")
                self._expected[to].add(f"{received}:SINGLE")
            if number == LARGE_OF:
                self._expected[source].add(f"{sent}:HOURLY")
            self._ordered += 1
            if self._ordered == CUSTOMERS * ORDERS // 2:
                self.half_way.set()

    async def exact(self, http: httpx2.AsyncClient) -> None:
        """Each alert that must be is there once and no other, and lies in the bank's letter box once."""
        alerts: dict[str, list[dict[str, Any]]] = {}
        expected = Counter(alert for ids in self._expected.values() for alert in ids)

        async def all_told() -> bool:
            for account in self._accounts:
                alerts[account] = (await http.get("/alerts", params={"account": account, "limit": 1000})).json()
            return (
                Counter(alert["alert_id"] for account_alerts in alerts.values() for alert in account_alerts) >= expected
            )

        async def all_noted() -> bool:
            return await self._notices() >= expected

        await eventually(all_told)
        for account, account_alerts in alerts.items():
            assert Counter(alert["alert_id"] for alert in account_alerts) == Counter(self._expected[account])
        await eventually(all_noted)
        assert await self._notices() == expected

    async def _notices(self) -> Counter[str]:
        prefix = self._accounts[0].partition("-")[0]
        output = await self._sql(f"SELECT alert_id FROM notices WHERE account_id LIKE '{prefix}-%'")
        return Counter(output.split())

    async def _sql(self, statement: str) -> str:
        """What plain SQL in the bank's database says, one value a line."""
        command = (
            'PGPASSWORD="$POSTGRES_PASSWORD" psql -h 127.0.0.1 -U busway -d mybank -v ON_ERROR_STOP=1 -qtA -c "$0"'
        )
        return await asyncio.to_thread(self._stack.compose, "exec", "-T", "postgres", "sh", "-c", command, statement)
