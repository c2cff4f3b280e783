"""Reading and changing settings.

Messages: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs. Layouts as in Kafka 4.3.1; the fields keep Kafka's names.
"""

from typing import Annotated

from busway_protocol.schema import message, struct
from busway_protocol.types import Bool, Int8, Int16, Int32, NullableStr, Str, ignorable, since


@struct
class DescribeConfigsResource:
    """One describe configs resource."""

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
    """One describe configs synonym."""

    name: Annotated[Str, since(1)]
    value: Annotated[NullableStr, since(1)]
    source: Annotated[Int8, since(1)]


@struct
class DescribeConfigsResourceResult:
    """One describe configs resource result."""

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
    """One describe configs result."""

    error_code: Int16
    error_message: NullableStr
    resource_type: Int8
    resource_name: Str
    configs: list[DescribeConfigsResourceResult]


@message(api_key=32, direction="response", versions=(1, 4), flexible=4)
class DescribeConfigsResponse:
    """Every setting with its value, source and synonyms (KIP-226, KIP-569)."""

    throttle_time_ms: Int32
    results: list[DescribeConfigsResult]


@struct
class AlterableConfig:
    """One alterable config."""

    name: Str
    value: NullableStr


@struct
class AlterConfigsResource:
    """One alter configs resource."""

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
    """One alter configs resource response."""

    error_code: Int16
    error_message: NullableStr
    resource_type: Int8
    resource_name: Str


@message(api_key=33, direction="response", versions=(0, 2), flexible=2)
class AlterConfigsResponse:
    """The outcome for each resource."""

    throttle_time_ms: Int32
    responses: list[AlterConfigsResourceResponse]


@struct
class IncrementalAlterConfigsRequestAlterableConfig:
    """One incremental alter configs request alterable config."""

    name: Str
    config_operation: Int8
    value: NullableStr


@struct
class IncrementalAlterConfigsRequestAlterConfigsResource:
    """One incremental alter configs request alter configs resource."""

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
    """One incremental alter configs response alter configs resource response."""

    error_code: Int16
    error_message: NullableStr
    resource_type: Int8
    resource_name: Str


@message(api_key=44, direction="response", versions=(0, 1), flexible=1)
class IncrementalAlterConfigsResponse:
    """The outcome for each resource."""

    throttle_time_ms: Int32
    responses: list[IncrementalAlterConfigsResponseAlterConfigsResourceResponse]
