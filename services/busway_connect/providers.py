"""Kafka's config providers (KIP-297): references to values in the worker's files or environment.

Here: the worker's `config.providers.*`, and replacing `${PROVIDER:KEY}` and `${PROVIDER:PATH:KEY}` in connectors'
settings, so that requests, topics and responses have no passwords.
Not here: stored and displayed settings, which keep the references.

REST clients can read all that a provider reads, so each needs a limit in the worker's settings: `allowed.paths` for
files, `allowlist.pattern` for the environment.
"""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from busway_connect.config import BadSetting
from busway_connect.connector import Config, ConfigInvalid

PREFIX: Final = "config.providers"
_REFERENCE: Final = re.compile(r"\$\{((?:[^}:$]|\$(?!\{))+):((?:[^}$]|\$(?!\{))*)\}")
"""References do not nest: linear time, also for `${env:${env:${env:…`."""
_FILE_BYTES_MAX: Final = 64 * 1024


class _Unresolved(ValueError):
    """A value is missing or forbidden."""


class _Provider(ABC):
    """A source of values.

    Args:
        parameters: settings after `config.providers.NAME.param.`.

    Raises:
        ValueError: missing or invalid; the text begins with the name.
    """

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._parameters = parameters

    @abstractmethod
    def value(self, path: str, key: str) -> str:
        """Return the value; raises `_Unresolved`."""


class _Environment(_Provider):
    """`${env:NAME}`: environment variables that match `allowlist.pattern`."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        super().__init__(parameters)
        pattern = parameters.get("allowlist.pattern")
        if not pattern:
            raise ValueError(
                "allowlist.pattern is missing; a regular expression of the variables that connectors may use"
            )
        try:
            self._allowed = re.compile(pattern)
        except re.error as problem:
            raise ValueError(f"allowlist.pattern: {problem}") from None

    def value(self, path: str, key: str) -> str:
        if path:
            raise _Unresolved("the environment has no paths")
        if not self._allowed.fullmatch(key) or key not in os.environ:
            raise _Unresolved(f"the environment has no {key} that allowlist.pattern allows")
        return os.environ[key]


class _Files(_Provider):
    """`${file:/path:key}`: a line `key=value` of a properties file in `allowed.paths`."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        super().__init__(parameters)
        self._allowed = [
            Path(path.strip()).resolve() for path in parameters.get("allowed.paths", "").split(",") if path.strip()
        ]
        if not self._allowed:
            raise ValueError("allowed.paths is missing; the folders, with commas, whose files connectors may use")

    def value(self, path: str, key: str) -> str:
        for line in self._text(Path(path)).splitlines():
            name, equals, value = line.partition("=")
            if equals and name.strip() == key and not line.lstrip().startswith(("#", "!")):
                return value.strip()
        raise _Unresolved(f"the file {path} has no line {key}=…")

    def _text(self, path: Path) -> str:
        where = path.resolve()
        if not any(where.is_relative_to(allowed) for allowed in self._allowed):
            raise _Unresolved(f"{path} is not within allowed.paths")
        try:
            with where.open("rb") as file:
                return file.read(_FILE_BYTES_MAX).decode()
        except (OSError, ValueError) as problem:
            raise _Unresolved(f"{path} cannot be read: {getattr(problem, 'strerror', None) or problem}") from None


class _Directory(_Files):
    """`${directory:/path:file}`: a file's text without final newline, like secrets mounted into containers."""

    def value(self, path: str, key: str) -> str:
        return self._text(Path(path) / key).rstrip("\r\n")


_CLASSES: Final[Mapping[str, type[_Provider]]] = {
    "org.apache.kafka.common.config.provider.EnvVarConfigProvider": _Environment,
    "org.apache.kafka.common.config.provider.FileConfigProvider": _Files,
    "org.apache.kafka.common.config.provider.DirectoryConfigProvider": _Directory,
}


class Providers:
    """The providers of a worker.

    Args:
        properties: the worker's settings with `config.providers`.

    Raises:
        BadSetting: no class, or no limit.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._providers: dict[str, _Provider] = {}
        for name in (part.strip() for part in properties.get(PREFIX, "").split(",")):
            if not name:
                continue
            class_name = properties.get(f"{PREFIX}.{name}.class", "")
            kind = next(
                (provider for known, provider in _CLASSES.items() if class_name in {known, known.rpartition(".")[2]}),
                None,
            )
            if kind is None:
                raise BadSetting(f"{PREFIX}.{name}.class is one of {', '.join(_CLASSES)}, not {class_name!r}")
            prefix = f"{PREFIX}.{name}.param."
            try:
                self._providers[name] = kind(
                    {
                        property_name.removeprefix(prefix): text
                        for property_name, text in properties.items()
                        if property_name.startswith(prefix)
                    }
                )
            except ValueError as problem:
                raise BadSetting(f"{prefix}{problem}") from None

    def resolved(self, config: Config) -> dict[str, str]:
        """Replace references by values; unknown providers stay, such as `${topic}`.

        Raises:
            ConfigInvalid: names each setting whose reference has no value.
        """
        wrong: dict[str, str] = {}
        resolved = {}
        for name, text in config.items():
            try:
                resolved[name] = _REFERENCE.sub(self._value, text) if self._providers else text
            except _Unresolved as problem:
                wrong[name] = str(problem)
        if wrong:
            raise ConfigInvalid(wrong)
        return resolved

    def _value(self, reference: re.Match[str]) -> str:
        provider = self._providers.get(reference[1])
        path, _, key = reference[2].rpartition(":")
        return reference[0] if provider is None else provider.value(path, key)
