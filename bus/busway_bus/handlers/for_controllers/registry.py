"""THE list of a controller's handlers, from which its ApiVersions is computed.

Here: the handler modules.
Not here: anything about a single API, a broker's handlers (`handlers.registry`).
"""

from collections.abc import Mapping
from types import ModuleType
from typing import Final

from busway_bus.handlers import unregister_broker
from busway_bus.handlers.for_controllers import (
    api_versions,
    begin_quorum_epoch,
    broker_heartbeat,
    broker_registration,
    describe_cluster,
    describe_quorum,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    vote,
)
from busway_bus.handlers.for_controllers.api_versions import advertise
from busway_bus.handlers.registry import Handler, handler_of

MODULES: Final[tuple[ModuleType, ...]] = (
    fetch,
    api_versions,
    vote,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch_snapshot,
    describe_quorum,
    describe_cluster,
    broker_registration,
    broker_heartbeat,
    unregister_broker,
)
HANDLERS: Final[Mapping[int, Handler]] = {int(module.API): handler_of(module) for module in MODULES}
advertise([(handler.key, handler.min_version, handler.max_version) for handler in HANDLERS.values()])
