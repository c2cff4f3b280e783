"""Values that a new version takes from the previous one.

Here: metadata and rules that a client omits, like in Confluent's server (`maybeSetMetadataRuleSet`).
Not here: choosing that version (`registration`).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from busway_registry.domain.schemas import Artifact

_VERSION: Final = "confluent:version"


def inheriting(artifact: Artifact, latest: Artifact) -> Artifact:
    return replace(
        artifact,
        metadata=latest.metadata if artifact.metadata is None else artifact.metadata,
        rule_set=latest.rule_set if artifact.rule_set is None else artifact.rule_set,
    )


def numbered(artifact: Artifact, version: int) -> Artifact:
    properties: Mapping[str, str] = (artifact.metadata or {}).get("properties", {})
    if _VERSION not in properties:
        return artifact
    return replace(
        artifact, metadata={**(artifact.metadata or {}), "properties": {**properties, _VERSION: str(version)}}
    )
