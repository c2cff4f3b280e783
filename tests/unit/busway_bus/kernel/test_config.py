"""Settings: Kafka's names are understood, nonsense is refused by name."""

import pytest

from busway_bus.kernel.broker_configs import BROKER_CONFIGS
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.config_def import ConfigError, render
from busway_bus.kernel.topic_configs import TOPIC_CONFIGS

SINGLE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "7",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "num.network.threads": "3",
    "log.dirs": "data",
    "log.retention.hours": "2",
}


CONTROLLER = {"process.roles": "controller", "controller.listener.names": "CONTROLLER"}
VOTERS = {"controller.quorum.voters": "1@a:9093,2@[::1]:9094"}


def test_a_controller_has_its_listeners_and_knows_the_voters() -> None:
    """As in Kafka's own example of one; its listeners need no security protocol of their own."""
    config = BrokerConfig.from_properties({**CONTROLLER, **VOTERS, "listeners": "CONTROLLER://127.0.0.1:9093"})
    assert config.is_controller_alone
    assert config.voters == {1: ("a", 9093), 2: ("::1", 9094)}
    assert config.listeners == ()
    assert [(endpoint.name, endpoint.port) for endpoint in config.controller_listeners] == [("CONTROLLER", 9093)]
    assert not BrokerConfig.from_properties(SINGLE_NODE).is_controller_alone


