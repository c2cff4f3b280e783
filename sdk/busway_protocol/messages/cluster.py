"""What a broker speaks, and which brokers there are.

Messages: ApiVersions, UpdateFeatures, DescribeCluster. Layouts as in Kafka 4.3.1; the fields keep Kafka's names.
"""

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
    """Asks what the broker speaks; the client says its software name from version 3 on (KIP-511)."""

    client_software_name: Annotated[Str, since(3), ignorable] = ""
    client_software_version: Annotated[Str, since(3), ignorable] = ""


@struct
class ApiVersion:
    """The versions of one API that the broker serves, both ends included."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


@struct
class SupportedFeatureKey:
    """The levels of a feature that this broker could run at."""

    name: Annotated[Str, since(3)] = ""
    min_version: Annotated[Int16, since(3)] = 0
    max_version: Annotated[Int16, since(3)] = 0


@struct
class FinalizedFeatureKey:
    """The level of a feature that the whole cluster has agreed on; changes how clients behave."""

    name: Annotated[Str, since(3)] = ""
    max_version_level: Annotated[Int16, since(3)] = 0
    min_version_level: Annotated[Int16, since(3)] = 0


@message(api_key=18, direction="response", versions=(0, 4), flexible=3)
class ApiVersionsResponse:
    """The versions of every API, and the features of the cluster (KIP-584)."""

    error_code: Int16
    api_keys: list[ApiVersion]
    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    supported_features: Annotated[list[SupportedFeatureKey], since(3), tag(0), ignorable] = field(default_factory=list)
    finalized_features_epoch: Annotated[Int64, since(3), tag(1), ignorable] = -1
    finalized_features: Annotated[list[FinalizedFeatureKey], since(3), tag(2), ignorable] = field(default_factory=list)
    zk_migration_ready: Annotated[Bool, since(3), tag(3), ignorable] = False


@struct
class FeatureUpdateKey:
    """A feature and the level that it is to have: 1 raises, 2 lowers where nothing is lost, 3 lowers whatever is lost."""

    feature: Str
    max_version_level: Int16
    allow_downgrade: Annotated[Bool, until(0)] = False
    upgrade_type: Annotated[Int8, since(1)] = 1


@message(api_key=57, direction="request", versions=(0, 2), flexible=0)
class UpdateFeaturesRequest:
    """Asks to finalize features at other levels (KIP-584)."""

    timeout_ms: Int32 = 60000
    feature_updates: list[FeatureUpdateKey]
    validate_only: Annotated[Bool, since(1)] = False


@struct
class UpdatableFeatureResult:
    """What became of one feature."""

    feature: Str
    error_code: Int16
    error_message: NullableStr


@message(api_key=57, direction="response", versions=(0, 2), flexible=0)
class UpdateFeaturesResponse:
    """What became of all features; from version 2 on they have one answer."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: NullableStr
    results: Annotated[list[UpdatableFeatureResult], until(1), ignorable] = field(default_factory=list)


@message(api_key=60, direction="request", versions=(0, 2), flexible=0)
class DescribeClusterRequest:
    """Asks for the brokers of the cluster (KIP-700)."""

    include_cluster_authorized_operations: Bool
    endpoint_type: Annotated[Int8, since(1)] = 1
    include_fenced_brokers: Annotated[Bool, since(2)] = False


@struct
class DescribeClusterBroker:
    """A broker, or from version 1 on a controller, and where it listens."""

    broker_id: BrokerId
    host: Str
    port: Int32
    rack: NullableStr = None
    is_fenced: Annotated[Bool, since(2)] = False


@message(api_key=60, direction="response", versions=(0, 2), flexible=0)
class DescribeClusterResponse:
    """The brokers, the controller and the id of the cluster."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: NullableStr = None
    endpoint_type: Annotated[Int8, since(1)] = 1
    cluster_id: Str
    controller_id: BrokerId = -1
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = -2147483648
