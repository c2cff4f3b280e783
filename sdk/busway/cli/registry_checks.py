"""Checks of a schema registry for `busway doctor`: reaching, authenticating, version, clock.

Here: `check_registry`.
Not here: the client (`busway.serde.registry`).
"""

from typing import Final

import busway
from busway.cli.findings import Finding, compare_clocks, ok, problem, warning
from busway.errors import BuswayError
from busway.net.machine import OS
from busway.serde.registry import RegistryClient, RegistryRefused, RegistryUnreachable

_TIMEOUT_S: Final = 5.0
_BUSWAY: Final = "busway"
"""commitId of Busway's registry."""
_DATE_RESOLUTION_MS: Final = 1000


async def check_registry(url: str, *, given: bool) -> list[Finding]:
    """Check a registry.

    Args:
        given: the user named the address. A default one that does not answer is a warning.
    """
    try:
        client = RegistryClient(url, timeout_s=_TIMEOUT_S)
    except BuswayError as refused:
        return [problem("schema registry", str(refused))]
    except ValueError as refused:
        return [problem("schema registry", f"{refused}; these are variables BUSWAY_SCHEMA_REGISTRY_…")]
    async with client:
        subject = f"schema registry {client.url}"
        try:
            before_ms = OS.wall_ms()
            theirs_ms = await client.date_ms()
            after_ms = OS.wall_ms()
            subjects = await client.subjects()
        except RegistryUnreachable as refused:
            if given:
                return [problem(subject, str(refused))]
            text = f"{refused}; --registry names another address, --no-registry leaves this check out"
            return [warning(subject, text)]
        except RegistryRefused as refused:
            return [problem(subject, f"{refused}{_remedy(refused)}")]
        findings = [ok(subject, f"reached, {len(subjects)} subjects")]
        findings += await _check_version(subject, client)
    if theirs_ms is not None:  # the header is rounded down to a second, and may be as old
        findings.append(compare_clocks(subject, theirs_ms, before_ms - 2 * _DATE_RESOLUTION_MS, after_ms))
    return findings


def _remedy(refused: RegistryRefused) -> str:
    if refused.code in {401, 40101}:
        return (
            "; the user name, password or token is wrong or missing: set BUSWAY_SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO "
            "(user:password) or BUSWAY_SCHEMA_REGISTRY_BEARER_AUTH_TOKEN"
        )
    if refused.code in {403, 40301}:
        return "; the user lacks the right to list subjects: give it to them in the registry"
    return "; check the address, and what is behind it"


async def _check_version(subject: str, client: RegistryClient) -> list[Finding]:
    try:
        answer = await client.request("GET", "/v1/metadata/version")
        version, built = str(answer["version"]), answer.get("commitId")
    except (BuswayError, KeyError, TypeError, AttributeError):  # an older registry, or another one with this API
        return []
    if built == _BUSWAY and version != busway.__version__:
        text = f"it is of busway {version}, this client of {busway.__version__}; bring both to the same release"
        return [warning(subject, text)]
    return []
