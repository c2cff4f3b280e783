"""Administration of the cluster's features: supported and finalized levels (KIP-584).

Here: `FeaturesAdmin`, a base of `Admin`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from busway.cluster.client import ClusterClient
from busway.errors import BrokerError, UnsupportedByBroker
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.cluster import ApiVersionsRequest, FeatureUpdateKey, UpdateFeaturesRequest

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
_FEATURES_SINCE: Final = 3
_DOWNGRADES_SINCE: Final = 1
_LEVEL_MAX: Final = 32_767


@dataclass(frozen=True, slots=True)
class FeatureLevels:
    """A feature of the cluster.

    Attributes:
        lowest, highest: supported by the broker; None if it only reports the finalized one.
        finalized: the level in force; 0 if off.
    """

    name: str
    lowest: int | None
    highest: int | None
    finalized: int


@dataclass(frozen=True, slots=True)
class FeaturesDescription:
    """All features by name.

    Attributes:
        epoch: increases with every change; None if the broker has none.
    """

    epoch: int | None
    features: Mapping[str, FeatureLevels]


class FeaturesAdmin:
    _cluster: ClusterClient
    _timeout_ms: int

    async def describe_features(self) -> FeaturesDescription:
        """Return a broker's supported features and the cluster's finalized levels.

        Raise `UnsupportedByBroker` before ApiVersions 3.
        """
        connection = await self._cluster.any_connection()
        if connection.version(ApiKey.API_VERSIONS) < _FEATURES_SINCE:
            raise UnsupportedByBroker("features need brokers that serve ApiVersions 3, of Apache Kafka 2.7 or later")
        answer = await connection.request(
            ApiVersionsRequest(client_software_name="busway", client_software_version="1")
        )
        _check(answer.error_code, "describing the features")
        supported = {feature.name: feature for feature in answer.supported_features}
        finalized = {feature.name: feature.max_version_level for feature in answer.finalized_features}
        features = {}
        for name in sorted({*supported, *finalized}):
            levels = supported.get(name)
            features[name] = FeatureLevels(
                name,
                None if levels is None else levels.min_version,
                None if levels is None else levels.max_version,
                finalized.get(name, 0),
            )
        epoch = answer.finalized_features_epoch
        return FeaturesDescription(None if epoch < 0 else epoch, features)

    async def update_features(
        self, levels: Mapping[str, int], *, downgrade: bool = False, unsafe: bool = False, validate_only: bool = False
    ) -> None:
        """Set finalized levels, all of them or none.

        Args:
            levels: feature → level; 0 turns it off, a downgrade.
            downgrade: lower levels, and raise none.
            unsafe: lower them even if metadata is lost.
            validate_only: only check on the brokers.

        Raises:
            BrokerError: INVALID_UPDATE_VERSION, with the first feature that cannot have its level.
            UnsupportedByBroker: the brokers cannot lower levels, or not only check.
        """
        if not levels:
            raise ValueError("name at least one feature and its level")
        for name, level in levels.items():
            if not name or not 0 <= level <= _LEVEL_MAX:
                raise ValueError(f"{name or 'a feature without a name'} cannot have the level {level}")
        kind = (UNSAFE_DOWNGRADE if unsafe else SAFE_DOWNGRADE) if downgrade or unsafe else UPGRADE
        connection = await self._cluster.any_connection()
        if connection.version(ApiKey.UPDATE_FEATURES) < _DOWNGRADES_SINCE and (kind != UPGRADE or validate_only):
            raise UnsupportedByBroker("lowering levels, and validate_only, need brokers that serve UpdateFeatures 1")
        request = UpdateFeaturesRequest(
            timeout_ms=self._timeout_ms,
            feature_updates=[
                FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
                for name, level in levels.items()
            ],
            validate_only=validate_only,
        )
        answer = await self._cluster.ask_controller(request)
        _check(answer.error_code, "updating features", answer.error_message)
        for result in answer.results:
            _check(result.error_code, f"feature {result.feature}", result.error_message)


def _check(error_code: int, what: str, text: str | None = None) -> None:
    code = error_for(error_code)
    if code is not ErrorCode.NONE:
        raise BrokerError(code, what, text)
