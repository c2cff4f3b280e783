"""Records of consumer groups as bytes."""

from busway_bus.groups.modern.consumer_member import ConsumerMember
from busway_bus.groups.modern.records import ClassicMemberMetadata, ClassicProtocol
from busway_bus.groups.record_serde import key_bytes, parse, value_bytes


def test_a_structure_in_a_tagged_field_is_absent_present_or_null() -> None:
    """Kafka marks it with 0 or 1 there, and with -1 or 1 outside of tagged fields; without the tag it is an empty one."""
    member = ConsumerMember(member_id="m", client_id="c")
    key, value = member.metadata_record("g")
    assert value_bytes(key, value) == bytes.fromhex("0000 0000 0263 01 01 01 ffffffff 00 01 00 01 00")
    value.classic_member_metadata = ClassicMemberMetadata()
    assert value_bytes(key, value) == bytes.fromhex("0000 0000 0263 01 01 01 ffffffff 00 00")
    protocols = [ClassicProtocol(name="range", metadata=b"x")]
    value.classic_member_metadata = ClassicMemberMetadata(session_timeout_ms=5, supported_protocols=protocols)
    stored = value_bytes(key, value)
    assert stored is not None
    assert stored.endswith(bytes.fromhex("01 00 10 01 00000005 02 06") + b"range" + bytes.fromhex("0278 00 00"))
    for metadata in (None, ClassicMemberMetadata(), ClassicMemberMetadata(session_timeout_ms=5)):
        value.classic_member_metadata = metadata
        assert parse(key_bytes(key), value_bytes(key, value)) == (key, value)
