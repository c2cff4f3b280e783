"""Security options: what fits together, what is refused and how, and that no secret shows."""

import dataclasses
from typing import Any

import pytest

from busway.security.options import SecurityOptions, split

SECRET = "s3cret-and-more"
SCRAM: dict[str, Any] = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_plain_username": "ann",
    "sasl_plain_password": SECRET,
}
OAUTH: dict[str, Any] = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauthbearer_token_endpoint_url": "https://login.example/token",
    "sasl_oauthbearer_client_credentials_client_id": "shop",
    "sasl_oauthbearer_client_credentials_client_secret": SECRET,
}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"security_protocol": "TLS"}, "security_protocol: 'TLS' is not PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"),
        ({"ssl_cafile": "ca.pem"}, "ssl_cafile: security_protocol is PLAINTEXT, which has no TLS"),
        ({"sasl_plain_password": SECRET}, "sasl_plain_password: security_protocol is PLAINTEXT, which has no SASL"),
        (SCRAM | {"sasl_mechanism": "GSSAPI"}, "sasl_mechanism: 'GSSAPI' is not PLAIN, SCRAM-SHA-256"),
        (SCRAM | {"sasl_mechanism": None}, "security_protocol SASL_SSL needs sasl_mechanism: PLAIN"),
        (SCRAM | {"sasl_plain_password": None}, "sasl_mechanism SCRAM-SHA-512 needs sasl_plain_password"),
        (SCRAM | {"sasl_plain_username": ""}, "sasl_mechanism SCRAM-SHA-512 needs sasl_plain_username"),
        (SCRAM | {"sasl_oauthbearer_scope": "x"}, "sasl_oauthbearer_scope: sasl_mechanism is SCRAM-SHA-512"),
        (SCRAM | {"ssl_keyfile": "key.pem"}, "ssl_keyfile is set without ssl_certfile"),
        (SCRAM | {"ssl_password": SECRET}, "ssl_password is set without ssl_certfile"),
        (OAUTH | {"sasl_plain_username": "ann"}, "sasl_plain_username: sasl_mechanism is OAUTHBEARER"),
        (
            OAUTH | {"sasl_oauth_token_provider": lambda: SECRET},
            "sasl_oauthbearer_token_endpoint_url, sasl_oauthbearer",
        ),
        (
            OAUTH | {"sasl_oauthbearer_token_endpoint_url": "login"},
            "sasl_oauthbearer_token_endpoint_url is not an https",
        ),
        (OAUTH | {"sasl_oauthbearer_token_endpoint_url": None}, "sasl_mechanism OAUTHBEARER needs sasl_oauth_token"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(given: dict[str, Any], text: str) -> None:
    """The error begins with the option and holds no secret."""
    with pytest.raises(ValueError, match=r"\w") as refused:
        SecurityOptions(**given)
    assert str(refused.value).startswith(text)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("name", [option.name for option in dataclasses.fields(SecurityOptions)])
def test_a_value_of_another_type_is_not_shown(name: str) -> None:
    """It may be a secret in the wrong place."""
    with pytest.raises(TypeError) as refused:
        SecurityOptions(**{name: [SECRET]})  # type: ignore[arg-type]
    assert str(refused.value).startswith(f"{name}: a value of the type list is not")
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [SCRAM, OAUTH, SCRAM | {"ssl_certfile": "client.pem", "ssl_password": SECRET}, {"security_protocol": "SSL"}],
)
def test_no_secret_is_in_the_representation(given: dict[str, Any]) -> None:
    """Neither of the options, nor in a text made of them."""
    options = SecurityOptions(**given)
    assert SECRET not in f"{options!r} {options}"
    assert options.uses_tls
    assert options.uses_sasl == (given != {"security_protocol": "SSL"})


def test_options_are_split_from_those_of_a_client() -> None:
    """An unknown name of security gets the nearest one as a hint."""
    security, others = split({**SCRAM, "linger_ms": 5})
    assert security == SecurityOptions(**SCRAM)
    assert others == {"linger_ms": 5}
    assert split({"linger_ms": 5}) == (None, {"linger_ms": 5})
    with pytest.raises(TypeError, match="sasl_password is no option of SecurityOptions; did you mean sasl_plain_passw"):
        split({"sasl_password": SECRET})
