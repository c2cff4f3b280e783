"""A service that its group gives nothing says which members the group has."""

import asyncio
import logging
from typing import Any

import pytest
from tests.support.patience import patient

from busway import Admin, App, Consumer, NewTopic
from busway.app import waiting
from busway_bus.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.slow


class Lines(logging.Handler):
    """Sets `came` at a line about a group that has assigned nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.came = asyncio.Event()
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        if "has assigned nothing" in record.getMessage():
            self.text = record.getMessage()
            self.came.set()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_member_that_is_given_nothing_names_the_others(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here a static one that has gone and is waited for, as one that was killed is; once, with what helps."""
    monkeypatch.setattr(waiting, "WAIT_S", 0.5)
    lines = Lines()
    logging.getLogger("busway.app").addHandler(lines)
    try:
        async with LocalCluster() as cluster, Admin(cluster.bootstrap_servers) as admin, asyncio.timeout(patient(40)):
            await admin.create_topics([NewTopic("orders", 1)])
            options: dict[str, Any] = {"group_protocol": protocol, "bootstrap_servers": cluster.bootstrap_servers}
            async with Consumer("orders", group_id="shop", client_id="old", group_instance_id="1", **options) as gone:
                while not gone.assignment():
                    await gone.getmany(timeout_ms=100)
                holder = gone.group_metadata().member_id
            app = App("shop", bootstrap_servers=cluster.bootstrap_servers, consumer={"group_protocol": protocol})

            @app.subscribe(app.topic("orders", value=str, format="json"))
            async def handle(order: str) -> None:
                pass

            async with app:
                await lines.came.wait()
                assert app.worker is not None
                assert not app.worker.consumer.assignment()
    finally:
        logging.getLogger("busway.app").removeHandler(lines)
    assert f"{holder} (old on 127.0.0.1)" in lines.text
    assert "consumer={'group_instance_id': ...} lets a restarted one go on at once" in lines.text
