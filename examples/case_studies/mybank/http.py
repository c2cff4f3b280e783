"""The HTTP side of the alerts: the live page, alerts, and the thresholds that users set.

Here: routes.
Not here: rules (`domain`), figures (`pulse`), the bank's transfers (`bank`), health and metrics (`busway.web`).

| path | what |
|---|---|
| `GET /` | the page |
| `GET /accounts` | accounts with their thresholds |
| `GET /alerts?account=&limit=` | alerts, newest first |
| `GET /thresholds/{account}` | what is in force |
| `PUT /thresholds/{account}` | `{"single": {"CARD": "50.00"}, "hourly": "800.00"}`; answered when it is in force |
| `DELETE /thresholds/{account}` | back to the default |
| `GET /live` | server-sent events: `[{"alert": …} or {"tick": …}, …]` |
"""

import datetime as dt
import heapq
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from busway import GlobalTable, Table
from busway.web import Refused, application, event_stream, json_response, read_json
from mybank import domain
from mybank.events import AccountChange, AccountKey, Alert, Kind, Thresholds
from mybank.pulse import Beat, Pulse

PAGE = Path(__file__).parent / "page.html"
ALERTS_SHOWN: Final = 50
ALERTS_MOST: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a user sends; see `Thresholds`. What is left out has the default."""

    single: dict[str, Decimal] = field(default_factory=dict)
    hourly: Decimal | None = None


def create(
    accounts: GlobalTable[AccountKey, AccountChange],
    thresholds: GlobalTable[str, Thresholds],
    alerts: Table[str, Alert],
    pulse: Pulse,
) -> Starlette:
    """The application over these tables."""

    async def page(request: Request) -> Response:
        return FileResponse(PAGE, media_type="text/html")

    async def every_account(request: Request) -> Response:
        rows = [change.after for change in accounts.values() if change.after is not None]
        return json_response(
            [
                {
                    "id": row.id,
                    "owner": row.owner,
                    "currency": row.currency,
                    "thresholds": _in_force(thresholds.get(row.id)),
                }
                for row in sorted(rows, key=lambda row: row.id)
            ]
        )

    async def newest(request: Request) -> Response:
        account, limit = request.query_params.get("account"), _limit(request)
        matches = (alert for alert in alerts.values() if account is None or alert.account_id == account)
        return json_response(heapq.nlargest(limit, matches, key=lambda alert: (alert.raised_at, alert.alert_id)))

    async def wishes(request: Request) -> Response:
        return json_response(_in_force(thresholds.get(_account(request))))

    async def wish(request: Request) -> Response:
        account = _account(request)
        body = await read_json(request, Wishes)
        try:
            made = domain.thresholds(account, body.single, body.hourly, dt.datetime.now(dt.UTC))
        except domain.Impossible as problem:
            raise Refused(422, str(problem)) from None
        await thresholds.put(account, made)
        await thresholds.caught_up()
        return json_response(_in_force(thresholds.get(account)))

    async def forget(request: Request) -> Response:
        account = _account(request)
        await thresholds.delete(account)
        await thresholds.caught_up()
        return json_response(_in_force(thresholds.get(account)))

    async def live(request: Request) -> Response:
        return event_stream(request, pulse.feed.listening(), first=lambda: [Beat(tick=tick) for tick in pulse.ticks])

    def _account(request: Request) -> str:
        account: str = request.path_params["account"]
        known = accounts.get(AccountKey(id=account))
        if known is None or known.after is None:
            raise Refused(404, f"account: there is no {account!r}; GET /accounts lists them")
        return account

    return application(
        [
            Route("/", page),
            Route("/accounts", every_account),
            Route("/alerts", newest),
            Route("/thresholds/{account}", wishes),
            Route("/thresholds/{account}", wish, methods=["PUT"]),
            Route("/thresholds/{account}", forget, methods=["DELETE"]),
            Route("/live", live),
        ]
    )


def _in_force(wishes: Thresholds | None) -> dict[str, Any]:
    """Every threshold with the defaults filled in."""
    single = {kind.value: domain.threshold_of(wishes, kind) for kind in Kind}
    return {
        "single": single,
        "hourly": None if wishes is None else wishes.hourly,
        "changed_at": None if wishes is None else wishes.changed_at,
    }


def _limit(request: Request) -> int:
    text = request.query_params.get("limit", str(ALERTS_SHOWN))
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:9]) <= ALERTS_MOST:
        raise Refused(422, f"limit is {text[:20]!r}; give a number from 1 to {ALERTS_MOST}")
    return int(text)