def test_a_server_properties_written_for_kafka_is_understood() -> None:
    """The keys of Kafka's own single-node example give the same settings here."""
    config = BrokerConfig.from_properties(SINGLE_NODE)
    assert config.node_id == 7
    assert config.data_dir == "data"
    assert [(endpoint.name, endpoint.port) for endpoint in config.listeners] == [("PLAINTEXT", 9092)]
    assert [(endpoint.name, endpoint.port) for endpoint in config.controller_listeners] == [("CONTROLLER", 9093)]
    assert config.topic_default("retention.ms") == 2 * 3_600_000


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"num.partitons": "3"}, "did you mean num.partitions?"),
        ({"num.partitions": "many"}, "Invalid value many for configuration num.partitions: Not a number of type INT"),
        ({"num.partitions": "0"}, "Invalid value 0 for configuration num.partitions: Value must be at least 1"),
        ({"num.partitions": "99999999999"}, "Not a number of type INT"),
        ({"auto.create.topics.enable": "yes"}, "Expected value to be either true or false"),
        ({"log.cleanup.policy": "shred"}, "String must be one of: compact, delete"),
        ({"ssl.keystore.location": "x"}, "TLS is not served"),
        ({"authorizer.class.name": "x"}, "access control is not served"),
        ({"listeners": "PLAINTEXT://:9092"}, "every interface"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, "0.0.0.0"),
        ({"listeners": "PLAINTEXT://localhost"}, "is not NAME://host:port"),
        ({"listeners": "SSL://localhost:9092"}, "only PLAINTEXT is served"),
        ({"listeners": "A://127.0.0.1:1"}, "set listener.security.protocol.map=A:PLAINTEXT"),
        ({"listeners": "PLAINTEXT://127.0.0.1:1,plaintext://127.0.0.1:2"}, "two listeners have the same name"),
        ({"advertised.listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "two listeners have the same name"),
        ({"advertised.listeners": "PLAINTEXT://a:1,SSL://b:2"}, "only PLAINTEXT is served"),
        ({"listener.security.protocol.map": "A,PLAINTEXT:PLAINTEXT"}, "'A' is not NAME:PROTOCOL"),
        ({"log.dirs": "a,b"}, "exactly one data directory"),
        ({"broker.id": "1", "node.id": "2"}, "differs from node.id"),
        ({"controller.quorum.voters": "", "process.roles": "broker"}, "needs the voters as id@host:port"),
        ({"controller.listener.names": "", "controller.quorum.voters": "1@a:1,2@b:2"}, "such as CONTROLLER"),
        ({"controller.quorum.voters": "", **CONTROLLER}, "itself among them"),
        ({"controller.quorum.voters": "1@a", **CONTROLLER}, "'1@a' is not id@host:port"),
        ({"controller.quorum.voters": "1@a:1,1@b:1", **CONTROLLER}, "node 1 is named twice"),
        ({"controller.quorum.voters": "2@a:1", **CONTROLLER}, "this node, 1, is not among the voters [2]"),
        ({"controller.quorum.voters": "1@a:0", **CONTROLLER}, "is not id@host:port"),
        (
            {"controller.listener.names": "", "process.roles": "controller", "controller.quorum.voters": "1@a:1"},
            "CONTROLLER",
        ),
        ({"listeners": "PLAINTEXT://127.0.0.1:1", **CONTROLLER, **VOTERS}, "remove 'PLAINTEXT://127.0.0.1:1'"),
        ({"listeners": "", **CONTROLLER, **VOTERS}, "none of controller.listener.names is there"),
        ({"controller.quorum.voters": "2@a:1"}, "this node, 1, is not among the voters [2]"),
        ({"controller.quorum.voters": "1@a"}, "'1@a' is not id@host:port"),
        ({"controller.listener.names": "CONTROLLER"}, "CONTROLLER is not in listeners; add it there"),
        ({"listeners": "C://127.0.0.1:1", "controller.listener.names": "C"}, "no broker listener is left"),
        ({"listeners": "PLAINTEXT://127.0.0.1:1,C://:2", "controller.listener.names": "C"}, "C would listen on every"),
        ({"inter.broker.listener.name": "INSIDE"}, "INSIDE is no listener; there is PLAINTEXT"),
        ({"controller.quorum.election.timeout.ms": "0"}, "Value must be at least 1"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(properties: dict[str, str], named: str) -> None:
    """The text names the key and what to do about it."""
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.from_properties(properties)
    assert named in str(refused.value)
    assert next(iter(properties)) in str(refused.value)


def test_a_wide_bind_starts_when_the_operator_says_the_network_is_trusted() -> None:
    """`busway.insecure` is the one way past the loopback rule."""
    config = BrokerConfig.from_properties({"listeners": "PLAINTEXT://0.0.0.0:9092", "busway.insecure": "true"})
    assert config.listeners[0].host == "0.0.0.0"


def test_a_topics_own_setting_wins_over_the_brokers_and_the_default() -> None:
    """Precedence: topic, then broker, then Kafka's default."""
    config = BrokerConfig.from_properties({"log.segment.bytes": "2000000"})
    assert config.topic_config({})["segment.bytes"] == 2_000_000
    assert config.topic_config({"segment.bytes": "3000000"})["segment.bytes"] == 3_000_000
    assert config.topic_config({})["retention.ms"] == 604_800_000
    with pytest.raises(ConfigError, match=r"^Unknown topic config name: retension\.ms\. Did you mean retention\.ms\?$"):
        config.topic_config({"retension.ms": "1"})


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("controller.quorum.auto.join.enable", "true", "controller.quorum.voters"),
        ("group.coordinator.rebalance.protocols", "classic", "group.version=0"),
        ("log.cleaner.threads", "0", "log.cleaner.enable=false"),
        ("group.coordinator.rebalance.protocols", "consumer", "group.version=0"),
        ("group.coordinator.rebalance.protocols", "classic,consumer,mine", "group.version=0"),
        ("group.share.assignors", "org.example.Mine", "simple"),
        ("kafka.metrics.reporters", "org.example.Mine", "remove it"),
        ("log.cleaner.io.max.bytes.per.second", "1000000", "remove it"),
        ("metric.reporters", "org.example.Mine", "remove it"),
    ],
)
def test_what_would_promise_something_that_is_not_served_is_refused(name: str, value: str, remedy: str) -> None:
    """By its name, with what to do; a setting that is accepted and does nothing would look as if it worked."""
    with pytest.raises(ConfigError, match=name) as refusal:
        BrokerConfig.from_properties({name: value})
    assert remedy in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("group.coordinator.rebalance.protocols", "classic,consumer"),
        ("group.coordinator.rebalance.protocols", "classic,consumer,share,streams"),
        ("metric.reporters", ""),
        ("metric.reporters", "org.apache.kafka.common.metrics.JmxReporter"),
        ("controller.quorum.auto.join.enable", "false"),
        ("producer.id.expiration.check.interval.ms", "1000"),
    ],
)
def test_what_promises_nothing_else_is_taken(name: str, value: str) -> None:
    """As in files that were written for Kafka."""
    assert name in BrokerConfig.from_properties({name: value}).properties


def test_every_default_is_a_value_its_own_key_accepts() -> None:
    """No key ships a default that it would refuse from an operator."""
    for key in (*BROKER_CONFIGS.values(), *TOPIC_CONFIGS.values()):
        text = render(key.default)
        if text is not None:
            assert key.parse(text) == key.default, key.name


