"""What a spec declares of webhooks in, once it is legal: sources, secrets, where their events go.

Made by spec/webhooks/check.py, never changed after. Secrets never show in a representation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, get_args

from spec.handlers import Predicate
from spec.webhooks.presets import Scheme

Handshake = Literal[
    "url_verification",
    "hub_challenge",
    "hub_challenge_json",
    "validation_token",
    "crc",
    "bt_challenge",
    "plain_token",
    "callback_verification",
    "challenge",
    "okta",
    "client_id",
    "ping",
    "hook_secret",
    "subscription_confirmation",
    "cloudevents",
]
HANDSHAKES: Final[tuple[Handshake, ...]] = get_args(Handshake)
SIGNED_BY_HANDSHAKE: Final[Mapping[str, re.Pattern[bytes]]] = MappingProxyType(
    {
        "crc": re.compile(rb"[A-Za-z0-9_=+/.-]{1,200}"),
        "bt_challenge": re.compile(rb"[a-f0-9]{20,32}"),
        "plain_token": re.compile(rb"[A-Za-z0-9_-]{1,200}"),
    }
)
"""The texts that a handshake signs when it is asked to, by a secret that deliveries are verified with. Such a
text is a number, a form of one pair, the timestamp and body of a scheme, or a token: no delivery is one."""

MASK: Final = "***"
"""How every secret reads back."""

QUERY_MASK: Final = f"?{MASK}"
"""How the query of a target's URL reads for keys below admin."""

UNSEEN: Final = "\x00unseen"
"""What an environment answers that has a secret and does not show it: the spec is legal, and verifies
nothing."""


@dataclass(frozen=True, slots=True)
class Key:
    """What signatures are checked with: `hmac` bytes, an `ed25519` public key (32 bytes), an `ecdsa` one
    (SPKI in DER, curve P-256), or an `rsa` one (SPKI in DER). `none` matches nothing."""

    kind: Literal["hmac", "ed25519", "ecdsa", "rsa", "none"]
    octets: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Secret:
    """Valid from `from_ms` until before `until_ms`, Unix milliseconds; None is no bound. `text` is as it was
    given, for providers that send it along."""

    key: Key
    text: str = field(repr=False)
    from_ms: int | None = None
    until_ms: int | None = None

    def valid_at(self, now_ms: int) -> bool:
        return (self.from_ms is None or self.from_ms <= now_ms) and (
            self.until_ms is None or now_ms < self.until_ms
        )


@dataclass(frozen=True, slots=True)
class Topic:
    """One of Amazon SNS, by its ARN. `host` serves the certificates of its region, and confirms its
    subscriptions."""

    arn: str
    host: str


@dataclass(frozen=True, slots=True)
class Path:
    """`$.body.repository.id`: a value of a delivery. A field of digits is also an index of a list. What is
    absent is null; if `optional`, what holds the path is left out."""

    root: Literal["body", "headers", "delivery_id", "source"]
    fields: tuple[str, ...] = ()
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """An object of templates."""

    fields: tuple[tuple[str, Template], ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A list of templates."""

    items: tuple[Template, ...]


@dataclass(frozen=True, slots=True)
class Fixed:
    """A value of the spec itself."""

    value: str | int | float | bool | None


Template = Path | Shape | Row | Fixed


@dataclass(frozen=True, slots=True)
class Target:
    """Where a source's events go. Exactly one of `key` and `source_id` is set; a string is canonical and
    declared, a path is looked up in each delivery. `must_exist`: no delivery makes a new aggregate; a
    singleton always exists. A delivery for which `when` is not true, or whose provider's name, at `type_at`,
    `types` lacks, is ignored; with `types` there is no `event`. `scope` is that of source ids; None: the
    aggregate type. `skip_unchanged`: a record that is the one before makes no event."""

    aggregate_type: str
    key: str | Path | None
    source_id: Path | None
    event: str | Path | None
    must_exist: bool = False
    when: Predicate | None = None
    types: Mapping[str, str] | None = None
    type_at: tuple[Path, ...] = ()
    scope: Path | None = None
    skip_unchanged: bool = False

    @property
    def selects(self) -> bool:
        """Whether some deliveries are ignored."""
        return self.when is not None or self.types is not None


@dataclass(frozen=True, slots=True)
class Source:
    """One sender of webhooks. `scheme` says how it signs, unless it is `unsigned`; `public_base_url` is what
    the sender calls us, for schemes that sign the URL."""

    name: str
    provider: str
    scheme: Scheme
    unsigned: bool
    secrets: tuple[Secret, ...]
    target: Target
    actor_type: str
    actor_id: str
    tolerance_s: int
    public_base_url: str = ""
    handshake: Handshake | None = None
    verify_token: str | None = field(default=None, repr=False)
    data: Template | None = None
    headers: tuple[str, ...] = ()
    """Names of the headers that its events keep, in lower case."""
    items: tuple[str, ...] | None = None
    """Fields that lead to the list of a batch; () for the body itself, None where there is no batch."""
    topics: tuple[Topic, ...] = ()
    """Whose messages are taken; of Amazon SNS only, which signs all topics of the world alike."""
    delivery_id: tuple[str, ...] | None = None
    """Fields that lead to the id, in place of the scheme's."""
    reserved: tuple[re.Pattern[bytes], ...] = ()
    """Of `SIGNED_BY_HANDSHAKE`, what is signed by one of its secrets: for this source, or for another one
    that has the same secret. It proves nothing of a delivery."""

    def reserves(self, content: bytes) -> bool:
        """Whether a stranger can have this signed by a handshake."""
        return any(texts.fullmatch(content) for texts in self.reserved)


class RedactedEnviron(Mapping[str, str]):
    """An environment in which every secret is there and none is shown: for commands that verify nothing."""

    def __getitem__(self, name: str) -> str:
        return UNSEEN

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0
