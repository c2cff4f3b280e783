"""The worker: its connectors and the use cases of the REST API.

Here: use cases, one at a time; leadership.
Not here: a connector's lifecycle (`runner`), HTTP (`rest`).

Workers of one `group.id` are a consumer group on the configs topic's single partition: its owner works, the others
stand by. A dead worker is replaced within `session.timeout.ms`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

from busway import Admin, BrokerError, Consumer, Producer, RebalanceListener, SecurityOptions, TopicPartition
from busway.security.properties import options_of
from busway_connect.config import BadSetting, WorkerConfig
from busway_connect.connector import Config, ConfigInvalid, Connector, Offset
from busway_connect.overrides import (
    inherited,
    override_problems,
    producer_security,
    security_problems,
    with_defaults,
)
from busway_connect.plugins import NoSuchPlugin, Plugins, kind_of
from busway_connect.providers import Providers
from busway_connect.redaction import shown
from busway_connect.runtime.alter_offsets import (
    Changes,
    alter_group,
    check_offsets,
    store_in_transaction,
    store_offsets,
)
from busway_connect.runtime.bounds import require_few_offsets, require_room
from busway_connect.runtime.leader import NOT_ACTIVE, Leader, Writer, confirm_turn, fence, id_of_task
from busway_connect.runtime.refusals import Refused
from busway_connect.runtime.runner import Runner, Surroundings
from busway_connect.runtime.sink_task import group_of
from busway_connect.runtime.storage import (
    CompactedTopic,
    ConfigStore,
    OffsetStore,
    StatusStore,
    ensure_compacted,
)
from busway_connect.runtime.task_context import Stores
from busway_connect.validation import BadConfig, check, check_worker, verdict

logger = logging.getLogger("busway.connect")
_POLL_MS: Final = 500


class Worker(RebalanceListener):
    def __init__(self, config: WorkerConfig, worker_id: str) -> None:
        self.config = config
        self.worker_id = worker_id
        self.plugins = Plugins(config.plugin_modules)
        check_worker(self.plugins, config.converters)
        self.providers = Providers(config.providers)
        self._overrides, self._security = self._of_clients()
        self.cluster_id = ""
        self.active = asyncio.Event()
        """Set while this worker leads and has read the stored state."""
        self.placed = asyncio.Event()
        """Set once it works or stands by."""
        self.runners: dict[str, Runner] = {}
        self._turn = asyncio.Event()
        self._over = asyncio.Event()
        self._standing = asyncio.Event()
        self._standing.set()
        self._one_at_a_time = asyncio.Lock()
        self._one_check = asyncio.Lock()
        self._generation = 0
        self._stores: Stores | None = None
        self._admin: Admin | None = None
        self._group: asyncio.TaskGroup | None = None
        self._consumer: Consumer | None = None

    def _of_clients(self) -> tuple[Config, SecurityOptions | None]:
        """Return the worker's settings of connectors' clients, with values for references, and its own security."""
        try:
            security = self.providers.resolved(self.config.security)
            overrides = inherited(self.providers.resolved(self.config.clients), security)
            own = options_of(security)
        except ValueError as wrong:
            raise BadSetting(str(wrong)) from None
        for name, text in (override_problems(overrides, source=False) | security_problems(overrides)).items():
            raise BadSetting(f"{name.replace('override.', '', 1)}: {text}")
        return overrides, own

    @property
    def transactions(self) -> bool:
        return self.config.exactly_once_source_support == "enabled"

    # Leadership

    async def run(self) -> None:
        """Run until cancelled; then stop every task.

        Raises:
            StorageUnfit: an unusable storage topic.
            BuswayError: the brokers are unreachable at start, or the group refuses this worker.
        """
        try:
            await self._take_part()
        except BaseExceptionGroup as several:
            first: BaseException = several
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            raise first from None

    async def _take_part(self) -> None:
        config = self.config
        async with Admin(config.bootstrap_servers, client_id="connect-admin", security=self._security) as admin:
            self._admin = admin
            self.cluster_id = (await admin.describe_cluster()).cluster_id
            for topic, count in (
                (config.config_storage_topic, 1),
                (config.offset_storage_topic, config.offset_storage_partitions),
                (config.status_storage_topic, config.status_storage_partitions),
            ):
                single = topic == config.config_storage_topic
                await ensure_compacted(admin, topic, count, config.replication_factor, single=single)
            consumer = Consumer(
                config.config_storage_topic,
                bootstrap_servers=config.bootstrap_servers,
                client_id=f"connect-{self.worker_id}",
                group_id=config.group_id,
                enable_auto_commit=False,
                partition_assignment_strategy=(
                    "cooperative-sticky",
                ),  # a joining worker stands by instead of taking over
                session_timeout_ms=config.session_timeout_ms,
                heartbeat_interval_ms=min(config.heartbeat_interval_ms, config.session_timeout_ms // 3),
                listener=self,
                security=self._security,
            )
            async with consumer, asyncio.TaskGroup() as tasks:
                self._consumer = consumer
                holding = tasks.create_task(self._hold(consumer))
                try:
                    while True:
                        await self._turn.wait()
                        await self._work()
                finally:
                    holding.cancel()

    async def _hold(self, consumer: Consumer) -> None:
        while True:
            consumer.pause(*consumer.assignment())
            await consumer.getmany(timeout_ms=_POLL_MS)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Lead; or with no partition, stand by."""
        if tuple(assigned):
            self._over.clear()
            self._turn.set()
        elif not self._turn.is_set():
            logger.info("worker %s stands by", self.worker_id)
            self.placed.set()

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Stop everything before another worker starts."""
        await self._give_up()

    async def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        """Stop: after too long a silence, this worker leads no more."""
        logger.warning("worker %s lost its turn in group %s", self.worker_id, self.config.group_id)
        await self._give_up()

    async def _give_up(self) -> None:
        self._turn.clear()
        self._over.set()
        await self._standing.wait()

    async def _confirm_turn(self) -> None:
        assert self._consumer is not None
        await confirm_turn(self._consumer, self.config.config_storage_topic, self._over)

    async def _work(self) -> None:
        config = self.config
        self._generation += 1
        self._standing.clear()
        try:
            async with AsyncExitStack() as stack:
                client_id = f"connect-storage-{self.worker_id}"
                writer: Writer
                writer = producer = await stack.enter_async_context(
                    Producer(config.bootstrap_servers, client_id=client_id, linger_ms=0, security=self._security)
                )
                if config.exactly_once_source_support != "disabled":
                    leader = Leader(
                        config.bootstrap_servers, config.group_id, client_id, self._confirm_turn, self._security
                    )
                    writer = await stack.enter_async_context(leader)
                self._stores = await self._load(writer, producer)
                async with asyncio.TaskGroup() as group:
                    self._group = group
                    for name, stored in self._stores.configs.connectors().items():
                        self._begin(name, stored.config, stored.target_state)
                    logger.info("worker %s works on %d connectors", self.worker_id, len(self.runners))
                    self.active.set()
                    self.placed.set()
                    try:
                        await self._over.wait()
                    finally:
                        self.active.clear()
                        for runner in self.runners.values():
                            runner.end()
        finally:
            self.runners = {}
            self._stores = self._group = None
            self._standing.set()

    async def _load(self, writer: Writer, producer: Producer) -> Stores:
        config = self.config
        configs = CompactedTopic(writer, config.config_storage_topic, self._security)
        await configs.catch_up(config.bootstrap_servers)
        if self.transactions:
            assert self._admin is not None
            await fence(self._admin, [id_of_task(config.group_id, name) for name in ConfigStore(configs).connectors()])
        offsets = CompactedTopic(producer, config.offset_storage_topic, self._security)
        statuses = CompactedTopic(producer, config.status_storage_topic, self._security)
        for topic in (offsets, statuses):
            await topic.catch_up(config.bootstrap_servers)
        return Stores(
            configs=ConfigStore(configs),
            offsets=OffsetStore(offsets),
            statuses=StatusStore(statuses, self.worker_id, self._generation),
        )

    def _transactional_id(self, name: str) -> str | None:
        return id_of_task(self.config.group_id, name) if self.transactions else None

    def _begin(self, name: str, config: Config, target: str) -> Runner:
        if self._group is None:
            raise Refused(409, NOT_ACTIVE)
        runner = Runner(
            name,
            config,
            target,
            Surroundings(
                bootstrap=self.config.bootstrap_servers,
                plugins=self.plugins,
                providers=self.providers,
                stores=self._need(),
                converters=self.config.converters,
                overrides=self._overrides,
                flush_interval_s=self.config.offset_flush_interval_ms / 1000,
                shutdown_timeout_s=self.config.task_shutdown_timeout_ms / 1000,
                session_timeout_ms=self.config.session_timeout_ms,
                transactional_id=self._transactional_id,
                confirm_turn=self._confirm_turn,
            ),
        )
        self.runners[name] = runner
        self._group.create_task(runner.run(), name=f"connector-{name}")
        return runner

    def _need(self) -> Stores:
        if self._stores is None:
            raise Refused(409, NOT_ACTIVE)
        return self._stores

    # Use cases

    def names(self) -> list[str]:
        self._need()
        return sorted(self.runners)

    def find(self, name: str, text: str = "Connector {} not found") -> Runner:
        """Return a connector; raises `Refused` 404 none, 409 this worker does not lead."""
        self._need()
        runner = self.runners.get(name)
        if runner is None:
            raise Refused(404, text.format(name))
        return runner

    def kind(self, runner: Runner) -> type[Connector] | None:
        try:
            return self.plugins.connector(runner.config["connector.class"])
        except (NoSuchPlugin, KeyError):
            return None

    async def put(self, name: str, config: Mapping[str, str], *, create: bool, target: str = "STARTED") -> bool:
        """Create a connector or change its settings; return whether it is new. Raises `Refused` 400 invalid settings,
        409 it exists, with `create`.
        """
        self._need()
        await self._check(config)
        async with self._one_at_a_time:
            runner = self.runners.get(name)
            if runner is not None and create:
                raise Refused(409, f"Connector {name} already exists")
            require_room(name, config, [other.size for other_name, other in self.runners.items() if other_name != name])
            await self._change(name, config, target)
        return runner is None

    async def _check(self, config: Mapping[str, str]) -> None:
        """Validate in a thread, as the work grows with the request; one at a time."""
        kind = self.class_of(config)
        try:
            async with self._one_check:
                await asyncio.to_thread(
                    lambda: check(
                        self.plugins, kind, self.providers.resolved(config), config, transactions=self.transactions
                    )
                )
        except (BadConfig, ConfigInvalid) as problem:
            raise Refused(400, str(problem)) from None

    async def verdict(self, config: Mapping[str, str]) -> dict[str, Any]:
        """Return the errors of settings for the validate call; raises `Refused` 400 no connector named, or a reference
        without value.
        """
        kind = self.class_of(config)
        try:
            async with self._one_check:
                return await asyncio.to_thread(
                    lambda: verdict(
                        self.plugins,
                        config["connector.class"],
                        kind,
                        config,
                        self.providers.resolved(config),
                        transactions=self.transactions,
                    )
                )
        except ConfigInvalid as problem:
            raise Refused(400, str(problem)) from None

    async def _change(self, name: str, config: Mapping[str, str], target: str = "STARTED") -> None:
        stores, runner = self._need(), self.runners.get(name)
        if runner is None and target != "STARTED":
            await stores.configs.put_target_state(name, target)
        await stores.configs.put_config(name, config)
        if runner is None:
            self._begin(name, config, target)
        else:
            runner.reconfigure(config)

    def class_of(self, config: Mapping[str, str]) -> type[Connector]:
        """Return the class named by a config; raises `Refused` 400."""
        name = config.get("connector.class")
        if not name:
            listed = ", ".join(f"{setting}={shown(setting, text)}" for setting, text in config.items())
            raise Refused(400, f"Connector config {{{listed}}} contains no connector type")
        try:
            return self.plugins.connector(name)
        except NoSuchPlugin as problem:
            raise Refused(400, str(problem)) from None

    async def patch(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Change some settings; None removes one (KIP-477)."""
        async with self._one_at_a_time:
            merged = {**self.find(name).config, **changes}
            config = {setting: text for setting, text in merged.items() if text is not None}
            require_room(name, config, [other.size for other_name, other in self.runners.items() if other_name != name])
            await self._check(config)
            await self._change(name, config)

    async def retarget(self, name: str, target: str) -> None:
        async with self._one_at_a_time:
            runner = self.find(name, "Unknown connector {}")
            await self._need().configs.put_target_state(name, target)
            runner.retarget(target)
            if target != "STOPPED":
                await runner.keep_states()

    async def delete(self, name: str) -> None:
        async with self._one_at_a_time:
            runner, stores = self.find(name), self._need()
            await stores.configs.remove(name)  # before stopping it: if this fails, the connector keeps running
            runner.end()
            await runner.idle()
            del self.runners[name]
            await stores.statuses.remove(name)

    async def restart_task(self, name: str, task: int) -> None:
        runner = self.find(name, "Unknown connector: {}")
        if task != 0 or runner.task is None:
            raise Refused(404, f"Unknown task: {name}-{task}")
        runner.restart()

    # Offsets (KIP-875)

    async def offsets(self, name: str) -> list[tuple[Mapping[str, Any], Offset]]:
        runner = self.find(name)
        if self._is_source(runner):
            return self._need().offsets.of(name)
        assert self._admin is not None
        committed = await self._admin.list_group_offsets(group_of(name))
        return [
            ({"kafka_partition": partition.partition, "kafka_topic": partition.topic}, {"kafka_offset": at.offset})
            for partition, at in sorted(committed.items())
        ]

    def _is_source(self, runner: Runner) -> bool:
        kind = self.kind(runner)
        return kind is None or kind_of(kind) == "source"

    async def _stopped(self, name: str) -> Runner:
        runner = self.find(name)
        if runner.target != "STOPPED":
            raise Refused(
                400,
                "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the "
                f"specified connector by issuing a 'PUT' request to the '/connectors/{name}/stop' endpoint",
            )
        await runner.idle()
        return runner

    async def alter_offsets(self, name: str, changes: Changes) -> None:
        require_few_offsets(len(changes))
        async with self._one_at_a_time:
            runner = await self._stopped(name)
            if not self._is_source(runner):
                assert self._admin is not None
                await alter_group(self._admin, name, changes)
                return
            await asyncio.to_thread(check_offsets, self.kind(runner), self.providers, runner, changes)
            require_few_offsets(len(changes), len(self._need().offsets))
            await self._store_offsets(name, changes)

    async def _store_offsets(self, name: str, changes: Changes | None) -> None:
        stores, transactional_id = self._need(), self._transactional_id(name)
        await stores.configs.raise_epoch(name)
        if transactional_id is None:
            await store_offsets(stores.offsets, name, changes)
        else:
            await self._confirm_turn()
            config = with_defaults(self._overrides, self.providers.resolved(self.runners[name].config))
            bootstrap, security = self.config.bootstrap_servers, producer_security(config)
            producer = Producer(bootstrap, transactional_id=transactional_id, security=security)
            await store_in_transaction(stores.offsets, bootstrap, producer, name, changes)

    async def reset_offsets(self, name: str) -> None:
        """Remove all offsets of a stopped connector, which then starts from the beginning."""
        async with self._one_at_a_time:
            runner = await self._stopped(name)
            if self._is_source(runner):
                await self._store_offsets(name, None)
                return
            assert self._admin is not None
            with contextlib.suppress(BrokerError):  # without offsets the group does not exist
                await self._admin.delete_groups([group_of(name)])

    def topics(self, name: str) -> list[str]:
        """Return the topics it has used; None for a missing connector, like Kafka Connect."""
        return self._need().statuses.topics(name)

    async def reset_topics(self, name: str) -> None:
        await self._need().statuses.reset_topics(name)
