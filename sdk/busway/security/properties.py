"""Security options from properties files of Java clients and from environment variables.

Here: `options_from_properties`, pure, for the text of a file; `options_of` for its properties; `options_from_environment`.
Not here: the options (`options`), reading certificates (`tls`).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from busway.security.options import NAMES, SecurityOptions

CONFIG_VARIABLE: Final = "BUSWAY_COMMAND_CONFIG"
"""Names a properties file; what the file leaves out comes from the other variables."""
PREFIX: Final = "BUSWAY_"
_FLAGS: Final = frozenset({"ssl_check_hostname"})
_STRAIGHT: Final = {
    name.replace("_", "."): name
    for name in NAMES
    if name not in {"sasl_oauth_token_provider", "ssl_check_hostname", "sasl_plain_username", "sasl_plain_password"}
}
"""Properties that have an option of the same name; `ssl.cafile` and so on are Busway's own."""
_PLAIN_MODULE: Final = "PlainLoginModule"
_SCRAM_MODULE: Final = "ScramLoginModule"
_OAUTH_MODULE: Final = "OAuthBearerLoginModule"
_JAAS: Final = re.compile(
    r"(?P<module>[\w.$]+)\s+(?P<flag>required|requisite|sufficient|optional)(?P<options>.*);\s*", re.S
)
_OPTION: Final = re.compile(r"\s+(?P<name>[\w.]+)\s*=\s*(?:\"(?P<quoted>(?:[^\"\\]|\\.)*)\"|(?P<bare>[^\s\";]+))")
_SECRET: Final = re.compile(r"(?:jaas\.config|password|secret)$")
_CONVERT: Final = "keytool -importkeystore -srckeystore STORE -destkeystore store.p12 -deststoretype PKCS12"


class BadProperties(ValueError):
    """A property that cannot be used. The text names file and property, never a secret."""


def options_from_properties(text: str, source: str) -> SecurityOptions | None:
    """Read the security of a client's properties file; None if it has no such property.

    Other properties are ignored, as a file serves several tools.

    Args:
        source: name of the file, for error texts.

    Raises:
        BadProperties: a property is unknown here or invalid.
    """
    try:
        return options_of(parsed(text))
    except ValueError as problem:
        raise BadProperties(f"{source}: {problem}") from None


def options_of(properties: Mapping[str, str]) -> SecurityOptions | None:
    """Read the security of a client's properties, under the names of Java's clients; None if there is none.

    Raises:
        ValueError: a property is unknown here or invalid; the text has no value of a secret.
    """
    given = _options(properties)
    return SecurityOptions(**given) if given else None


def is_secret(name: str, text: str) -> bool:
    """Whether a property's value is a secret, and no reference such as `${file:/path:key}`: it may not be an argument of a process."""
    return bool(_SECRET.search(name)) and "${" not in text


def is_security(name: str) -> bool:
    """Whether a property of a Java client is about its security."""
    return name == "security.protocol" or name.startswith(("sasl.", "ssl."))


def options_from_environment(environment: Mapping[str, str]) -> SecurityOptions | None:
    """Read `BUSWAY_SECURITY_PROTOCOL`, `BUSWAY_SSL_CAFILE` …, and the file that `BUSWAY_COMMAND_CONFIG` names.

    Options of the file come first. None if nothing is set.

    Raises:
        BadProperties: a variable or the file cannot be used.
    """
    given: dict[str, Any] = {}
    names = [name for name in NAMES if name != "sasl_oauth_token_provider"]
    for name in names:
        variable = PREFIX + name.upper()
        if value := environment.get(variable):
            given[name] = _flag(variable, value) if name in _FLAGS else value
    path = environment.get(CONFIG_VARIABLE)
    if path:
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8"
            raise BadProperties(f"{path}: cannot be read, {reason}; give the path of a properties file") from None
        try:
            given |= _options(parsed(text))
        except ValueError as problem:
            raise BadProperties(f"{path}: {problem}") from None
    if not given:
        return None
    try:
        return SecurityOptions(**given)
    except ValueError as problem:
        raise BadProperties(f"{path or 'the environment (BUSWAY_…)'}: {problem}") from None


