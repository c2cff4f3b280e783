"""Reading and changing settings.

Messages: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources. Layouts as in Kafka 4.3.1; the fields
keep Kafka's names.
"""

from dataclasses import field
from typing import Annotated

from busway_protocol.schema import message, struct
from busway_protocol.types import Bool, Int8, Int16, Int32, NullableStr, Str, ignorable, since


@struct
class DescribeConfigsResource:
    """A topic, broker or group whose settings are asked for; null keys ask for all of them."""

    resource_type: Int8
    resource_name: Str
    configuration_keys: list[Str] | None


@message(api_key=32, direction="request", versions=(1, 4), flexible=4)
class DescribeConfigsRequest:
    """Asks for the settings of topics, brokers and groups."""

    resources: list[DescribeConfigsResource]
    include_synonyms: Annotated[Bool, since(1)] = False
    include_documentation: Annotated[Bool, since(3)] = False


@struct
class DescribeConfigsSynonym:
    """A value that would hold, were the ones before it in the list not set."""

    name: Annotated[Str, since(1)]
    value: Annotated[NullableStr, since(1)]
    source: Annotated[Int8, since(1)]


@struct
class DescribeConfigsResourceResult:
    """One setting: its value (null where it is a secret), where that comes from, its type."""

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
    """The settings of one resource, or why they are withheld."""

    error_code: Int16
    error_message: NullableStr
    resource_type: Int8
    resource_name: Str
    configs: list[DescribeConfigsResourceResult]


@message(api_key=32, direction="response", versions=(1, 4), flexible=4)
class DescribeConfigsResponse:
    """Every setting with its value, source and synonyms (KIP-226, KIP-569)."""

    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult]


@struct
class AlterableConfig:
    """A setting and its new value; null takes it back to its default."""

    name: Str
    value: NullableStr


@struct
class AlterConfigsResource:
    """A resource and all that it is to have set."""

    resource_type: Int8
    resource_name: Str
    configs: list[AlterableConfig]


@message(api_key=33, direction="request", versions=(0, 2), flexible=2)
class AlterConfigsRequest:
    """Replaces all settings of a resource; what is not named goes back to its default."""

    resources: list[AlterConfigsResource]
    validate_only: Bool


@struct
class AlterConfigsResourceResponse:
    """Whether the settings of one resource were replaced."""

    error_code: Int16
    error_message: NullableStr
    resource_type: Int8
    resource_name: Str


@message(api_key=33, direction="response", versions=(0, 2), flexible=2)
class AlterConfigsResponse:
    """The outcome for each resource."""

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse]


@struct
class IncrementalAlterConfigsRequestAlterableConfig:
    """A setting and what to do with it: 0 set, 1 delete, 2 append, 3 subtract."""

    name: Str
    config_operation: Int8
    value: NullableStr


@struct
class IncrementalAlterConfigsRequestAlterConfigsResource:
    """A resource and the changes to its settings."""

    resource_type: Int8
    resource_name: Str
    configs: list[IncrementalAlterConfigsRequestAlterableConfig]


@message(api_key=44, direction="request", versions=(0, 1), flexible=1)
class IncrementalAlterConfigsRequest:
    """Sets, deletes, appends to or takes from single settings (KIP-339)."""

    resources: list[IncrementalAlterConfigsRequestAlterConfigsResource]
    validate_only: Bool


@struct
class IncrementalAlterConfigsResponseAlterConfigsResourceResponse:
    """Whether the changes to one resource were made: all of them or none."""

    error_code: Int16
    error_message: NullableStr
    resource_type: Int8
    resource_name: Str


@message(api_key=44, direction="response", versions=(0, 1), flexible=1)
class IncrementalAlterConfigsResponse:
    """The outcome for each resource."""

    throttle_time_ms: Int32 = 0
    responses: list[IncrementalAlterConfigsResponseAlterConfigsResourceResponse]


@message(api_key=74, direction="request", versions=(0, 1), flexible=0)
class ListConfigResourcesRequest:
    """Asks which resources can have settings; version 0 for those of client metrics alone, no types for all (KIP-1142)."""

    resource_types: Annotated[list[Int8], since(1)] = field(default_factory=list)


@struct
class ConfigResource:
    """A resource: its name, and its type by the number that DescribeConfigs takes."""

    resource_name: Str
    resource_type: Annotated[Int8, since(1), ignorable] = 16


@message(api_key=74, direction="response", versions=(0, 1), flexible=0)
class ListConfigResourcesResponse:
    """The resources."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    config_resources: list[ConfigResource]
