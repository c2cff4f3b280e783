"""Metrics and health of a broker over HTTP: what clients did is counted, and a failed disk makes it unready."""

import asyncio
import functools
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.patience import patient
from tests.support.raw_client import RawClient
from tests.support.waiting import until

from busway import Consumer, Producer
from busway.extras import MissingExtra
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.config_def import ConfigError
from busway_bus.monitoring import figures
from busway_bus.node import Node
from busway_bus.server.listener import CannotListen
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest

SETTINGS = {"metrics.listener": "127.0.0.1:0"}
TOPICS = "kafka_server_brokertopicmetrics_"
Page = dict[tuple[Any, ...], float]


@pytest.fixture
async def watched() -> AsyncIterator[LocalCluster]:
    """A node with a metrics listener."""
    async with LocalCluster(properties=SETTINGS) as running:
        yield running


async def get(cluster: LocalCluster, path: str) -> httpx2.Response:
    assert cluster.node is not None
    async with httpx2.AsyncClient(base_url=cluster.node.metrics_url or "", timeout=patient(30)) as http:
        return await http.get(path)


async def answers(cluster: LocalCluster, path: str, content: str) -> bool:
    response = await get(cluster, path)
    return response.status_code == 200 and content in response.text


async def scrape(cluster: LocalCluster) -> Page:
    """Return the samples of one scrape by name and labels."""
    response = await get(cluster, "/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


async def create(cluster: LocalCluster, name: str, partitions: int = 1) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    async with RawClient(cluster.bootstrap_servers) as client:
        await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)


async def test_records_and_requests_are_counted(watched: LocalCluster) -> None:
    """Those of a producer and of a consumer of a group, each under its topic and in the total."""
    await create(watched, "orders", 2)
    async with Producer(watched.bootstrap_servers) as producer:
        await asyncio.gather(*[producer.send("orders", b"x", partition=1) for _ in range(7)])
    where: dict[str, Any] = {"bootstrap_servers": watched.bootstrap_servers, "auto_offset_reset": "earliest"}
    async with Consumer("orders", group_id="g", **where) as consumer:
        for _ in range(7):
            await consumer.getone()
        page = await scrape(watched)
    topic, partition = ("topic", "orders"), ("partition", "1")
    assert page[f"{TOPICS}messagesin_total", topic] == 7
    assert page[f"{TOPICS}messagesin_total",] >= 7  # and the group's own records
    assert page[f"{TOPICS}bytesin_total", topic] == page["kafka_log_log_size", partition, topic] > 0
    assert page[f"{TOPICS}bytesout_total", topic] == page[f"{TOPICS}bytesin_total", topic]
    assert page[f"{TOPICS}totalproducerequests_total", topic] >= 1
    assert page[f"{TOPICS}totalfetchrequests_total", topic] >= 1
    assert page[f"{TOPICS}failedproducerequests_total", topic] == page[f"{TOPICS}failedfetchrequests_total", topic] == 0
    assert page["kafka_log_log_logendoffset", partition, topic] == 7
    assert page["kafka_log_log_numlogsegments", partition, topic] == 1
    assert page["kafka_server_kafkaserver_brokerstate",] == 3
    assert page["kafka_server_replicamanager_partitioncount",] == page["kafka_server_replicamanager_leadercount",] == 3
    assert page["kafka_controller_kafkacontroller_globaltopiccount",] == 2
    assert page["kafka_server_socket_server_metrics_connection_count", ("listener", "PLAINTEXT")] >= 1
    assert sum(value for (name, *_), value in page.items() if name == "busway_groups") == 1
    produced = {key: value for key, value in page.items() if ("request", "Produce") in key}
    counts = [value for (name, *_), value in produced.items() if name.endswith(("requests_total", "totaltimems_count"))]
    assert len(counts) == 2
    assert counts[0] == counts[1] == page[f"{TOPICS}totalproducerequests_total", topic]
    assert page["kafka_network_requestmetrics_totaltimems_sum", ("request", "Produce")] > 0


async def test_totals_outlive_their_topic(watched: LocalCluster) -> None:
    """A counter that decreased would be a restart to Prometheus."""
    await create(watched, "gone")
    async with Producer(watched.bootstrap_servers) as producer:
        await producer.send("gone", b"x")
    async with RawClient(watched.bootstrap_servers) as client:
        await client.ask(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=10_000), 5)
    page = await scrape(watched)
    assert page[f"{TOPICS}messagesin_total",] == 1
    assert (f"{TOPICS}messagesin_total", ("topic", "gone")) not in page


