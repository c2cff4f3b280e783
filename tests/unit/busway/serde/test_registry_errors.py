"""What a registry says of a schema that it refuses: the remedy first, without the rest of Confluent's message."""

from busway.serde.registry_errors import breaches, refusal

OURS = (
    "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'at /fields/1 the new schema cannot read what the old schema writes: "
    "give field currency of OrderPlaced a default, or an alias that names the field it replaces', additionalInfo:'currency'}"
)
REST = "{oldSchemaVersion:2}, {oldSchema:'{\"type\":\"record\"}'}, {compatibility:'BACKWARD'}"
WHAT = 'Schema being registered is incompatible with an earlier schema for subject "orders-value", details: '


def test_the_remedy_comes_first() -> None:
    """Then where, and the version and the level that it is about."""
    assert refusal(f"{WHAT}[{OURS}, {REST}]") == (
        "give field currency of OrderPlaced a default, or an alias that names the field it replaces "
        "(at /fields/1 the new schema cannot read what the old schema writes); "
        "the schema is not compatible with version 2 of orders-value by BACKWARD"
    )
    assert breaches([OURS, "{oldSchemaVersion:2}"]) == [
        "give field currency of OrderPlaced a default, or an alias that names the field it replaces "
        "(at /fields/1 the new schema cannot read what the old schema writes)"
    ]


def test_what_confluents_registry_says_is_kept() -> None:
    """Its descriptions quote names and have no remedies."""
    description = "The field 'currency' at path '/fields/1' in the new schema has no default value and is missing in the old schema"
    theirs = (
        f"{{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'{description}', additionalInfo:'currency'}}"
    )
    assert refusal(f"{WHAT}[{theirs}, {{oldSchemaVersion: 1}}]; error code: 409") == (
        f"{description}; the schema is not compatible with version 1 of orders-value"
    )


def test_other_texts_stay() -> None:
    """Word by word."""
    assert refusal("Subject 'x' not found.") == "Subject 'x' not found."
    assert breaches(["incompatible"]) == ["incompatible"]
