"""Commands on brokers.

Here: registration.
Not here: detecting failed brokers; a single node is its own controller.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from busway_bus.controller.controller import Surroundings
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.listener_configs import Endpoint
from busway_bus.metadata.image import Address, ClusterImage
from busway_bus.metadata.records import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord

PLAINTEXT = 0
"""The number of Kafka's `SecurityProtocol`; every listener's here."""


def addresses(registration: "RegisterBroker") -> Mapping[str, Address]:
    return {
        end.name: Address(host=end.host, port=end.port, security_protocol=PLAINTEXT) for end in registration.endpoints
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBroker:
    """Register a started broker; the reply is its epoch.

    Attributes:
        endpoints: client addresses, by listener.
        features: name → lowest and highest supported level.
    """

    node_id: int
    incarnation: UUID
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    directories: tuple[UUID, ...]
    features: tuple[tuple[str, int, int], ...]

    def decide(self, image: ClusterImage, surroundings: Surroundings) -> Decision[int]:
        epoch = surroundings.next_offset
        record = RegisterBrokerRecord(
            broker_id=self.node_id,
            incarnation_id=self.incarnation,
            broker_epoch=epoch,
            end_points=[
                BrokerEndpoint(name=end.name, host=end.host, port=end.port, security_protocol=PLAINTEXT)
                for end in self.endpoints
            ],
            features=[
                BrokerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, lowest, highest in self.features
            ],
            rack=self.rack,
            fenced=False,
            log_dirs=list(self.directories),
        )
        return Decision(records=(record,), reply=epoch)
