"""Secrets as a spec names them: `env:NAME`, `file:NAME`, or the text itself; with validity, if wanted.

Owns where a secret is looked up (the environment given; a `file:` under its own name, with the prefix), what
a key must look like, and how a document is shown: every secret as `***`. No message repeats a secret.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime

from spec.errors import Report, below
from spec.fields import check_keys, refuse_null
from spec.targets.table import SECRETS
from spec.webhooks.sources import MASK, QUERY_MASK, UNSEEN, Key, Secret

ENV = "env:"
FILE = "file:"
ENV_PREFIX = "SLUICE_SECRET_"
"""A spec can't read any other variable of the gateway's environment."""

_ENV_NAME = re.compile(rf"{ENV_PREFIX}[A-Z0-9_]{{1,250}}")
_NOR_OWN = f"or is not this tenant's: its own are named {ENV_PREFIX}<TENANT>__NAME."
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,100}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})+")
_KEYS = frozenset({"secret", "from", "until"})
_SPKI_P256 = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d03010703420004")
_SPKI_ED25519 = bytes.fromhex("302a300506032b6570032100")
_RSA = bytes.fromhex("06092a864886f70d010101")
_RSA_BITS_MIN = 2048
"""Shorter ones are given up by those who say what is safe (NIST SP 800-131A)."""

_PEM = re.compile(r"\s*-----BEGIN PUBLIC KEY-----\s([A-Za-z0-9+/=\s]+)-----END PUBLIC KEY-----\s*")
_NO_KEY = Key("none", b"")

KeyForm = str
"""As `Scheme.key`."""

Place = tuple[str, ...]
"""Of secrets in a document: the names that lead to them."""


def read_secrets(
    value: object, pointer: str, form: KeyForm, environ: Mapping[str, str], report: Report
) -> tuple[Secret, ...]:
    """The list of secrets, any of which may have signed."""
    if not isinstance(value, list) or not value:
        report.add(
            "wrong_type", pointer, "`secrets` is a list of at least one secret; two while one rotates."
        )
        return ()
    return tuple(_read(each, below(pointer, i), form, environ, report) for i, each in enumerate(value))


def _read(value: object, pointer: str, form: KeyForm, environ: Mapping[str, str], report: Report) -> Secret:
    begins = ends = None
    if isinstance(value, dict):
        check_keys(value, pointer, _KEYS, report)
        if "secret" not in value:
            report.add(
                "missing_key", pointer, 'A secret with validity needs `secret`, besides "from" or "until".'
            )
            return Secret(_NO_KEY, "")
        refuse_null(value, ("from", "until"), pointer, report)
        begins, ends = [_moment(value.get(name), below(pointer, name), report) for name in ("from", "until")]
        if begins is not None and ends is not None and begins >= ends:
            why = "This secret is never valid: its `until` must come after its `from`."
            report.add("invalid_value", below(pointer, "until"), why)
        value, pointer = value["secret"], below(pointer, "secret")
    text = resolve(value, pointer, environ, report)
    key = _NO_KEY if text in (None, UNSEEN) else _key(text or "", form, pointer, report)
    return Secret(key, "" if text in (None, UNSEEN) else text or "", begins, ends)


def _moment(value: object, pointer: str, report: Report) -> int | None:
    """Unix milliseconds of RFC 3339 text or Unix seconds; None where there is none."""
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**11:
        return value * 1000
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        report.add(
            "invalid_value", pointer, 'A time is written as "2026-01-31T12:00:00Z" or in Unix seconds.'
        )
        return None
    return int(at.timestamp() * 1000)


def resolve(value: object, pointer: str, environ: Mapping[str, str], report: Report) -> str | None:
    """The text of a secret; None, with a fault in `report`, where there is none."""
    if not isinstance(value, str):
        report.add(
            "wrong_type", pointer, "A secret is a string: `env:NAME`, `file:NAME`, or the secret itself."
        )
        return None
    if value.startswith(ENV):
        name = value.removeprefix(ENV)
        if not _ENV_NAME.fullmatch(name):
            why = f"A spec reads only variables named {ENV_PREFIX}… (upper case); rename this one so."
            report.add("invalid_value", pointer, why)
            return None
        why = f"The variable {name} is not set where the gateway runs, {_NOR_OWN}"
        return _looked_up(name, why, pointer, environ, report)
    if value.startswith(FILE):
        name = value.removeprefix(FILE)
        if not _FILE_NAME.fullmatch(name):
            why = "A secret's file is a plain name: it lies in the tenant's folder below SLUICE_SECRETS_DIR."
            report.add("invalid_value", pointer, why)
            return None
        why = f"There is no readable file {name} in the tenant's folder below SLUICE_SECRETS_DIR."
        return _looked_up(value, why, pointer, environ, report)
    if value in ("", MASK):
        why = (
            f"`{MASK}` stands for a deployed secret only if every secret of its list is deployed; give the "
            f"secret itself, or better `env:{ENV_PREFIX}NAME`."
        )
        report.add("invalid_value", pointer, why)
        return None
    return value


def _looked_up(name: str, why: str, pointer: str, environ: Mapping[str, str], report: Report) -> str | None:
    text = environ.get(name)
    if not text:
        report.add("missing_secret", pointer, why)
        return None
    return text


def _key(text: str, form: KeyForm, pointer: str, report: Report) -> Key:
    key: Key | None
    match form:
        case "standard":
            key = _standard_key(text)
            wanted = "what Standard Webhooks writes: `whsec_` or `whpk_` and base64"
        case "hex":
            key = Key("hmac", bytes.fromhex(text)) if _HEX.fullmatch(text) else None
            wanted = "hexadecimal digits, an even number of them"
        case "base64":
            octets = strict_base64(text)
            key = Key("hmac", octets) if octets else None
            wanted = "base64"
        case "spki":
            octets = strict_base64("".join(text.split()))
            key = Key("ecdsa", octets) if octets is not None and _on_curve(octets) else None
            wanted = "the provider's public key: base64 of SPKI DER, curve P-256"
        case "ed25519":
            octets = bytes.fromhex(text) if _HEX.fullmatch(text) else b""
            key = Key("ed25519", octets) if len(octets) == 32 else None
            wanted = "the provider's public key: 64 hexadecimal digits"
        case "message":
            key = _message_key(text)
            wanted = (
                "a shared key as `whsec_` and base64, or a public one as PEM or base64 of SPKI DER: Ed25519, "
                f"P-256, or RSA of {_RSA_BITS_MIN} bits or more"
            )
        case "pair":
            public, _, private = text.partition("|")
            signs = hashlib.sha1(private.encode()).digest()  # noqa: S324 (so the provider makes its key)
            key = Key("hmac", signs) if public and private else None
            wanted = "the public key, a `|`, and the private key"
        case _:
            return Key("hmac", text.encode())
    if key is None:
        report.add("invalid_secret", pointer, f"This secret must be {wanted}.")
        return _NO_KEY
    return key


def _standard_key(text: str) -> Key | None:
    if text.startswith("whpk_"):
        octets = strict_base64(text.removeprefix("whpk_"), padding_optional=True)
        return Key("ed25519", octets) if octets is not None and len(octets) == 32 else None
    octets = strict_base64(text.removeprefix("whsec_"), padding_optional=True)
    if text.startswith("whsec_"):
        return Key("hmac", octets) if octets else None
    if octets is not None and 24 <= len(octets) <= 64:  # the prefix may be left out
        return Key("hmac", octets)
    return Key("hmac", text.encode())


def _message_key(text: str) -> Key | None:
    """A shared key is one only by its prefix: else a public key could be taken for one, which all know."""
    if text.startswith(("whsec_", "whpk_")):
        return _standard_key(text)
    pem = _PEM.fullmatch(text)
    octets = strict_base64("".join((pem[1] if pem else text).split())) or b""
    if _on_curve(octets):
        return Key("ecdsa", octets)
    if len(octets) == len(_SPKI_ED25519) + 32 and octets.startswith(_SPKI_ED25519):
        return Key("ed25519", octets.removeprefix(_SPKI_ED25519))
    return Key("rsa", octets) if _is_rsa(octets) else None


def _is_rsa(der: bytes) -> bool:
    if _RSA not in der[:32]:
        return False
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    try:
        key = load_der_public_key(der)
    except (ValueError, UnsupportedAlgorithm):
        return False
    return isinstance(key, RSAPublicKey) and key.key_size >= _RSA_BITS_MIN


def strict_base64(text: str, *, padding_optional: bool = False) -> bytes | None:
    """The bytes, if `text` is exactly how base64 writes them."""
    if padding_optional:
        text = text.rstrip("=")
        text += "=" * (-len(text) % 4)
    try:
        octets = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, ValueError):
        return None
    return octets if base64.b64encode(octets).decode() == text else None


_P = 2**256 - 2**224 + 2**192 + 2**96 - 1
_B = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B


def _on_curve(der: bytes) -> bool:
    """Whether this is an uncompressed point of P-256 in SPKI: another one would only fail at the first
    delivery."""
    if len(der) != 91 or not der.startswith(_SPKI_P256):
        return False
    x, y = int.from_bytes(der[27:59], "big"), int.from_bytes(der[59:], "big")
    return x < _P and y < _P and (y * y - (x * x * x - 3 * x + _B)) % _P == 0


def masked(document: object, *, queries: bool = False) -> object:
    """A spec's value (bare or wrapped), secrets as `***`, and if asked the queries of targets as `?***`."""

    def mask(place: Place, value: object) -> object:
        if place[-1] == "url" and isinstance(value, str) and "@" not in value:
            return without_query(value) if queries else value
        return MASK

    return _with_secrets(document, mask)


