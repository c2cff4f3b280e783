"""How a broker takes part in its cluster's metadata.

Here: `Member`, the interface that `node` starts and stops.
Not here: its implementations: a node alone (`alone`), one of several (`cluster_member`).
"""

from collections.abc import Collection, Coroutine, Sequence
from typing import Any, Protocol
from uuid import UUID

from busway_bus.controller.controller import Controller
from busway_bus.handlers.common.context import Forwarding
from busway_bus.kernel.node_channels import BrokerChannels, ControllerChannel
from busway_bus.quorum.metadata_images import Published
from busway_bus.quorum.metadata_log import MetadataLog
from busway_bus.replication.manager import ReplicaManager


class Member(Protocol):
    """A broker's metadata log, and its place in the cluster."""

    @property
    def metadata(self) -> MetadataLog:
        """This node's log."""

    @property
    def images(self) -> Published:
        """The images for the parts of the broker."""

    @property
    def controller(self) -> Controller:
        """Decides on the commands of the broker's parts."""

    @property
    def forwarding(self) -> Forwarding | None:
        """Passes clients' requests on; None on a node alone."""

    @property
    def to_controller(self) -> ControllerChannel | None:
        """Sends a broker's own requests; None on a node alone."""

    @property
    def to_brokers(self) -> BrokerChannels | None:
        """Sends requests to other brokers; None on a node alone."""

    @property
    def removed(self) -> Collection[UUID]:
        """Ids of topics that were deleted before the start, as far as known."""

    async def join(self) -> None:
        """Have the metadata ready, before any partition is opened.

        Raises:
            OSError: the disk, or this broker cannot be registered.
        """

    async def opened(self, replicas: ReplicaManager) -> None:
        """Follow the opening of the partitions, before coordinators and listeners start.

        Raises:
            OSError: what must be on disk by now cannot be written.
        """

    def following(self) -> None:
        """Let the parts follow the images from now on: all have subscribed."""

    async def serving(self) -> None:
        """Follow the opening of the listeners."""

    def chores(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Return loops that run until the node stops."""

    async def retry(self) -> None:
        """Retry what failed; called periodically."""

    async def leave(self) -> None:
        """Move leaderships away, and resign from the quorum, before the listeners close."""

    def disconnect(self) -> None:
        """Fail requests to other nodes, pending and later ones: the parts can be closed then."""

    async def close(self, *, drain: bool = True) -> None:
        """End what runs.

        Args:
            drain: wait for the outcome of undecided commands.
        """