def parsed(text: str) -> dict[str, str]:
    """Parse the text of a Java properties file: comments, continued lines, escapes."""
    properties = {}
    for line in _logical_lines(text):
        name, value = _pair(line)
        properties[name] = value
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for raw in text.splitlines():
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.?))")
_KEY: Final = re.compile(r"(?P<name>(?:[^\\\s=:]|\\.)*)\s*[=:]?\s*(?P<value>.*)", re.S)


def _pair(line: str) -> tuple[str, str]:
    match = _KEY.match(line)
    assert match is not None  # every part of the pattern may be empty
    return _unescaped(match["name"]), _unescaped(match["value"])


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else _ESCAPES.get(match[2], match[2]), text)


def _options(properties: Mapping[str, str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, value in properties.items():
        if name in _STRAIGHT:
            given[_STRAIGHT[name]] = value
    if "security_protocol" in given:
        given["security_protocol"] = given["security_protocol"].upper()
    given |= _stores(properties)
    algorithm = properties.get("ssl.endpoint.identification.algorithm")
    if algorithm is not None:
        if algorithm.lower() not in {"", "https"}:
            raise BadProperties(f"ssl.endpoint.identification.algorithm: {algorithm!r} is not https, or empty")
        if not algorithm:
            given["ssl_check_hostname"] = False
    if jaas := properties.get("sasl.jaas.config"):
        given = _from_jaas(jaas) | given
    return given


def _stores(properties: Mapping[str, str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for store, needed in (("truststore", "the CA's certificates"), ("keystore", "certificate chain and private key")):
        location = properties.get(f"ssl.{store}.location")
        kind = properties.get(f"ssl.{store}.type", "").upper()
        for inline in ("certificates", "certificate.chain", "key"):
            if f"ssl.{store}.{inline}" in properties:
                raise BadProperties(f"ssl.{store}.{inline}: put it into a PEM file and name it as ssl.{store}.location")
        if location is None:
            continue
        if kind not in {"", "PEM"} or (not kind and not location.lower().endswith((".pem", ".crt", ".cer", ".key"))):
            extract = (
                "openssl pkcs12 -in store.p12 -nokeys -out ca.pem"
                if store == "truststore"
                else "openssl pkcs12 -in store.p12 -out client.pem"
            )
            raise BadProperties(
                f"ssl.{store}.location: {location} is a store of Java ({kind or 'JKS by default'}), and PEM is needed; convert "
                f"it with `{_CONVERT.replace('STORE', location)}` and `{extract}`, then set ssl.{store}.location to that "
                f"file with {needed}, and ssl.{store}.type=PEM"
            )
        given["ssl_cafile" if store == "truststore" else "ssl_certfile"] = location
    if "ssl_certfile" in given and (password := properties.get("ssl.key.password")):
        given["ssl_password"] = password
    return given


def _from_jaas(text: str) -> dict[str, Any]:
    match = _JAAS.fullmatch(text.strip())
    if match is None:
        raise BadProperties(
            'sasl.jaas.config: not of the form `MODULE required name="value" …;`; the semicolon at its end is part of it'
        )
    module = match["module"].rpartition(".")[2]
    values = {}
    position = 0
    body = match["options"].rstrip()
    while position < len(body):
        option = _OPTION.match(body, position)
        if option is None:
            raise BadProperties(f'sasl.jaas.config: the options of {module} are not of the form name="value"')
        quoted = option["quoted"]
        values[option["name"]] = option["bare"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        position = option.end()
    if module in {_PLAIN_MODULE, _SCRAM_MODULE}:
        names = {"username": "sasl_plain_username", "password": "sasl_plain_password"}
    elif module == _OAUTH_MODULE:
        names = {
            "clientId": "sasl_oauthbearer_client_credentials_client_id",
            "clientSecret": "sasl_oauthbearer_client_credentials_client_secret",
            "scope": "sasl_oauthbearer_scope",
        }
    else:
        raise BadProperties(
            f"sasl.jaas.config: {module} is not supported; there are {_PLAIN_MODULE}, {_SCRAM_MODULE} and {_OAUTH_MODULE}"
        )
    return {names[name]: value for name, value in values.items() if name in names}


def _flag(variable: str, value: str) -> bool:
    if value.lower() in {"true", "1", "yes"}:
        return True
    if value.lower() in {"false", "0", "no"}:
        return False
    raise BadProperties(f"{variable}: {value!r} is not true or false")