async def test_many_topics_have_only_totals(watched: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a page stays small; likewise partitions."""
    monkeypatch.setattr(figures, "METRICS_TOPICS_MAX", 1)
    monkeypatch.setattr(figures, "METRICS_PARTITIONS_MAX", 2)
    await create(watched, "a")
    await create(watched, "b", 2)
    page = await scrape(watched)
    assert [key for key in page if key[0] == f"{TOPICS}messagesin_total"] == [(f"{TOPICS}messagesin_total",)]
    assert not [key for key in page if key[0] == "kafka_log_log_size"]
    assert page["kafka_server_replicamanager_partitioncount",] == 3


async def test_health_tells_a_failed_disk(watched: LocalCluster) -> None:
    """It stays alive and is not ready."""
    ready = await get(watched, "/health/ready")
    assert (ready.status_code, ready.json()) == (200, {"ready": True, "reasons": []})
    assert watched.node is not None
    watched.node._flusher._failed = OSError("no medium")
    ready = await get(watched, "/health/ready")
    assert (ready.status_code, ready.json()) == (503, {"ready": False, "reasons": ["the disk failed: no medium"]})
    assert (await get(watched, "/health/live")).status_code == 200


async def test_simultaneous_scrapes_share_a_page(watched: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is built for all that ask meanwhile."""
    begun, go, pages = asyncio.Event(), asyncio.Event(), 0
    read = figures._read_cluster

    async def held(node: Any) -> tuple[int, ...]:
        nonlocal pages
        pages += 1
        begun.set()
        await go.wait()
        return await read(node)

    monkeypatch.setattr(figures, "_read_cluster", held)
    scrapes = [asyncio.ensure_future(get(watched, "/metrics")) for _ in range(5)]
    await begun.wait()
    assert (await get(watched, "/health/live")).status_code == 200
    go.set()
    assert {response.status_code for response in await asyncio.gather(*scrapes)} == {200}
    assert pages <= 2  # a connection may be slower than a page


async def test_nothing_is_measured_without_the_listener(cluster: LocalCluster) -> None:
    """Requests are counted, their durations are not."""
    await create(cluster, "a")
    assert cluster.node is not None
    requests = cluster.node.services.requests
    assert cluster.node.metrics_url is None
    assert requests.clock is None
    assert requests.counts
    assert not requests.durations


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"metrics.listener": "9404"}, "'9404' is not host:port"),
        ({"metrics.listener": "127.0.0.1:x"}, "is not host:port"),
        ({"metrics.listener": "0.0.0.0:9404"}, "without authentication"),
    ],
)
def test_an_address_is_checked_before_the_start(settings: dict[str, str], text: str) -> None:
    """By the rules for the broker's own listeners."""
    with pytest.raises(ConfigError, match=text):
        BrokerConfig.from_properties(settings)


async def test_a_taken_port_and_a_missing_extra_refuse_the_start(
    watched: LocalCluster, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with its remedy."""
    assert watched.node is not None
    assert watched.node.metrics_url is not None
    taken = {"metrics.listener": watched.node.metrics_url.removeprefix("http://")}
    common = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
    with pytest.raises(CannotListen, match=r"metrics\.listener cannot listen on .* choose another"):
        await Node(BrokerConfig.from_properties({**common, **taken})).start()
    monkeypatch.setattr("busway.extras._missing", lambda _: ["prometheus_client"])
    with pytest.raises(
        MissingExtra, match=r"metrics\.listener needs the metrics extra: pip install 'busway\[metrics\]'"
    ):
        await Node(BrokerConfig.from_properties({**common, **SETTINGS})).start()


async def test_an_unknown_path_is_not_found(watched: LocalCluster) -> None:
    """Nor may metrics be written."""
    assert (await get(watched, "/")).status_code == 404
    assert json.loads((await get(watched, "/health/live")).text) == {"live": True}


async def test_idle_connections_and_slow_scrapers_stall_nobody(watched: LocalCluster) -> None:
    """Of very many the listener keeps few, and the broker's clients and other scrapers are answered meanwhile."""
    assert watched.node is not None
    assert watched.node.metrics_url is not None
    host, _, port = watched.node.metrics_url.removeprefix("http://").rpartition(":")
    peers = []
    try:
        for number in range(200):
            peers.append(await asyncio.open_connection(host, int(port)))
            if number % 2:
                peers[-1][1].write(b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n" * 20)  # and never reads
        await create(watched, "a")
        # While all connections that it keeps have a request in progress, a further one is refused with 503.
        for path, content in (
            ("/health/ready", '"ready":true'),
            ("/metrics", 'kafka_log_log_size{partition="0",topic="a"}'),
        ):
            await until(functools.partial(answers, watched, path, content), seconds=30, pause_s=0.05)
    finally:
        for _, writer in peers:
            writer.close()
