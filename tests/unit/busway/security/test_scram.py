"""SCRAM against the RFC's exchange, against a server written here, and against servers that cheat."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.security.mechanisms import MechanismFailed, OAuthBearer, Plain
from busway.security.scram import HASHES, Scram

PASSWORD = "pencil"
FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def _begun() -> Scram:
    exchange = Scram("SCRAM-SHA-256", "user", PASSWORD, "rOprNGfwEbeRWgbNEkqO")
    assert exchange.step(b"") == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    return exchange


def test_the_exchange_of_rfc_7677() -> None:
    """Byte by byte, section 3."""
    exchange = _begun()
    assert exchange.step(FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert not exchange.complete
    assert exchange.step(FINAL) is None
    assert exchange.complete


def _serve(mechanism: str, stored: str, first: bytes, final: bytes, challenge: bytes, iterations: int) -> bytes | None:
    """The server's last message, by the formulas of RFC 5802; None where the proof is wrong."""
    name = HASHES[mechanism]
    salt = base64.b64decode(challenge.split(b"s=")[1].split(b",")[0])
    salted = hashlib.pbkdf2_hmac(name, stored.encode(), salt, iterations)
    bare, _, proof = final.rpartition(b",p=")
    message = first.removeprefix(b"n,,") + b"," + challenge + b"," + bare
    client_key = hmac.digest(salted, b"Client Key", name)
    signature = hmac.digest(hashlib.new(name, client_key).digest(), message, name)
    if bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True)) != client_key:
        return None
    return b"v=" + base64.b64encode(hmac.digest(hmac.digest(salted, b"Server Key", name), message, name))


@given(
    mechanism=st.sampled_from(sorted(HASHES)),
    username=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
    password=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
    salt=st.binary(min_size=1, max_size=24),
)
def test_every_name_and_password_is_proved(mechanism: str, username: str, password: str, salt: bytes) -> None:
    """To a server that has the password, and to no other."""
    exchange = Scram(mechanism, username, password, "abc")
    first = exchange.step(b"")
    assert first is not None
    assert first.startswith(b"n,,n=")
    assert first.count(b",") == 3
    assert first.split(b",")[2][2:].replace(b"=2C", b",").replace(b"=3D", b"=") == username.encode()
    challenge = b"r=abcdef,s=" + base64.b64encode(salt) + b",i=4096"
    final = exchange.step(challenge)
    assert final is not None
    assert _serve(mechanism, password + "x", first, final, challenge, 4096) is None
    answer = _serve(mechanism, password, first, final, challenge, 4096)
    assert answer is not None
    assert exchange.step(answer) is None
    assert exchange.complete


@pytest.mark.parametrize(
    ("challenge", "text"),
    [
        (FIRST.replace(b"rOpr", b"xOpr"), "nonce does not continue"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce does not continue"),
        (FIRST.replace(b"4096", b"4095"), "wants 4095 iterations, 4096 to 1000000"),
        (FIRST.replace(b"4096", b"1000001"), "wants 1000001 iterations"),
        (FIRST.replace(b"4096", b"many"), "no valid salt and iteration count"),
        (FIRST.replace(b"s=W2", b"s=!!"), "no valid salt and iteration count"),
        (b"m=new," + FIRST, "requires an extension"),
        (b"r=a,r=b", "not of the form"),
        (b"", "not of the form"),
        (b"\xff\xfe", "no text of SCRAM-SHA-256"),
    ],
)
def test_a_first_message_that_breaks_the_rules_ends_the_exchange(challenge: bytes, text: str) -> None:
    """Before any proof is made."""
    with pytest.raises(MechanismFailed, match=text):
        _begun().step(challenge)


@pytest.mark.parametrize(
    ("challenge", "text"),
    [
        (FINAL.replace(b"6rri", b"7rri"), "has not proved that it knows the password"),
        (b"v=", "has not proved that it knows the password"),
        (b"v=*", "has not proved that it knows the password"),
        (b"x=1", "has not proved that it knows the password"),
        (b"e=invalid-proof", "the server says invalid-proof"),
    ],
)
def test_a_server_without_the_password_is_refused(challenge: bytes, text: str) -> None:
    """Its signature is verified."""
    exchange = _begun()
    exchange.step(FIRST)
    with pytest.raises(MechanismFailed, match=text):
        exchange.step(challenge)
    assert not exchange.complete


def test_plain_is_one_message() -> None:
    """RFC 4616; a zero byte would end the name early."""
    exchange = Plain("ann", "pässword")
    assert exchange.step(b"") == b"\0ann\0p\xc3\xa4ssword"
    assert exchange.step(b"") is None
    assert exchange.complete
    with pytest.raises(MechanismFailed, match="zero byte"):
        Plain("ann\0", "x")


def test_a_token_is_sent_and_accepted() -> None:
    """RFC 7628, section 4.1."""
    exchange = OAuthBearer("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==")
    assert exchange.step(b"") == b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01\x01"
    assert exchange.step(b"") is None
    assert exchange.complete


def test_a_refused_token_is_continued_then_explained() -> None:
    """RFC 7628, section 3.2.3: the server ends the exchange after the client's dummy message."""
    exchange = OAuthBearer("abc")
    exchange.step(b"")
    assert exchange.step(b'{"status":"invalid_token","scope":"topics"}') == b"\x01"
    assert exchange.refusal == "the token was refused: status invalid_token, scope topics"
    with pytest.raises(MechanismFailed, match="the token was refused: status invalid_token"):
        exchange.step(b"")
    assert not exchange.complete


@pytest.mark.parametrize("token", ["", "abc def", "a\x01auth=Bearer b", "tökén", "abc\n"])
def test_a_token_of_another_form_is_refused(token: str) -> None:
    """It could add fields to the message; the text does not show it."""
    with pytest.raises(MechanismFailed, match="not of the form of a bearer token") as refused:
        OAuthBearer(token)
    assert not token.strip() or token not in str(refused.value)
