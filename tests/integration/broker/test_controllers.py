"""Three controllers on real sockets and disks: one that has lost its disk catches up by a snapshot."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.patience import patient_ms
from tests.support.programs import held_ports
from tests.support.waiting import until

from busway_bus.controller_node import ControllerNode
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.decision import Decision
from busway_bus.metadata.image import ClusterImage
from busway_bus.metadata.records import ConfigRecord
from busway_protocol.errors import KafkaError

LOG = "__cluster_metadata-0"
BROKERS = (4, "")


def config(folder: Path, node_id: int, ports: Sequence[int]) -> BrokerConfig:
    """A controller whose snapshots are many and whose downloads have several parts."""
    return BrokerConfig.from_properties(
        {
            "process.roles": "controller",
            "node.id": str(node_id),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://127.0.0.1:{ports[node_id - 1]}",
            "controller.quorum.voters": ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(ports, 1)),
            "controller.quorum.fetch.timeout.ms": str(patient_ms(2_000)),
            "controller.quorum.request.timeout.ms": str(patient_ms(2_000)),
            "controller.quorum.fetch.snapshot.max.bytes": "200",
            "metadata.log.max.record.bytes.between.snapshots": "100",
            "metadata.max.retention.bytes": "0",
            "log.dirs": str(folder / str(node_id)),
        }
    )


def format_disk(folder: Path, node_id: int) -> None:
    """What kafka-storage format writes."""
    (folder / str(node_id)).mkdir()
    text = f"version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id={node_id}\n"
    (folder / str(node_id) / "meta.properties").write_text(text)


async def command(nodes: Sequence[ControllerNode], name: str) -> None:
    """Have a setting written by the leader."""

    def decide(_: ClusterImage) -> Decision[None]:
        record = ConfigRecord(resource_type=BROKERS[0], resource_name=BROKERS[1], name=name, value="v" * 50)
        return Decision(records=(record,), reply=None)

    while True:
        await until(lambda: any(node.services.quorum.leading for node in nodes))
        leader = next(node for node in nodes if node.services.quorum.leading)
        try:
            await leader.services.metadata.run(decide)
        except KafkaError:
            continue  # another leads by now
        return


def settings(node: ControllerNode) -> set[str]:
    """What a controller knows."""
    return set(node.services.image.configs.get(BROKERS, {}))


@pytest.mark.slow
async def test_a_wiped_controller_catches_up_by_a_snapshot(tmp_path: Path) -> None:
    """The others have deleted the beginning of their logs; its own begins at the snapshot, also after another start."""
    ports = held_ports(3)
    nodes = []
    try:
        for node_id in (1, 2, 3):
            format_disk(tmp_path, node_id)
            nodes.append(ControllerNode(config(tmp_path, node_id, ports)))
            await nodes[-1].start()
        await command(nodes, "k0")
        await until(lambda: all("k0" in settings(node) for node in nodes))
        await nodes[2].stop(clean=False)
        others = nodes[:2]
        names = {f"k{number}" for number in range(40)}
        for name in sorted(names):
            await command(others, name)
        await until(lambda: all(node.services.metadata.log.start_offset > 1 for node in others))
        shutil.rmtree(tmp_path / "3")
        format_disk(tmp_path, 3)
        for _ in range(2):
            nodes[2] = ControllerNode(config(tmp_path, 3, ports))
            await nodes[2].start()
            await until(lambda: names <= settings(nodes[2]))
            assert nodes[2].services.metadata.log.start_offset > 1
            await nodes[2].stop()
            assert not list((tmp_path / "3" / LOG).glob("*.part"))
            assert not (tmp_path / "3" / LOG / "checkpoint.install").exists()
        nodes[2] = ControllerNode(config(tmp_path, 3, ports))
        await nodes[2].start()
        await command(nodes, "last")
        await until(lambda: all("last" in settings(node) for node in nodes))
    finally:
        for node in nodes:
            await node.stop(clean=False)
