"""A new schema against earlier versions at a level: verdict and explanation.

Here: the pairs to compare, their order, and texts of breaches.
Not here: rules for a pair (`avro`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from busway_registry.domain.avro.parser import Parsed, parse
from busway_registry.domain.compatibility.avro import incompatibilities
from busway_registry.domain.compatibility.breaches import MOST_BREACHES, Budget
from busway_registry.domain.compatibility.levels import Level
from busway_registry.domain.schemas import Artifact

_MOST_CHARS: Final = 2_000
"""Limit of each part of a message. Names and symbols have none."""

Parse: TypeAlias = Callable[[str, Sequence[str]], Parsed]


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """A version to compare with; `reference_texts`: dependencies first."""

    version: int
    artifact: Artifact
    reference_texts: Sequence[str] = ()


def explain(
    new: Artifact,
    reference_texts: Sequence[str],
    earlier: Sequence[Earlier],
    level: Level,
    *,
    budget: Budget | None = None,
    parse: Parse = parse,
) -> list[str]:
    """Return messages on the first incompatible version; empty if compatible. Raises `TooMuchWork`.

    Args:
        reference_texts: dependencies first.
        earlier: live versions, newest first.
        level: only the newest version counts unless it is transitive.
        parse: reads texts; a caching one saves most of the time.
    """
    if level is Level.NONE:
        return []
    budget = budget or Budget()
    for version in earlier if level.transitive else earlier[:1]:
        messages = _against(new, reference_texts, version, level, budget=budget, parse=parse)
        if messages:
            return [
                *messages,
                _message({"oldSchemaVersion": version.version}),
                _message({"oldSchema": version.artifact.text}),
                _message({"compatibility": level.value}),
            ]
    return []


def _against(
    new: Artifact, reference_texts: Sequence[str], version: Earlier, level: Level, *, budget: Budget, parse: Parse
) -> list[str]:
    if new.schema_type != version.artifact.schema_type:
        description = f"the schema is {new.schema_type}, version {version.version} is {version.artifact.schema_type}: use another subject"
        return [_message({"errorType": "TYPE_CHANGED", "description": description})]
    ours = parse(new.text, reference_texts).schema
    theirs = parse(version.artifact.text, version.reference_texts).schema
    most = MOST_BREACHES + 1
    breaches = []
    if level.old_reads_new:
        breaches += [(problem, "old", "new") for problem in incompatibilities(theirs, ours, budget=budget, most=most)]
    if level.new_reads_old:
        most -= len(breaches)
        breaches += [(problem, "new", "old") for problem in incompatibilities(ours, theirs, budget=budget, most=most)]
    messages = [
        _message(
            {
                "errorType": problem.kind,
                "description": f"at {_clipped(problem.where)} the {reader} schema cannot read what the {writer} schema writes: "
                f"{_clipped(problem.remedy)}",
                "additionalInfo": _clipped(problem.info),
            }
        )
        for problem, reader, writer in breaches[:MOST_BREACHES]
    ]
    if len(breaches) > MOST_BREACHES:
        messages.append(_message({"more": f"these are the first {MOST_BREACHES}; mend them and check again"}))
    return messages


def _clipped(text: str) -> str:
    return text if len(text) <= _MOST_CHARS else text[:_MOST_CHARS] + "…"


def _message(parts: Mapping[str, object]) -> str:
    shown = (f"{name}:{value}" if isinstance(value, int) else f"{name}:'{value}'" for name, value in parts.items())
    return "{" + ", ".join(shown) + "}"
