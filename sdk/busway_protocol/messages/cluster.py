"""API versions, features, and brokers of the cluster."""

from dataclasses import field
from typing import Annotated

from busway_protocol.schema import message, struct
from busway_protocol.types import (
    Bool,
    BrokerId,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableStr,
    Str,
    ignorable,
    since,
    tag,
    until,
)


@message(api_key=18, direction="request", versions=(0, 4), flexible=3)
class ApiVersionsRequest:
    """Request for the broker's versions, with the client's software name from version 3 on (KIP-511)."""

    client_software_name: Annotated[Str, since(3), ignorable] = ""
    client_software_version: Annotated[Str, since(3), ignorable] = ""


@struct
class ApiVersion:
    api_key: Int16
    min_version: Int16
    max_version: Int16


@struct
class SupportedFeatureKey:
    name: Annotated[Str, since(3)] = ""
    min_version: Annotated[Int16, since(3)] = 0
    max_version: Annotated[Int16, since(3)] = 0


@struct
class FinalizedFeatureKey:
    """Level of a feature in force in the cluster; affects clients."""

    name: Annotated[Str, since(3)] = ""
    max_version_level: Annotated[Int16, since(3)] = 0
    min_version_level: Annotated[Int16, since(3)] = 0


@message(api_key=18, direction="response", versions=(0, 4), flexible=3)
class ApiVersionsResponse:
    """Versions of all APIs, and the cluster's features (KIP-584)."""

    error_code: Int16
    api_keys: list[ApiVersion]
    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    supported_features: Annotated[list[SupportedFeatureKey], since(3), tag(0), ignorable] = field(default_factory=list)
    finalized_features_epoch: Annotated[Int64, since(3), tag(1), ignorable] = -1
    finalized_features: Annotated[list[FinalizedFeatureKey], since(3), tag(2), ignorable] = field(default_factory=list)
    zk_migration_ready: Annotated[Bool, since(3), tag(3), ignorable] = False


@struct
class FeatureUpdateKey:
    """New level of a feature: 1 upgrade, 2 safe downgrade, 3 downgrade with loss."""

    feature: Str
    max_version_level: Int16
    allow_downgrade: Annotated[Bool, until(0)] = False
    upgrade_type: Annotated[Int8, since(1)] = 1


@message(api_key=57, direction="request", versions=(0, 2), flexible=0)
class UpdateFeaturesRequest:
    """Finalization of features (KIP-584)."""

    timeout_ms: Int32 = 60000
    feature_updates: list[FeatureUpdateKey]
    validate_only: Annotated[Bool, since(1)] = False


@struct
class UpdatableFeatureResult:
    feature: Str
    error_code: Int16
    error_message: NullableStr


@message(api_key=57, direction="response", versions=(0, 2), flexible=0)
class UpdateFeaturesResponse:
    """Results of all features; one for all from version 2 on."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: NullableStr
    results: Annotated[list[UpdatableFeatureResult], until(1), ignorable] = field(default_factory=list)


@message(api_key=60, direction="request", versions=(0, 2), flexible=0)
class DescribeClusterRequest:
    include_cluster_authorized_operations: Bool
    endpoint_type: Annotated[Int8, since(1)] = 1
    include_fenced_brokers: Annotated[Bool, since(2)] = False


@struct
class DescribeClusterBroker:
    """A broker, or from version 1 on a controller, with its address."""

    broker_id: BrokerId
    host: Str
    port: Int32
    rack: NullableStr = None
    is_fenced: Annotated[Bool, since(2)] = False


@message(api_key=60, direction="response", versions=(0, 2), flexible=0)
class DescribeClusterResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: NullableStr = None
    endpoint_type: Annotated[Int8, since(1)] = 1
    cluster_id: Str
    controller_id: BrokerId = -1
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = -2147483648
