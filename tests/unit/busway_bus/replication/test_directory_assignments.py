"""A broker tells the controller where its replicas are, again until the controller has noted it."""

import asyncio
from typing import Any
from uuid import UUID

from busway_bus.kernel.limits import ASSIGNMENTS_AT_ONCE_MAX
from busway_bus.replication.directory_assignments import Assignment, DirectoryAssignments
from busway_bus.testing.world import World
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.partitions import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse

HERE, LOST, T, U = (UUID(int=number) for number in (101, 2, 7, 8))


class Controller:
    """Notes assignments, after the failures that are left."""

    def __init__(self, misplaced: list[Assignment], failures: list[Any]) -> None:
        self.misplaced, self._failures = misplaced, failures
        self.requests: list[list[Assignment]] = []

    async def send(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        assert (request.broker_id, request.broker_epoch) == (1, 55)
        rows = [
            (directory.id, topic.topic_id, partition.partition_index)
            for directory in request.directories
            for topic in directory.topics
            for partition in topic.partitions
        ]
        self.requests.append(rows)
        if self._failures:
            failure = self._failures.pop(0)
            if isinstance(failure, KafkaError):
                raise failure
            return AssignReplicasToDirsResponse(error_code=failure, directories=[])
        for row in rows:
            self.misplaced.remove(row)
        return AssignReplicasToDirsResponse(error_code=ErrorCode.NONE, directories=[])


def run(misplaced: list[Assignment], *failures: Any, epochs: tuple[int, ...] = (55,)) -> Controller:
    """A minute of a broker with these replicas; its epoch becomes known later."""
    known = list(epochs)

    async def workload(world: World) -> Controller:
        controller = Controller(misplaced, list(failures))
        assignments = DirectoryAssignments(
            1, lambda: known.pop(0) if len(known) > 1 else known[0], controller, lambda: list(controller.misplaced)
        )
        task = asyncio.ensure_future(assignments.run())
        assignments.look()
        await asyncio.sleep(60)
        assignments.look()
        await asyncio.sleep(60)
        task.cancel()
        await asyncio.wait([task])
        return controller

    result: Controller = World().run(workload)
    return result


def test_replicas_are_assigned_by_directory_and_topic() -> None:
    """In one request; nothing is sent without any."""
    rows = [(HERE, T, 0), (HERE, T, 3), (HERE, U, 0), (LOST, T, 1)]
    controller = run(list(rows))
    assert controller.requests == [rows]
    assert controller.misplaced == []
    assert run([]).requests == []


def test_a_failed_request_is_repeated() -> None:
    """Whether there is no controller, or it has not seen this broker's registration."""
    unreachable = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    controller = run([(HERE, T, 0)], unreachable, ErrorCode.STALE_BROKER_EPOCH)
    assert controller.requests == [[(HERE, T, 0)]] * 3
    assert run([(HERE, T, 0)], epochs=(-1, -1, 55)).misplaced == []


def test_many_replicas_are_several_requests() -> None:
    """Each within the controller's bound."""
    controller = run([(HERE, T, index) for index in range(ASSIGNMENTS_AT_ONCE_MAX + 10)])
    assert [len(rows) for rows in controller.requests] == [ASSIGNMENTS_AT_ONCE_MAX, 10]