def masked_beside(document: object, earlier: object) -> object:
    """`document` as `masked` shows it, but a secret that `earlier` does not have at its place reads
    `*** (another)`: so two documents can be compared without being shown."""
    known: dict[Place, list[object]] = defaultdict(list)

    def note(place: Place, value: object) -> object:
        known[place].append(value)
        return value

    def mask(place: Place, value: object) -> object:
        if place[-1] == "url" and isinstance(value, str) and "@" not in value:
            return value
        return MASK if value in known[place] else f"{MASK} (another)"

    _with_secrets(earlier, note)
    return _with_secrets(document, mask)


def without_query(url: str) -> str:
    """As keys below admin see it: `https://host/path?***`. Many hooks have their token there."""
    before, mark, _ = url.partition("?")
    return before + QUERY_MASK if mark else url


def restored(document: object, earlier: object) -> object:
    """`document` with each `***` replaced by the secret that `earlier` has there, so that what was shown can
    be changed and deployed again. In a list there must be as many as `earlier` has, which they are in their
    order, wherever others were put among them. Of fewer it is not known which ones are left: they stay. A
    `?***` is replaced only behind the URL that is deployed: a query is for no other."""
    deployed: dict[Place, list[object]] = defaultdict(list)
    masks: Counter[Place] = Counter()

    def note(place: Place, value: object) -> object:
        deployed[place].append(value)
        return value

    def count(place: Place, value: object) -> object:
        masks[place] += value == MASK
        return value

    _with_secrets(earlier, note)
    _with_secrets(document, count)
    left = {place: iter(values) for place, values in deployed.items() if masks[place] == len(values)}

    def restore(place: Place, value: object) -> object:
        if value == MASK and place in left:
            return next(left[place])
        if place[-1] == "url" and isinstance(value, str) and value.endswith(QUERY_MASK):
            return next((url for url in deployed[place] if without_query(str(url)) == value), value)
        return value

    return _with_secrets(document, restore)


