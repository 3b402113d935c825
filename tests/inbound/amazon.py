"""Amazon SNS as the tests play it: messages signed by a certificate that is made here, and its host over
HTTPS, with certificates of an authority that is made here too."""

from __future__ import annotations

import base64
import datetime
import json
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpcore
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from gateway.inbound.request import Request
from tests.relay.receivers import WebReceiver, web_receiver

TOPIC = "arn:aws:sns:eu-west-1:123456789012:orders"
HOST = "sns.eu-west-1.amazonaws.com"
PEM_PATH = "/SimpleNotificationService-0123456789abcdef0123456789abcdef.pem"
TOKEN = "2336412f37fb687f5d51e6e2425929f52e8e353134fe72d55ef8b330217d82da"
HOUR = datetime.timedelta(hours=1)
NAME = "sns.amazonaws.com"


_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


@cache
def rsa_key(bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


def signing_pem(
    key: Any = None,
    name: str | None = NAME,
    around_ms: int | None = None,
    begins: datetime.timedelta = -HOUR,
    ends: datetime.timedelta = HOUR,
) -> bytes:
    """A certificate that signs messages."""
    now = datetime.datetime.now(datetime.UTC)
    if around_ms is not None:
        now = datetime.datetime.fromtimestamp(around_ms / 1000, datetime.UTC)
    return _certificate(key or rsa_key(), name, rsa_key(), "some issuer", now + begins, now + ends)


def _certificate(
    key: Any,
    name: str | None,
    by: Any,
    issuer: str,
    begins: datetime.datetime,
    ends: datetime.datetime,
    ca: bool = False,
) -> bytes:
    """With all that RFC 5280 asks for, as Python 3.13 does of who serves."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(_named(name or "nobody"))
        .issuer_name(_named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key()), critical=False)
    )
    if ca:
        builder = builder.add_extension(_SIGNS_CERTIFICATES, critical=True)
    if name is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    return builder.sign(by, hashes.SHA256()).public_bytes(Encoding.PEM)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


SIGNED = ("Message", "MessageId", "Subject", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")


def message(kind: str, at_ms: int, key: Any = None, version: str = "2", **more: Any) -> dict[str, Any]:
    """One of `kind` that is signed; `more` is what it says otherwise, None what it leaves out."""
    moment = datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC)
    told: dict[str, Any] = {
        "Type": kind,
        "MessageId": "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324",
        "TopicArn": TOPIC,
        "Message": 'some "text"\nof two lines: é',
        "Timestamp": moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03}Z",
    }
    if kind != "Notification":
        told["Token"] = TOKEN
        told["SubscribeURL"] = f"https://{HOST}/?Action=ConfirmSubscription&TopicArn={TOPIC}&Token={TOKEN}"
    told = {name: value for name, value in {**told, **more}.items() if value is not None}
    content = "".join(f"{name}\n{told[name]}\n" for name in SIGNED if name in told).encode()
    hashed = hashes.SHA1() if version == "1" else hashes.SHA256()
    octets = (key or rsa_key()).sign(content, padding.PKCS1v15(), hashed)
    said = {"Signature": base64.b64encode(octets).decode(), "SigningCertURL": f"https://{HOST}{PEM_PATH}"}
    return {**told, "SignatureVersion": version, **said, **{k: v for k, v in more.items() if k in said}}


def request(told: object) -> Request:
    body = told if isinstance(told, bytes) else json.dumps(told).encode()
    kind = str(told.get("Type")) if isinstance(told, dict) else "Notification"
    headers = ((b"content-type", b"text/plain; charset=UTF-8"), (b"x-amz-sns-message-type", kind.encode()))
    return Request(b"POST", b"/hook", b"", headers, body)


class Rerouted(httpcore.AsyncNetworkBackend):
    """A network on which every host is one port of this machine; `asked` are the hosts that were."""

    def __init__(self, port: int) -> None:
        self._network = httpcore.AnyIOBackend()
        self._port = port
        self.asked: list[tuple[str, int]] = []

    async def connect_tcp(self, host: str, port: int, *more: Any, **named: Any) -> Any:
        self.asked.append((host, port))
        return await self._network.connect_tcp("127.0.0.1", self._port, *more, **named)


@dataclass(frozen=True)
class Host:
    """The host of Amazon SNS: what it was asked, how it answers, and how to come to it."""

    receiver: WebReceiver
    network: Rerouted
    trusted: ssl.SSLContext

    @property
    def asked(self) -> list[str]:
        """The targets, in their order."""
        return [each.target for each in self.receiver.deliveries]


@asynccontextmanager
async def host(folder: Path, names: Iterable[str] = (HOST,)) -> AsyncIterator[Host]:
    """One whose certificate is of these names."""
    now = datetime.datetime.now(datetime.UTC)
    authority, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root = _certificate(authority, "authority", authority, "authority", now - HOUR, now + HOUR, ca=True)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for name in names:
        own = _certificate(key, name, authority, "authority", now - HOUR, now + HOUR)
        file = folder / f"{name}.pem"
        file.write_bytes(own + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        serving.load_cert_chain(file)
    trusted = ssl.create_default_context(cadata=root.decode())
    async with web_receiver(tls=serving) as receiver:
        yield Host(receiver, Rerouted(receiver.port), trusted)
