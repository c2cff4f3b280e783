"""Requests of clients in envelopes: packed by a broker, unpacked by the active controller."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from tests.unit.busway_bus.nodes.test_channels import image_of

from busway_bus.controller.controller import ControllerRequestContext
from busway_bus.controller.topics import DeleteTopics
from busway_bus.handlers.common.context import CloseConnection, Encoded, NodeServices, Peer, RequestContext
from busway_bus.handlers.common.forwarded import Forwarded, forward
from busway_bus.handlers.delete_topics import handle as delete_topics
from busway_bus.handlers.for_controllers import envelope, registry
from busway_bus.handlers.for_controllers.services import ControllerServices
from busway_bus.handlers.unregister_broker import handle as unregister_broker
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.listener_configs import Endpoint
from busway_bus.kernel.principal import Principal
from busway_bus.metadata.image import ClusterImage
from busway_bus.nodes.forwarding import Forwarder
from busway_protocol.apis import ApiKey
from busway_protocol.compile import decode, encode
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.headers import RequestHeader
from busway_protocol.messages.brokers import UnregisterBrokerRequest, UnregisterBrokerResponse
from busway_protocol.messages.forwarding import EnvelopeRequest, EnvelopeResponse
from busway_protocol.messages.topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

ALICE = Principal("User", "alice")
HERE = Endpoint(name="CONTROLLER", host="c", port=9093)
VERSION = 6


class Decider:
    """A controller that answers one command, and notes its caller."""

    leader_id = 1

    def __init__(self, reply: Any) -> None:
        self.reply = reply
        self.asked: list[tuple[Any, ControllerRequestContext]] = []

    async def request(self, command: Any, context: ControllerRequestContext) -> Any:
        self.asked.append((command, context))
        if isinstance(self.reply, KafkaError):
            raise self.reply
        return self.reply


class Cluster:
    """A controller as brokers reach it: `send` passes an envelope through its bytes."""

    def __init__(self, reply: Any, *, leading: bool = True, attempts: int = 1) -> None:
        self.attempts = attempts
        self.decider = Decider(reply)
        self.image = ClusterImage()
        self.node = ControllerServices(
            config=BrokerConfig.defaults(),
            machine=cast("Any", None),
            cluster_id="here",
            directory_id=UUID(int=1),
            metadata=cast("Any", SimpleNamespace(image=self.image)),
            controller=self.decider,
            liveness=cast("Any", None),
            quorum=cast("Any", SimpleNamespace(leading=leading)),
            scheduler=cast("Any", None),
            listener=HERE.name,
            addresses={},
            controller_advertised={HERE.name: HERE},
        )

    async def send(self, request: EnvelopeRequest, *, sending: Callable[[], None] = lambda: None) -> EnvelopeResponse:
        for _ in range(self.attempts):
            sending()
        request = decode(EnvelopeRequest, 0, encode(request, 0))
        context = RequestContext(
            api_version=0,
            client_id="broker",
            client_host="b",
            advertised=HERE,
            peer=Peer(),
            node=cast("NodeServices", self.node),
        )
        answer = await registry.HANDLERS[ApiKey.ENVELOPE].handle(request, context)
        return decode(EnvelopeResponse, 0, encode(answer, 0))


def deletion(*names: str) -> Forwarded:
    """A client's request as a broker gets it."""
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=UUID(int=0)) for name in names], timeout_ms=1
    )
    header = RequestHeader(
        request_api_key=ApiKey.DELETE_TOPICS, request_api_version=VERSION, correlation_id=77, client_id="cli"
    )
    return Forwarded(encode(header, 2) + encode(request, VERSION), request)


def context_of(channel: Any) -> RequestContext:
    """The context of a client's request at a broker."""
    node = NodeServices(
        **{
            **dict.fromkeys(
                (
                    *("machine", "volume", "directory_id", "metadata", "controller", "replicas", "sessions", "groups"),
                    *("transactions", "share_states", "share_groups", "markers", "producer_ids", "shares", "creations"),
                    *("scheduler", "metadata_answers"),
                ),
                cast("Any", None),
            ),
            "config": BrokerConfig.defaults(),
            "cluster_id": "here",
            "controller_advertised": {},
            "images": cast("Any", SimpleNamespace(image=ClusterImage())),
            "forwarding": Forwarder(channel),
        }
    )
    return RequestContext(
        api_version=VERSION,
        client_id="cli",
        client_host="10.1.2.3",
        advertised=Endpoint(name="PLAINTEXT", host="b", port=9092),
        peer=Peer(),
        node=node,
        principal=ALICE,
    )


async def forwarded(channel: Any, request: Forwarded) -> DeleteTopicsResponse:
    answer = await forward(ApiKey.DELETE_TOPICS, delete_topics, request, context_of(channel))
    if isinstance(answer, Encoded):
        return decode(DeleteTopicsResponse, VERSION, b"".join(bytes(chunk) for chunk in answer.body))
    assert isinstance(answer, DeleteTopicsResponse)
    return answer


