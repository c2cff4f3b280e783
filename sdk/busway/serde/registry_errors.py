"""A registry's refusals, and failed connections to it, as readable text.

Not here: requests (`registry`).
"""

import re
import ssl
from collections.abc import Iterator, Sequence
from typing import Final

_DESCRIPTION: Final = re.compile(r"description:'(.*?)'(?:, additionalInfo:|\})")
_SUBJECT: Final = re.compile(r'for subject "(.*?)", details')
_VERSION: Final = re.compile(r"oldSchemaVersion: ?(\d+)")
_LEVEL: Final = re.compile(r"compatibility: ?'(\w+)'")
_MORE: Final = re.compile(r"\{more:'(.*?)'\}")
_WRITES: Final = " writes: "
_EXPIRED, _NOT_YET_VALID = 10, 9
_WRONG_NAMES: Final = frozenset({62, 64})
"""OpenSSL's codes of a certificate for another host name or address."""
_START: Final = "is it running? `busway up` starts one"


def breaches(messages: Sequence[str]) -> list[str]:
    """Extract the descriptions of a registry's messages, remedies first. Without any return the messages."""
    text = ", ".join(messages)
    descriptions = [_remedy_first(description) for description in _DESCRIPTION.findall(text)] + _MORE.findall(text)
    return descriptions or list(messages)


def refusal(text: str) -> str:
    subject = _SUBJECT.search(text)
    if subject is None or _DESCRIPTION.search(text) is None:
        return text
    version, level = _VERSION.search(text), _LEVEL.search(text)
    against = f" with version {version[1]}" if version else ""
    by = f" by {level[1]}" if level else ""
    return f"{'; '.join(breaches([text]))}; the schema is not compatible{against} of {subject[1]}{by}"


def _remedy_first(description: str) -> str:
    where, writes, remedy = description.partition(_WRITES)
    return f"{remedy} ({where} writes)" if writes else description


def unanswered(problem: BaseException, url: str) -> str:
    """Return cause and remedy of a request without a response.

    Args:
        problem: the HTTP client's exception; its causes say more.
        url: the registry's address.
    """
    reason = str(problem) or type(problem).__name__
    causes = list(_causes(problem))
    refused = next((cause for cause in causes if isinstance(cause, ssl.SSLCertVerificationError)), None)
    if refused is not None:
        return _of_certificate(refused)
    if any(isinstance(cause, ssl.SSLError) and cause.reason == "WRONG_VERSION_NUMBER" for cause in causes):
        return "it does not answer with TLS; the port may speak plain HTTP: give http://"
    if url.startswith("http://") and type(problem).__name__ in {"RemoteProtocolError", "ReadError"}:
        return f"{reason.rstrip('.')}; it may stop just now, or the port may be one of TLS: give https://"
    return f"{reason}; {_START}"


def _causes(problem: BaseException | None) -> Iterator[BaseException]:
    while problem is not None:
        yield problem
        problem = problem.__cause__ or problem.__context__


def _of_certificate(refused: ssl.SSLCertVerificationError) -> str:
    if refused.verify_code == _EXPIRED:
        return "its certificate has expired; renew it there, and check this machine's clock"
    if refused.verify_code == _NOT_YET_VALID:
        return "its certificate is not valid yet; check this machine's clock"
    if refused.verify_code in _WRONG_NAMES:
        return "its certificate is for another host; give a name in its subjectAltName"
    return (
        f"its certificate is not trusted here ({refused.verify_message}); set ssl_cafile, or "
        "BUSWAY_SCHEMA_REGISTRY_SSL_CAFILE, to a PEM file of the CA that issued it"
    )
