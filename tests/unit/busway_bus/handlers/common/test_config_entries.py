"""Which settings of a broker DescribeConfigs lists."""

from busway_bus.handlers.common.config_entries import broker_entries
from busway_bus.kernel.config import BrokerConfig


def test_settings_that_kafka_keeps_internal_are_not_listed() -> None:
    """Kafka accepts them in server.properties and lists no more than those beside them."""
    names = {entry.name for entry in broker_entries(BrokerConfig.defaults())}
    assert {"producer.id.expiration.ms", "unclean.leader.election.enable"} <= names
    assert not names & {"producer.id.expiration.check.interval.ms", "unclean.leader.election.interval.ms"}
