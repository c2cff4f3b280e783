"""The check that a node of a cluster has its cluster's id.

Here: the refusal with its remedy.
Not here: formatting a node alone (`log.store`).
"""

from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.files import DataDirectory
from busway_bus.log.checkpoints import META_PROPERTIES, uuid_text
from busway_bus.log.meta_properties import WrongDirectory
from busway_protocol.machine import Machine


def check_formatted(config: BrokerConfig, files: DataDirectory, machine: Machine) -> None:
    """Check for a cluster id. The nodes of a cluster share it, so none can generate it.

    Raises:
        WrongDirectory: it is missing.
    """
    if (len(config.voters) > 1 or config.is_broker_alone) and files.read_bytes(META_PROPERTIES) is None:
        cluster_id = uuid_text(machine.uuid4())
        raise WrongDirectory(
            f"{META_PROPERTIES} is missing from the data directory. The nodes of a cluster share its id: format each node's directory with "
            f"busway cluster format --config server.properties --cluster-id {cluster_id}"
        )