@pytest.mark.parametrize("host", ["127.example.com", "localhost.example.com", "::1:2", "0.0.0.0", "10.0.0.1", ""])
def test_only_addresses_of_this_machine_are_loopback(host: str) -> None:
    """A name that merely begins like one is reachable by others."""
    with pytest.raises(ConfigError, match="insecure"):
        BrokerConfig.from_properties({"listeners": f"PLAINTEXT://{host}:9092"})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "[::1]"])
def test_addresses_of_this_machine_need_no_word(host: str) -> None:
    """They are served as they are."""
    assert BrokerConfig.from_properties({"listeners": f"PLAINTEXT://{host}:9092"}).listeners[0].loopback


def test_an_address_that_no_client_can_use_is_not_advertised() -> None:
    """Clients cannot connect to every address."""
    properties = {"listeners": "PLAINTEXT://127.0.0.1:1", "advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}
    with pytest.raises(ConfigError, match="every address"):
        BrokerConfig.from_properties(properties)


TWO = {
    "listeners": "IN://127.0.0.1:1,out://127.0.0.1:0",
    "listener.security.protocol.map": "IN:PLAINTEXT, OUT:plaintext",
}


def test_each_listener_has_its_own_advertised_address() -> None:
    """By its name, in whatever case and order; what advertised.listeners leaves open is what was bound."""
    properties = {**TWO, "advertised.listeners": "OUT://bus.example:9,IN://bus:0"}
    config = BrokerConfig.from_properties(properties)
    inside, outside = config.listeners
    assert config.advertised_by(inside, port=1).address == "bus:1"
    assert config.advertised_by(outside, port=4711).address == "bus.example:9"
    untold = BrokerConfig.from_properties(TWO)
    assert [untold.advertised_by(listener, port=7).address for listener in untold.listeners] == [
        "127.0.0.1:1",
        "127.0.0.1:7",
    ]


@pytest.mark.parametrize(
    ("advertised", "named"),
    [
        ("IN://bus:1", "OUT is missing"),
        ("IN://bus:1,OUT://here:2,PLAINTEXT://x:1", "PLAINTEXT is no listener; there is IN, OUT"),
    ],
)
def test_every_listener_is_advertised_and_no_other(advertised: str, named: str) -> None:
    """A client of a listener that is not could not find the node."""
    with pytest.raises(ConfigError, match=f"advertised.listeners: {named}"):
        BrokerConfig.from_properties({**TWO, "advertised.listeners": advertised})


COMBINED = {
    "listeners": "PLAINTEXT://127.0.0.1:1,B://127.0.0.1:2,A://127.0.0.1:0",
    "controller.listener.names": "a,B",
}


def test_a_controllers_listeners_may_be_advertised() -> None:
    """They need not be, as in Kafka; their order is that of controller.listener.names."""
    config = BrokerConfig.from_properties({**COMBINED, "advertised.listeners": "PLAINTEXT://bus:1,B://bus:9"})
    assert [endpoint.name for endpoint in config.listeners] == ["PLAINTEXT"]
    first, second = config.controller_listeners
    assert (config.advertised_by(first, port=7).address, config.advertised_by(second, port=2).address) == (
        "127.0.0.1:7",
        "bus:9",
    )


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"inter.broker.listener.name": "B"}, "inter.broker.listener.name: B is a listener of the controller"),
        ({"advertised.listeners": "A://bus:1"}, "advertised.listeners: PLAINTEXT is missing"),
        ({"advertised.listeners": "PLAINTEXT://bus:1,A://0.0.0.0:1"}, "advertised.listeners: clients cannot connect"),
        ({"listener.security.protocol.map": "A:PLAINTEXT,B:SSL"}, "listeners: 'B://127.0.0.1:2': only PLAINTEXT"),
    ],
)
def test_a_controllers_listener_is_none_of_the_brokers(properties: dict[str, str], named: str) -> None:
    """It cannot serve other brokers, and what is advertised holds for it too."""
    with pytest.raises(ConfigError, match=named):
        BrokerConfig.from_properties({**COMBINED, **properties})


def test_bounds_are_told_in_full() -> None:
    """Not rounded to a power of ten."""
    with pytest.raises(ConfigError, match="1048576"):
        BrokerConfig.from_properties({"log.segment.bytes": "1"})
