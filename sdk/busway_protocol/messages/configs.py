"""Reading and changing settings."""

from dataclasses import field
from typing import Annotated

from busway_protocol.schema import message, struct
from busway_protocol.types import Bool, Int8, Int16, Int32, NullableStr, Str, ignorable, since


@struct
class DescribeConfigsResource:
    """A topic, broker or group; null keys request all its settings."""

    resource_type: Int8
    resource_name: Str
    configuration_keys: list[Str] | None


@message(api_key=32, direction="request", versions=(1, 4), flexible=4)
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource]
    include_synonyms: Annotated[Bool, since(1)] = False
    include_documentation: Annotated[Bool, since(3)] = False


@struct
class DescribeConfigsSynonym:
    """A value that holds if all before it in the list are unset."""

    name: Annotated[Str, since(1)]
    value: Annotated[NullableStr, since(1)]
    source: Annotated[Int8, since(1)]


@struct
class DescribeConfigsResourceResult:
    """One setting: value (null if secret), source, type."""

    name: Str
    value: NullableStr
    read_only: Bool
    config_source: Annotated[Int8, since(1), ignorable] = -1
    is_sensitive: Bool
    synonyms: Annotated[list[DescribeConfigsSynonym], since(1), ignorable]
    config_type: Annotated[Int8, since(3), ignorable] = 0
    documentation: Annotated[NullableStr, since(3), ignorable] = ""


@struct
class DescribeConfigsResult:
    error_code: Int16
    error_message: NullableStr
    resource_type: Int8
    resource_name: Str
    configs: list[DescribeConfigsResourceResult]


@message(api_key=32, direction="response", versions=(1, 4), flexible=4)
class DescribeConfigsResponse:
    """Settings with value, source and synonyms (KIP-226, KIP-569)."""

    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult]


@struct
class AlterableConfig:
    """A setting's new value; null resets it."""

    name: Str
    value: NullableStr


@struct
class AlterConfigsResource:
    resource_type: Int8
    resource_name: Str
    configs: list[AlterableConfig]


@message(api_key=33, direction="request", versions=(0, 2), flexible=2)
class AlterConfigsRequest:
    """Replacement of all settings of resources; others are reset."""

    resources: list[AlterConfigsResource]
    validate_only: Bool


@struct
class AlterConfigsResourceResponse:
    error_code: Int16
    error_message: NullableStr
    resource_type: Int8
    resource_name: Str


@message(api_key=33, direction="response", versions=(0, 2), flexible=2)
class AlterConfigsResponse:
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse]


@struct
class IncrementalAlterConfigsRequestAlterableConfig:
    """Change of a setting: 0 set, 1 delete, 2 append, 3 subtract."""

    name: Str
    config_operation: Int8
    value: NullableStr


@struct
class IncrementalAlterConfigsRequestAlterConfigsResource:
    resource_type: Int8
    resource_name: Str
    configs: list[IncrementalAlterConfigsRequestAlterableConfig]


@message(api_key=44, direction="request", versions=(0, 1), flexible=1)
class IncrementalAlterConfigsRequest:
    """Changes of single settings (KIP-339)."""

    resources: list[IncrementalAlterConfigsRequestAlterConfigsResource]
    validate_only: Bool


@struct
class IncrementalAlterConfigsResponseAlterConfigsResourceResponse:
    """Result for one resource: all changes or none."""

    error_code: Int16
    error_message: NullableStr
    resource_type: Int8
    resource_name: Str


@message(api_key=44, direction="response", versions=(0, 1), flexible=1)
class IncrementalAlterConfigsResponse:
    throttle_time_ms: Int32 = 0
    responses: list[IncrementalAlterConfigsResponseAlterConfigsResourceResponse]


@message(api_key=74, direction="request", versions=(0, 1), flexible=0)
class ListConfigResourcesRequest:
    """Request for resources with settings; version 0 for client metrics only, no types for all (KIP-1142)."""

    resource_types: Annotated[list[Int8], since(1)] = field(default_factory=list)


@struct
class ConfigResource:
    resource_name: Str
    resource_type: Annotated[Int8, since(1), ignorable] = 16


@message(api_key=74, direction="response", versions=(0, 1), flexible=0)
class ListConfigResourcesResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    config_resources: list[ConfigResource]