def masks(document: object) -> frozenset[str]:
    """The pointers at which a spec's value (bare or wrapped) has a secret as it is shown: `***` or `?***`."""
    mark = object()

    def marked(_: Place, value: object) -> object:
        return mark if value == MASK or str(value).endswith(QUERY_MASK) else value

    def pointers(pointer: str, value: object) -> Iterator[str]:
        if value is mark:
            yield pointer
        elif isinstance(value, dict):
            for name, each in value.items():
                yield from pointers(below(pointer, name), each)
        elif isinstance(value, list):
            for index, each in enumerate(value):
                yield from pointers(below(pointer, index), each)

    if isinstance(document, dict):  # its other parts have none, and may be long
        inner = document.get("spec")
        parts = {"spec": _secret_parts(inner)} if isinstance(inner, dict) else _secret_parts(document)
        return frozenset(pointers("", _with_secrets(parts, marked)))
    return frozenset()


def _secret_parts(spec: dict[str, object]) -> dict[str, object]:
    return {part: spec[part] for part in ("webhooks", "subscriptions") if part in spec}


def _with_secrets(document: object, change: object) -> object:
    """A copy in which `change(place, value)` stands for each secret; those of a list have one place."""
    assert callable(change)
    if not isinstance(document, dict):
        return document
    if isinstance(document.get("spec"), dict):
        return {**document, "spec": _with_secrets(document["spec"], change)}
    document = _with_targets(document, change)
    sources = document.get("webhooks")
    if not isinstance(sources, dict):
        return document
    changed = {}
    for name, source in sources.items():
        changed[name] = source
        if not isinstance(source, dict):
            continue
        changed[name] = source = dict(source)
        if isinstance(source.get("verify_token"), str):
            source["verify_token"] = change((name, "verify_token"), source["verify_token"])
        secrets = source.get("secrets")
        if isinstance(secrets, list):
            source["secrets"] = [_changed(change, (name, "secrets"), each) for each in secrets]
    return {**document, "webhooks": changed}


def _with_targets(document: dict[str, object], change: object) -> dict[str, object]:
    """The same for the targets of subscriptions: what signs, and a URL that holds a password or a query."""
    assert callable(change)
    declared = document.get("subscriptions")
    if not isinstance(declared, dict):
        return document
    changed = dict(declared)
    for name, each in declared.items():
        target = each.get("target") if isinstance(each, dict) else None
        if not isinstance(target, dict):
            continue
        target = dict(target)
        for key in [key for key in SECRETS & target.keys() if isinstance(target[key], str)]:
            target[key] = change(("subscriptions", name, key), target[key])
        if isinstance(url := target.get("url"), str) and (url == MASK or "@" in url or "?" in url):
            target["url"] = change(("subscriptions", name, "url"), url)
        changed[name] = {**each, "target": target}
    return {**document, "subscriptions": changed}


def _changed(change: object, place: Place, secret: object) -> object:
    assert callable(change)
    if isinstance(secret, dict) and "secret" in secret:
        return {**secret, "secret": change(place, secret["secret"])}
    return change(place, secret)
