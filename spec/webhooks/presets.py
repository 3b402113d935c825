"""How webhook providers sign: `Scheme`, and the presets as data (presets.json).

Owns what a scheme may say. Verification (gateway/inbound) reads a scheme and knows no provider by name, so a
new provider is a few lines of JSON.

Words in `signed` are parts of the request (`SIGNED_WORDS`); any other text stands for itself. `delivery`
says where the id of a delivery stands, first found first: `header:<name>`, `jwt:<claim>` or
`body:<field>.<field>`, several fields joined by `+`. In a batch, `body` is the item.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Final, Literal, get_args

import msgspec

SIGNED_WORDS: Final = ("body", "timestamp", "url", "id")
"""Parts of the request that any spec may name. Presets may also name `method`, `form` (Twilio's sorted
parameters) and `token` (from the body)."""

DIGESTS: Final = ("sha256", "sha1", "sha384", "sha512", "md5")
TimestampUnit = Literal["s", "ms", "rfc3339"]
TIMESTAMP_UNITS: Final = get_args(TimestampUnit)
TOLERANCE_S: Final = 300
"""How far a provider's clock and ours may differ, both ways: what most vendors' libraries take."""


class Scheme(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way to sign a request. Header names are in lower case.

    `form` says how the header holds signatures: `plain` (one, after `prefix`), `pairs` (`t=…,v1=…`),
    `versions` (`v1,… v1a,…`, as Standard Webhooks), `jwt` (a token by `issuer` with digests of what is
    signed), `message` (HTTP message signatures, which must cover what is signed), `body` (they stand in the
    JSON body), `form` (in a form that holds nothing else) or `sns` (in the JSON body, by the certificate that
    it names; there are topics in place of secrets).
    `key` says what a secret is: its `text`, `hex`, `base64`, a Standard Webhooks key, a public `spki` key, a
    public `ed25519` key in hex, a `message` key (shared or public, of HTTP message signatures), or a `pair`:
    `public|private`, where the SHA-1 of the private one signs.
    """

    header: str = ""
    form: Literal["plain", "pairs", "versions", "body", "form", "jwt", "message", "sns"] = "plain"
    prefix: str = ""
    separator: str = ","
    signature_name: str = ""
    timestamp_name: str = ""
    algorithm: Literal["hmac", "ecdsa", "ed25519"] = "hmac"
    digest: str = "sha256"
    encoding: Literal["hex", "base64"] = "hex"
    key: Literal["text", "hex", "base64", "standard", "spki", "ed25519", "message", "pair"] = "text"
    signed: tuple[str, ...] = ("body",)
    url_variants: bool = False
    """Also the URL with or without its port, and with `'` as `%27`: senders are not consistent."""
    issuer: str = ""
    id_header: str | None = None
    timestamp_header: str | None = None
    timestamp_unit: TimestampUnit = "s"
    tolerance_s: int = TOLERANCE_S
    """Unless the spec says another: longer where a message that is sent again keeps its first time."""
    fresh: str | None = None
    """A field of the signed body with the time of sending; looked at where it is there."""
    token_header: str | None = None
    """The secret itself, sent along; looked at only where `header` is absent."""
    echo: bool = False
    """Each answer repeats the token, in a header of the same name."""
    body_signature: str | None = None
    body_timestamp: str | None = None
    body_token: str | None = None
    token_chars_min: int = 1
    """Shorter tokens are refused: a handshake signs such."""
    signer_mark: str = ""
    """In a form that names the signer before each signature, what stands between: `public|…&public|…`."""
    item_signature: str | None = None
    item_signed: tuple[str, ...] = ()
    """Each item of the batch is signed by itself, over these fields with colons between; looked at only where
    `header` is absent."""
    items: str | None = None
    """The list that a batch holds, "" for the body itself; `item` is what wraps each."""
    item: str | None = None
    delivery: tuple[str, ...] = ()
    type_at: tuple[str, ...] = ()
    """Paths to the provider's name of what happened, in parts that a `.` joins; () where it has none."""
    headers: tuple[str, ...] = ()
    """Kept with the event, beside those above that say when and which."""
    volatile: tuple[str, ...] = ()
    """Fields that a provider changes when it tries again: they don't make other bytes of a delivery."""

    @property
    def timed(self) -> bool:
        return bool(self.timestamp_header or self.timestamp_name or self.body_timestamp)

    @property
    def kept_headers(self) -> tuple[str, ...]:
        """Names of the headers that the event keeps unless the spec names more."""
        told = [name.removeprefix("header:") for name in self.delivery if name.startswith("header:")]
        also = [name for name in (self.id_header, self.timestamp_header) if name]
        return tuple(dict.fromkeys([*also, *told, *self.headers]))


def _load() -> Mapping[str, Scheme]:
    text = (files("spec") / "presets.json").read_bytes()
    return MappingProxyType(msgspec.json.decode(text, type=dict[str, Scheme]))


PRESETS: Final = _load()
"""By the name that a spec calls as `provider`."""