async def test_the_controller_decides_for_the_client() -> None:
    """With the client's principal; the response is that of the client's version."""
    cluster = Cluster((("t", UUID(int=5)), KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")))
    answer = await forwarded(cluster, deletion("t", "u"))
    assert [(row.name, row.topic_id, row.error_code, row.error_message) for row in answer.responses] == [
        ("t", UUID(int=5), ErrorCode.NONE, None),
        ("u", UUID(int=0), ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no"),
    ]
    assert cluster.decider.asked == [(DeleteTopics(topics=("t", "u")), ControllerRequestContext(principal=ALICE))]


@pytest.mark.parametrize("leading", [True, False])
async def test_a_controller_that_does_not_lead_answers_the_envelope(leading: bool) -> None:
    """Also if it stops to lead during the request: the broker sends it to the next."""
    cluster = Cluster(KafkaError(ErrorCode.NOT_CONTROLLER), leading=leading)
    request = await _packed(deletion("t"))
    assert await cluster.send(request) == EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    assert bool(cluster.decider.asked) is leading


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"request_principal": b"\x00\x09"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": None}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"client_host_address": b"abc"}, ErrorCode.INVALID_REQUEST),
        ({"request_data": b""}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": b"\x00\x14\x00\x63rest"}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": b"\x00\x14\x00\x06rest"}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": b"\x00\x00\x00\x09rest"}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_an_envelope_that_cannot_be_opened(change: dict[str, bytes | None], code: ErrorCode) -> None:
    """Each reason has Kafka's code; nothing is decided."""
    cluster = Cluster(())
    request = await _packed(deletion("t"))
    for name, value in change.items():
        setattr(request, name, value)
    assert await cluster.send(request) == EnvelopeResponse(error_code=code)
    assert not cluster.decider.asked


@pytest.mark.parametrize(
    ("node_id", "attempts", "refusal", "code"),
    [
        (3, 2, ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.NONE),
        (3, 1, ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (3, 2, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (4, 2, ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.BROKER_ID_NOT_REGISTERED),
    ],
)
async def test_an_unregistration_that_was_sent_twice_is_done_once(
    node_id: int, attempts: int, refusal: ErrorCode, code: ErrorCode
) -> None:
    """The first controller may have carried it out before it lost its leadership, so that the second knows no such broker.

    An id that this node did not know before was never registered.
    """
    request = UnregisterBrokerRequest(broker_id=node_id)
    header = RequestHeader(
        request_api_key=ApiKey.UNREGISTER_BROKER, request_api_version=0, correlation_id=77, client_id="cli"
    )
    packed = Forwarded(encode(header, 2) + encode(request, 0), request)
    context = replace(context_of(Cluster(KafkaError(refusal), attempts=attempts)), api_version=0)
    cast("Any", context.node.images).image = image_of(b3="a")
    answer = await forward(ApiKey.UNREGISTER_BROKER, unregister_broker, packed, context)
    if isinstance(answer, Encoded):
        answer = decode(UnregisterBrokerResponse, 0, b"".join(bytes(chunk) for chunk in answer.body))
    assert answer.error_code == code


async def test_without_a_controller_the_client_gets_a_response_of_its_api() -> None:
    """The error of the envelope is none of a client's."""

    class Nobody:
        async def send(self, request: Any, **_: Any) -> Any:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no active controller answered")

    (row,) = (await forwarded(Nobody(), deletion("t"))).responses
    assert (row.name, row.error_code, row.error_message) == (
        "t",
        ErrorCode.REQUEST_TIMED_OUT,
        "no active controller answered",
    )


async def test_the_error_of_an_envelope_ends_the_connection_or_is_unknown() -> None:
    """A version that the controller lacks makes the client look at the versions again, as in Kafka."""

    class Refusing:
        def __init__(self, code: ErrorCode) -> None:
            self._code = code

        async def send(self, request: Any, **_: Any) -> EnvelopeResponse:
            return EnvelopeResponse(error_code=self._code)

    with pytest.raises(CloseConnection):
        await forwarded(Refusing(ErrorCode.UNSUPPORTED_VERSION), deletion("t"))
    (row,) = (await forwarded(Refusing(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE), deletion("t"))).responses
    assert row.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def _packed(request: Forwarded) -> EnvelopeRequest:
    """The envelope that a broker sends."""
    sent: list[EnvelopeRequest] = []

    class Noting:
        async def send(self, request: EnvelopeRequest, **_: Any) -> EnvelopeResponse:
            sent.append(request)
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    await forwarded(Noting(), request)
    assert sent[0].client_host_address == bytes((10, 1, 2, 3))
    return sent[0]


def test_all_that_is_forwarded_is_served_by_controllers() -> None:
    """An API that only brokers have would be refused."""
    assert set(registry.HANDLERS) >= envelope.FORWARDED
