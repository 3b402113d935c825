"""Signatures by a provider's private key: Ed25519 (Standard Webhooks v1a) and ECDSA over P-256 (SendGrid);
these and RSA for HTTP message signatures.

`cryptography` is loaded at the first such signature: most gateways never see one.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from spec.webhooks.secrets import strict_base64

_KEYS_MAX = 256


_HEX = re.compile(rb"(?:[0-9a-f]{2})+")


def signed_ed25519(key: bytes, signature: bytes, content: bytes, encoding: str = "base64") -> bool:
    """`key` is 32 bytes, `signature` base64, or `hex` in lower case."""
    if encoding == "hex":
        octets = bytes.fromhex(signature.decode()) if _HEX.fullmatch(signature) else None
    else:
        octets = strict_base64(signature.decode("latin-1"))
    if octets is None:
        return False
    return _verified(_ed25519(key), octets, content)


def signed_ecdsa(key: bytes, signature: bytes, content: bytes) -> bool:
    """`key` is SPKI in DER, `signature` base64 of DER, over SHA-256."""
    octets = strict_base64(signature.decode("latin-1"))
    if octets is None:
        return False
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256

    return _verified(_loaded(key), octets, content, ec.ECDSA(SHA256()))


def signed_ecdsa_raw(key: bytes, signature: bytes, content: bytes) -> bool:
    """The same with a `signature` of two numbers of 32 bytes, as RFC 9421 writes it."""
    octets = strict_base64(signature.decode("latin-1"))
    if octets is None or len(octets) != 64:
        return False
    from cryptography.hazmat.primitives.asymmetric import ec, utils
    from cryptography.hazmat.primitives.hashes import SHA256

    r, s = int.from_bytes(octets[:32], "big"), int.from_bytes(octets[32:], "big")
    return _verified(_loaded(key), utils.encode_dss_signature(r, s), content, ec.ECDSA(SHA256()))


def signed_rsa_pss(key: bytes, signature: bytes, content: bytes) -> bool:
    """`key` is SPKI in DER; SHA-512, with a salt of 64 bytes."""
    octets = strict_base64(signature.decode("latin-1"))
    if octets is None:
        return False
    from cryptography.hazmat.primitives.asymmetric import padding
    from cryptography.hazmat.primitives.hashes import SHA512

    pss = padding.PSS(padding.MGF1(SHA512()), salt_length=64)
    return _verified(_loaded(key), octets, content, pss, SHA512())


def signed_rsa(key: bytes, signature: bytes, content: bytes) -> bool:
    """`key` is SPKI in DER; PKCS #1 v1.5 over SHA-256."""
    octets = strict_base64(signature.decode("latin-1"))
    return octets is not None and signed_rsa_by(_loaded(key), octets, content, "sha256")


def signed_rsa_by(key: Any, signature: bytes, content: bytes, digest: str) -> bool:
    """`key` is an RSA public key, `signature` its bytes; PKCS #1 v1.5 over `sha1` or `sha256`."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import padding
    from cryptography.hazmat.primitives.hashes import SHA1, SHA256

    hashed = SHA1() if digest == "sha1" else SHA256()  # noqa: S303 (so Amazon SNS signs by version 1)
    try:
        return _verified(key, signature, content, padding.PKCS1v15(), hashed)
    except UnsupportedAlgorithm:  # where the system's rules forbid SHA-1
        return False


def _verified(key: Any, signature: bytes, content: bytes, *how: Any) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(signature, content, *how)
    except InvalidSignature:
        return False
    return True


@lru_cache(_KEYS_MAX)
def _ed25519(key: bytes) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    return Ed25519PublicKey.from_public_bytes(key)


@lru_cache(_KEYS_MAX)
def _loaded(key: bytes) -> Any:
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    return load_der_public_key(key)
