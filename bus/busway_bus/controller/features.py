"""The command on the features of the cluster (KIP-584).

Here: changing finalized levels, with Kafka's rules and texts.
Not here: the supported features (`metadata.features`), code that depends on a level.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from busway_bus.controller.controller import Surroundings, only_checked
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.dynamic_configs import CLUSTER_KEY
from busway_bus.metadata.features import (
    DEAD_LETTER_CONFIGS,
    ELR_VERSION,
    KAFKAS,
    METADATA_VERSION,
    NOT_SERVED,
    SHARE_VERSION,
    SHARE_VERSION_WITH_DEAD_LETTERS,
    SUPPORTED,
    lacking,
)
from busway_bus.metadata.image import BROKER_RESOURCE, GROUP_RESOURCE, ClusterImage
from busway_bus.metadata.records import ConfigRecord, FeatureLevelRecord
from busway_protocol.errors import ErrorCode, KafkaError

_TURNED_OFF = (0, 0)
"""Levels of an unsupported feature."""
_ALL_FAIL = "The update failed for all features since the following feature had an error: "

_LOWERED_BY_AN_UPGRADE = (
    "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
)


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureUpdate:
    """A feature and its requested level; `kind` is an `UpgradeType`, or unknown."""

    name: str
    level: int
    kind: int = UpgradeType.UPGRADE


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFeatures:
    """Set finalized levels, all or none; a feature's last update wins."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False

    def decide(self, image: ClusterImage, surroundings: Surroundings) -> Decision[None]:
        """Return a record for each level that changes.

        Raises:
            KafkaError: INVALID_UPDATE_VERSION, for the first refused update.
        """
        updates = {update.name: update for update in self.updates}
        proposed = {**image.features, **{update.name: update.level for update in updates.values()}}
        for update in updates.values():
            reason = _refusal(update, image, proposed, surroundings.config.node_id)
            if reason is not None:
                raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, _ALL_FAIL + reason)
        records: tuple[object, ...] = tuple(
            FeatureLevelRecord(name=update.name, feature_level=update.level)
            for update in updates.values()
            if image.features.get(update.name, 0) != update.level
        )
        if any(update.name == ELR_VERSION and update.level for update in updates.values()):
            records += tuple(_one_min_isr(image, surroundings.config))
        return only_checked(Decision(records=records, reply=None), validate_only=self.validate_only)


def _one_min_isr(image: ClusterImage, config: BrokerConfig) -> Iterator[ConfigRecord]:
    """Set one minimum of the ISR for all brokers: with different ones, none would know who is eligible."""
    cluster = image.broker_configs("")
    if CLUSTER_KEY not in cluster:
        value = config.dynamic.defaults(cluster)[CLUSTER_KEY]
        yield ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=CLUSTER_KEY, value=value)
    for (kind, name), configs in image.configs.pairs():
        if kind == BROKER_RESOURCE and name and CLUSTER_KEY in configs:
            yield ConfigRecord(resource_type=kind, resource_name=name, name=CLUSTER_KEY, value=None)


def _refusal(update: FeatureUpdate, image: ClusterImage, proposed: Mapping[str, int], node_id: int) -> str | None:
    reason = _reason(update, image, proposed, node_id) or _still_set(update, image)
    if reason is not None:
        return f"Invalid update version {update.level} for feature {update.name}. {reason}"
    now = image.features.get(update.name, 0)
    if update.name == METADATA_VERSION and update.level < now:
        # Records of the metadata log have the format of the highest level, whatever level is finalized.
        unsafe = update.kind == UpgradeType.UNSAFE_DOWNGRADE
        return f"Unsupported metadata.version downgrade from {now} to {update.level}. " + (
            "Unsafe metadata downgrade is not supported in this version."
            if unsafe
            else "Refusing to perform the requested downgrade because it might delete metadata information."
        )
    return None


def _reason(update: FeatureUpdate, image: ClusterImage, proposed: Mapping[str, int], node_id: int) -> str | None:
    name, level = update.name, update.level
    now = image.features.get(name, 0)
    if update.kind not in tuple(UpgradeType):
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    for supporter, (lowest, highest) in _supporters(name, image, node_id):
        if not lowest <= level <= highest:
            if highest == 0:
                return " ".join(filter(None, (f"{supporter} does not support this feature.", NOT_SERVED.get(name))))
            return f"{supporter} only supports versions {lowest}-{highest}"
    if level < now and update.kind == UpgradeType.UPGRADE:
        return _LOWERED_BY_AN_UPGRADE
    if level > now and update.kind != UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    if name not in KAFKAS:
        return f"Feature {name} not found."
    needed = lacking(name, level, proposed)
    if needed is not None:
        return f"{name} could not be set to {level} because it depends on {needed[0]} level {needed[1]}"
    return None


def _still_set(update: FeatureUpdate, image: ClusterImage) -> str | None:
    """Return why the level of share groups cannot fall: dead-letter settings.

    Archived records would be dropped silently.
    """
    if update.name != SHARE_VERSION or update.level >= SHARE_VERSION_WITH_DEAD_LETTERS:
        return None
    for (kind, resource), configs in image.configs.pairs():
        for name in configs:
            if not name.startswith(DEAD_LETTER_CONFIGS):
                continue
            entity = "group" if kind == GROUP_RESOURCE else "topic"
            return (
                f"{entity} {resource} has {name}, which needs level {SHARE_VERSION_WITH_DEAD_LETTERS}; delete it first: kafka-configs.sh "
                f"--alter --entity-type {entity}s --entity-name {resource} --delete-config {name}"
            )
    return None


def _supporters(name: str, image: ClusterImage, node_id: int) -> Iterator[tuple[str, tuple[int, int]]]:
    yield f"Local controller {node_id}", SUPPORTED.get(name, _TURNED_OFF)
    for broker in image.brokers.values():
        yield f"Broker {broker.node_id}", broker.features.get(name, _TURNED_OFF)
