"""Registration and heartbeats of brokers at the controller (KIP-631)."""

from dataclasses import field
from typing import Annotated

from busway_protocol.schema import message, struct
from busway_protocol.types import (
    Bool,
    BrokerId,
    Int16,
    Int32,
    Int64,
    NullableStr,
    Str,
    UInt16,
    Uuid,
    ignorable,
    nullable_since,
    since,
    tag,
)


@struct
class RegisteredListener:
    name: Str
    host: Str
    port: UInt16
    security_protocol: Int16


@struct
class RegisteredFeature:
    """Supported levels of a feature; before version 4 those from level 0 on are left out."""

    name: Str
    min_supported_version: Int16
    max_supported_version: Int16


@message(api_key=62, direction="request", versions=(0, 4), flexible=0)
class BrokerRegistrationRequest:
    """Registration of a started broker, with its directories (KIP-858) and the epoch of its clean stop (KIP-966)."""

    broker_id: BrokerId
    cluster_id: Str
    incarnation_id: Uuid
    listeners: list[RegisteredListener]
    features: list[RegisteredFeature]
    rack: NullableStr
    is_migrating_zk_broker: Annotated[Bool, since(1)] = False
    log_dirs: Annotated[list[Uuid], since(2), ignorable] = field(default_factory=list)
    previous_broker_epoch: Annotated[Int64, since(3), ignorable] = -1


@message(api_key=62, direction="response", versions=(0, 4), flexible=0)
class BrokerRegistrationResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    broker_epoch: Int64 = -1


@message(api_key=63, direction="request", versions=(0, 2), flexible=0)
class BrokerHeartbeatRequest:
    """Heartbeat of a broker, with the state that it requests and its failed directories (KIP-858)."""

    broker_id: BrokerId
    broker_epoch: Int64 = -1
    current_metadata_offset: Int64
    want_fence: Bool
    want_shut_down: Bool
    offline_log_dirs: Annotated[list[Uuid], since(1), tag(0)] = field(default_factory=list)
    cordoned_log_dirs: Annotated[list[Uuid] | None, since(2), nullable_since(2), tag(1)] = None


@message(api_key=63, direction="response", versions=(0, 2), flexible=0)
class BrokerHeartbeatResponse:
    """State of the broker; `should_shut_down` ends its controlled shutdown."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    is_caught_up: Bool = False
    is_fenced: Bool = True
    should_shut_down: Bool


@message(api_key=64, direction="request", versions=(0, 0), flexible=0)
class UnregisterBrokerRequest:
    broker_id: BrokerId


@message(api_key=64, direction="response", versions=(0, 0), flexible=0)
class UnregisterBrokerResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: NullableStr
