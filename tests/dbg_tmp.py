import sys

import tests.unit.busway_bus.replication.replica_cluster as rc
from tests.simulation.replicas import scenario as sc

about, seed = sys.argv[1], int(sys.argv[2])
keep = []
orig = rc.ReplicaCluster.__init__


def init(self, *a, **k):
    orig(self, *a, **k)
    keep.append(self)


rc.ReplicaCluster.__init__ = init
try:
    sc.run(seed, about)
except Exception as p:
    print(type(p), p)
c = keep[0]
print(c.world.now, c.cut, c.controller.delay if hasattr(c.controller, "delay") else "")
for i in range(2):
    print(c.partition(i))
    for n, h in c.hosts.items():
        p = h.replicas.local.get(("t", i))
        print(
            n,
            h.alive,
            h.epoch,
            c.controller.image.brokers[n].epoch,
            c.controller.image.brokers[n].fenced,
            p
            and (
                p.state.role,
                p.state.leader_epoch,
                p.state.partition_epoch,
                p.log.start_offset,
                p.log.end_offset,
                p.log.flushed_offset,
                p.high_watermark,
                p.last_stable_offset,
                p.state.first_open_offset,
                p.state.first_unstable_offset,
                list(p.state.ending),
                p.state.isr,
                p.state.in_flight,
            ),
            p and p.log.epochs.entries[-4:],
            h.replicas.disk_problem,
        )
from busway_bus.metadata.delta import Delta

d = Delta(c.controller.image)
for i, r in enumerate(c.controller.records):
    print(i, str(r)[:330])
