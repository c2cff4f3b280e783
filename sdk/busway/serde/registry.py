"""A client of schema registries.

Here: Confluent's REST API with retries, a cache of immutable answers, and merging of equal requests.
Not here: use of schemas (`registered`).
"""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from busway.errors import BuswayError
from busway.net.clock import REAL_TIME
from busway.net.retry import Backoff
from busway.security.registry import RegistrySecurity, registry_security
from busway.serde.registry_errors import refusal

if TYPE_CHECKING:
    import httpx2

_ATTEMPTS: Final = 4
_FIRST_WAIT_S: Final = 0.1
_NOT_THERE: Final = frozenset({40401, 40402, 40403})
"""No such subject, version, schema."""
_TRY_AGAIN: Final = frozenset({429, 502, 503, 504})
MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"


class RegistryUnreachable(BuswayError):
    """The registry does not answer; the text has its address."""


class RegistryRefused(BuswayError):
    """A refused request; `code` is Confluent's, such as 40401, 409 or 42201."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} ({code})")
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVersion:
    """A version of a subject."""

    subject: str
    version: int
    id: int
    schema: str
    schema_type: str = "AVRO"


class RegistryClient:
    """A client of Busway's registry, Confluent's, or any with its API.

    Args:
        url: http:// or https://; may contain `user:password@`.
        timeout_s: for each answer.
        security: credentials and TLS; by default the environment's (`BUSWAY_SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO` …).
    """

    def __init__(self, url: str, *, timeout_s: float = 10.0, security: RegistrySecurity | None = None) -> None:
        if not url.startswith(("http://", "https://")):
            raise RegistryUnreachable(
                f"{url.rpartition('@')[2]!r} is no address of a schema registry; give http://HOST:PORT"
            )
        self._address = url.rstrip("/")
        scheme, _, rest = self._address.rpartition("://")
        self.url: str = f"{scheme}://{rest.rpartition('@')[2]}"
        """Address without credentials, for error messages."""
        self._security = security or registry_security()
        self._timeout_s = timeout_s
        self._http: httpx2.AsyncClient | None = None
        self._schemas: dict[int, str] = {}
        self._ids: dict[tuple[str, str], int] = {}
        self._under_way: dict[Any, asyncio.Task[Any]] = {}

    async def close(self) -> None:
        """Disconnect."""
        for task in list(self._under_way.values()):
            task.cancel()
        http, self._http = self._http, None
        if http is not None:
            with REAL_TIME.used():
                await http.aclose()

    async def __aenter__(self) -> "RegistryClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def register(self, subject: str, schema: str, *, schema_type: str = "AVRO") -> int:
        """Return the schema's id, registering it if necessary; cached.

        Raises:
            RegistryRefused: 409 incompatible with an earlier version (the text says where), 42201 not valid.
            RegistryUnreachable: no answer.
        """
        key = (subject, schema)
        if key not in self._ids:
            body = {"schema": schema, "schemaType": schema_type}
            answer = await self._once(key, "POST", f"/subjects/{quote(subject, safe='')}/versions", body)
            self._ids[key] = id_in(self.url, answer)
            self._schemas.setdefault(self._ids[key], schema)
        return self._ids[key]

    async def schema(self, schema_id: int) -> str:
        """Return the schema of an id; cached.

        Raises:
            RegistryRefused: 40403, no such schema.
            RegistryUnreachable: no answer.
        """
        if schema_id not in self._schemas:
            answer = await self._once(schema_id, "GET", f"/schemas/ids/{schema_id}")
            self._schemas[schema_id] = str(answer["schema"])
        return self._schemas[schema_id]

    async def subjects(self) -> list[str]:
        """List all subjects."""
        subjects: list[str] = await self.request("GET", "/subjects")
        return subjects

    async def versions(self, subject: str) -> list[int]:
        """List a subject's versions."""
        versions: list[int] = await self.request("GET", f"/subjects/{quote(subject, safe='')}/versions")
        return versions

    async def version(self, subject: str, version: int | str = "latest") -> SchemaVersion:
        """Return a version."""
        answer = await self.request("GET", f"/subjects/{quote(subject, safe='')}/versions/{version}")
        return SchemaVersion(
            subject=answer["subject"],
            version=answer["version"],
            id=answer["id"],
            schema=answer["schema"],
            schema_type=answer.get("schemaType", "AVRO"),
        )

    async def lookup(self, subject: str, schema: str) -> int | None:
        """Return the id of an Avro schema in a subject, registering nothing; None if it is not there."""
        try:
            answer = await self.request("POST", f"/subjects/{quote(subject, safe='')}", {"schema": schema})
        except RegistryRefused as problem:
            if problem.code in _NOT_THERE:
                return None
            raise
        return id_in(self.url, answer)

    async def check(self, subject: str, schema: str, *, schema_type: str = "AVRO") -> list[str]:
        """Return the breaches of compatibility; empty if compatible."""
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions?verbose=true"
        answer = await self.request("POST", path, {"schema": schema, "schemaType": schema_type})
        messages: list[str] = answer.get("messages") or []
        return [] if answer["is_compatible"] else messages or ["incompatible"]

    async def compatibility(self, subject: str | None = None) -> str:
        """Return the level in force."""
        path = f"/config/{quote(subject, safe='')}?defaultToGlobal=true" if subject else "/config"
        return str((await self.request("GET", path))["compatibilityLevel"])

    async def set_compatibility(self, level: str, subject: str | None = None) -> None:
        """Set the level of a subject or of the registry."""
        await self.request(
            "PUT", f"/config/{quote(subject, safe='')}" if subject else "/config", {"compatibility": level}
        )

    async def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete a subject, first softly, then permanently; return the deleted versions."""
        query = "?permanent=true" if permanent else ""
        versions: list[int] = await self.request("DELETE", f"/subjects/{quote(subject, safe='')}{query}")
        return versions

    async def _once(self, key: Any, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        if key not in self._under_way:
            task = asyncio.ensure_future(self.request(method, path, body))
            self._under_way[key] = task
            task.add_done_callback(lambda _: self._under_way.pop(key, None))
        return await asyncio.shield(self._under_way[key])

    async def _connected(self) -> "httpx2.AsyncClient":
        import httpx2

        if self._address.startswith("https"):
            try:
                verify = await asyncio.get_running_loop().run_in_executor(None, self._security.context)
            except ValueError as problem:
                raise RegistryUnreachable(str(problem)) from None
        else:
            # Loading the machine's certificates takes 60 ms; plain HTTP needs none, as redirects are not followed.
            verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self._http is None:  # another request may have made it meanwhile
            self._http = httpx2.AsyncClient(
                base_url=self._address,
                timeout=self._timeout_s,
                headers={"Accept": MEDIA_TYPE, **self._security.headers},
                verify=verify,
            )
        return self._http

    async def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Call the REST API; JSON in, JSON out.

        Raises:
            RegistryRefused: the answer is an error.
            RegistryUnreachable: no answer after 4 attempts, or the files of TLS cannot be used.
        """
        return _content(self.url, await self._answer(method, path, body))

    async def date_ms(self) -> int | None:
        """Return the server's time of its Date header, in ms since 1970, rounded down to a second; None without one.

        Raises:
            RegistryUnreachable: as for `request`.
        """
        date = (await self._answer("GET", "/")).headers.get("Date")
        try:
            return None if date is None else int(parsedate_to_datetime(date).timestamp() * 1000)
        except ValueError:
            return None

    async def _answer(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> "httpx2.Response":
        import httpx2  # loads in 0.1 s, and not every program needs it

        http = self._http or await self._connected()
        backoff = Backoff(initial=_FIRST_WAIT_S)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with REAL_TIME.used():
                    answer = await http.request(
                        method, path, json=body, headers={"Content-Type": MEDIA_TYPE} if body is not None else {}
                    )
            except (httpx2.HTTPError, httpx2.InvalidURL) as problem:
                if attempt == _ATTEMPTS or isinstance(problem, httpx2.InvalidURL | httpx2.UnsupportedProtocol):
                    raise RegistryUnreachable(
                        f"the schema registry at {self.url} does not answer: {problem or type(problem).__name__}; is it running? `busway up` starts one"
                    ) from None
            else:
                if answer.status_code not in _TRY_AGAIN or attempt == _ATTEMPTS:
                    return answer
            await REAL_TIME.sleep(backoff.next())
        raise AssertionError("the last attempt returns or raises")


def id_in(url: str, answer: Any) -> int:
    try:
        return int(answer["id"])
    except (KeyError, TypeError, ValueError):
        raise RegistryRefused(200, f"{url} does not answer like a schema registry: no id in {answer!r:.80}") from None


def _content(url: str, answer: "httpx2.Response") -> Any:
    try:
        body = answer.json()
    except ValueError:
        raise RegistryRefused(answer.status_code, f"{url} does not answer like a schema registry") from None
    if answer.status_code >= 400:
        code = body.get("error_code", answer.status_code) if isinstance(body, dict) else answer.status_code
        text = body.get("message", "") if isinstance(body, dict) else answer.text
        raise RegistryRefused(int(code), refusal(str(text)))
    return body
