"""The part `subscriptions`: which events go out, from where on, and to which target.

Owns the grammar of one subscription; a declared one and one that is PUT are held to it alike. Must not know
what an address resolves to, or what a secret opens.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, assert_never, get_args
from urllib.parse import urlsplit

from spec.errors import Report, below, proposal, shown
from spec.filter_items import FilterItem, check_items_declared, read_filter_items
from spec.tables import complete
from spec.webhooks.sources import QUERY_MASK, UNSEEN

NAME_GRAMMAR: Final = "[a-z][a-z0-9_-]{0,63}"
"""A subscription's name; it stands in a path."""

RETRY_S: Final = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)
"""Seconds before each further attempt: those that Standard Webhooks recommends, 75 hours in all."""

RETRIES_MAX: Final = 50
RETRY_S_MAX: Final = 604_800.0  # a week: whoever is away for longer is away
URL_CHARS_MAX: Final = 2048
SECRET_CHARS_MAX: Final = 512
FILTER_NAMES_MAX: Final = 100
MAXLEN_MAX: Final = 10**9
LEASE_S: Final = 30.0
LEASE_S_MAX: Final = 3600.0
ATTEMPTS_MAX: Final = 20

ALLOW_PRIVATE: Final = "SLUICE_ALLOW_PRIVATE_TARGETS"
"""The setting by which http and private addresses are no fault; for development."""

PUBLIC_PORTS: Final = (None, 443, 8443)
"""Where webhooks are served on public addresses; another port is a way to knock on other doors."""

Start = Literal["beginning", "now"] | str

_NAME = re.compile(NAME_GRAMMAR)
_FILTERED = re.compile("_?[a-z][a-z0-9_]{0,63}")
_HOST = r"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_.-]{1,253})(?::[0-9]{1,5})?"
_WEBHOOK_URL = re.compile(rf"https?://{_HOST}(?:[/?][!-\"$-~]*)?")
_REDIS_URL = re.compile(rf"rediss?://(?:[!-\"$-.0->A-~]*@)?{_HOST}(?:/[0-9]{{0,4}})?")
_SECRET = re.compile(
    r"(?:whsec_)?[A-Za-z0-9+/]+={0,2}|env:SLUICE_SECRET_[A-Z0-9_]+|file:[A-Za-z0-9_][A-Za-z0-9._-]*"
)
_STREAM = re.compile(r"[!-~]{1,255}")
_POSITION = re.compile(r"[!-~]{1,1024}")
_FED = re.compile("AQ[A-Za-z0-9_-]*\\Z")
"""All that can be told of a position without its feed: the form of today begins so."""
_PRIVATE_NAMES = (".localhost", ".local", ".internal", ".lan", ".home.arpa")
_TRUE = frozenset(("1", "true", "yes", "on"))


@dataclass(frozen=True, slots=True)
class Filter:
    """Which events: of these aggregate types, of these event types; None is any. With `items`, such as
    one of them matches. `include_undeclared`: names of withdrawn types are meant."""

    types: tuple[str, ...] | None = None
    event_types: tuple[str, ...] | None = None
    include_undeclared: bool = False
    items: tuple[FilterItem, ...] = ()


@dataclass(frozen=True, slots=True)
class Webhook:
    """`secret` is as declared: literal, or `env:` or `file:` and where it is."""

    url: str
    secret: str = field(repr=False)
    retry_s: tuple[float, ...] = RETRY_S


@dataclass(frozen=True, slots=True)
class RedisStream:
    """`url` may hold a password. `maxlen` None: the stream is never trimmed."""

    url: str = field(repr=False)
    stream: str
    maxlen: int | None = None
    retry_s: tuple[float, ...] = RETRY_S


@dataclass(frozen=True, slots=True)
class Pull:
    """Events are claimed for `lease_s`; after `attempts_max` claims without an ack an event is parked."""

    lease_s: float = LEASE_S
    attempts_max: int = ATTEMPTS_MAX


Target = Webhook | RedisStream | Pull

Kind = Literal["webhook", "redis_stream", "pull"]
"""The name of each form of target, as documents have it. Every table of targets has a row for each."""

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


def kind_of(target: Target) -> Kind:
    match target:
        case Webhook():
            return "webhook"
        case RedisStream():
            return "redis_stream"
        case Pull():
            return "pull"
        case _:
            assert_never(target)


@dataclass(frozen=True, slots=True)
class Subscription:
    """`start` is where a new one begins: `beginning`, `now`, or a position of the feed. `aliases`: its events
    carry those of their aggregates."""

    filter: Filter
    start: Start
    target: Target
    aliases: bool = False


class PermissiveEnviron(Mapping[str, str]):
    """An environment in which every target may be reached, or none that is not public. What is deployed stays
    readable: whether it is reached is decided when it is."""

    def __init__(self, environ: Mapping[str, str], reachable: bool = True) -> None:
        self._environ = environ
        self._reachable = "on" if reachable else "off"

    def __getitem__(self, name: str) -> str:
        return self._reachable if name == ALLOW_PRIVATE else self._environ[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._environ)

    def __len__(self) -> int:
        return len(self._environ)


NONE: Mapping[str, Subscription] = MappingProxyType({})


def check_subscriptions(
    value: object, pointer: str, environ: Mapping[str, str], _spec: object, report: Report
) -> Mapping[str, Subscription]:
    """The part of a spec: by name, read-only."""
    if not isinstance(value, dict):
        report.add("wrong_type", pointer, "`subscriptions` must be an object: a subscription by each name.")
        return NONE
    found: dict[str, Subscription] = {}
    for name, declared in value.items():
        place = below(pointer, name)
        if not is_subscription_name(name):
            report.add(
                "invalid_name", place, f"{shown(name)} is no name of a subscription: `{NAME_GRAMMAR}`."
            )
        read = read_subscription(declared, place, environ, report)
        if read is not None and read.start not in ("beginning", "now") and not _FED.match(read.start):
            why = f'{shown(read.start)} is no position of the feed: send one as it gave it, or "now".'
            report.add("invalid_value", below(place, "start"), why)
        elif read is not None:
            found[name] = read
    return MappingProxyType(found)


def is_subscription_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def is_filtered_name(value: object) -> bool:
    return isinstance(value, str) and _FILTERED.fullmatch(value) is not None


def read_subscription(
    value: object, pointer: str, environ: Mapping[str, str], report: Report
) -> Subscription | None:
    """One subscription; None, with its faults in `report`, where it can't be used."""
    before = len(report)
    known = ("aliases", "filter", "start", "target")
    declared = _object(value, pointer, "A subscription", known, ("target",), report)
    aliases = declared.get("aliases", False)
    if not isinstance(aliases, bool):
        report.add("wrong_type", below(pointer, "aliases"), "`aliases` is true or false.")
    filtered = _filter(declared.get("filter", {}), below(pointer, "filter"), report)
    start = declared.get("start", "now")
    if not isinstance(start, str) or not _POSITION.fullmatch(start):
        why = '`start` is "beginning", "now", or a position of the feed.'
        report.add("invalid_value", below(pointer, "start"), why)
    target = None
    if "target" in declared:
        target = _target(declared["target"], below(pointer, "target"), environ, report)
    if len(report) > before or target is None or not isinstance(start, str):
        return None
    return Subscription(filtered, start, target, aliases is True)


def _object(
    value: object, pointer: str, what: str, known: tuple[str, ...], needed: tuple[str, ...], report: Report
) -> dict[str, object]:
    if not isinstance(value, dict):
        report.add("wrong_type", pointer, f"{what} must be an object.")
        return {}
    for key in value:
        if key not in known:
            why = f"{shown(key)} means nothing here. {proposal(key, known)}"
            report.add("unknown_key", below(pointer, key), why)
    for key in needed:
        if key not in value:
            report.add("missing_key", pointer, f"{what} needs `{key}`.")
    return value


def _filter(value: object, pointer: str, report: Report) -> Filter:
    known = ("types", "event_types", "include_undeclared", "items")
    declared = _object(value, pointer, "A filter", known, (), report)
    if not isinstance(declared.get("include_undeclared", False), bool):
        why = "`include_undeclared` is true or false."
        report.add("wrong_type", below(pointer, "include_undeclared"), why)
    lists = [
        _filtered(declared[key], below(pointer, key), report) if key in declared else None
        for key in ("types", "event_types")
    ]
    items: tuple[FilterItem, ...] = ()
    if "items" in declared:
        items = read_filter_items(declared["items"], below(pointer, "items"), report)
    return Filter(lists[0], lists[1], declared.get("include_undeclared") is True, items)


def check_declared(
    filtered: Filter,
    pointer: str,
    types: Mapping[str, Collection[str]],
    prefixes: Collection[str],
    report: Report,
) -> None:
    """A fault for each name of a filter that the spec does not declare; the gateway's own begin with an
    underscore."""
    if filtered.include_undeclared:
        return
    check_items_declared(filtered.items, pointer, types, prefixes, report)
    events = {event for each in types.values() for event in each}
    own = any(name[:1] == "_" for name in filtered.types or ())
    for key, names, known in (
        ("types", filtered.types, types.keys()),
        ("event_types", () if own else filtered.event_types, events),
    ):
        for index, name in enumerate(names or ()):
            if name[:1] != "_" and name not in known:
                why = f"The spec declares no {shown(name)}. {proposal(name, known)}"
                report.add("undeclared", below(pointer, key, index), why)


def _filtered(value: object, pointer: str, report: Report) -> tuple[str, ...]:
    if not isinstance(value, list):
        report.add("wrong_type", pointer, "A list of names is needed here.")
        return ()
    if not 1 <= len(value) <= FILTER_NAMES_MAX:
        why = f"Name 1 to {FILTER_NAMES_MAX}; leave the key out for any."
        report.add("invalid_value", pointer, why)
        return ()
    for index, name in enumerate(value):
        if not is_filtered_name(name):
            report.add("invalid_name", below(pointer, index), "This is no name of a type.")
    return tuple(value)


Reader = Callable[[dict[str, object], str, Mapping[str, str], Report], Target | None]


def _target(value: object, pointer: str, environ: Mapping[str, str], report: Report) -> Target | None:
    if not isinstance(value, dict):
        report.add("wrong_type", pointer, "A target must be an object.")
        return None
    kind = value.get("type")
    if "type" not in value:
        report.add("missing_key", pointer, f"A target needs `type`: {', '.join(_TARGETS)}.")
        return None
    if not isinstance(kind, str) or kind not in _TARGETS:
        known = proposal(kind, tuple(_TARGETS)) if isinstance(kind, str) else f"One of {', '.join(_TARGETS)}."
        report.add("invalid_value", below(pointer, "type"), f"There is no such target. {known}")
        return None
    keys, needed, read = _TARGETS[kind]
    _object(value, pointer, f"A target {kind}", ("type", *keys), needed, report)
    if any(key not in value for key in needed):
        return None
    return read(value, pointer, environ, report)


def _webhook(
    declared: dict[str, object], pointer: str, environ: Mapping[str, str], report: Report
) -> Target | None:
    url, secret = declared["url"], declared["secret"]
    retry_s = _retry_s(declared, pointer, report)
    _check_url(url, _WEBHOOK_URL, "https://host/path, without user or fragment", pointer, environ, report)
    _check_secret(secret, below(pointer, "secret"), environ, report)
    if not isinstance(url, str) or not isinstance(secret, str):
        return None
    return Webhook(url, secret, retry_s)


def _redis_stream(
    declared: dict[str, object], pointer: str, environ: Mapping[str, str], report: Report
) -> Target | None:
    url, stream, maxlen = declared["url"], declared["stream"], declared.get("maxlen")
    retry_s = _retry_s(declared, pointer, report)
    _check_url(url, _REDIS_URL, "rediss://user:password@host:port/database", pointer, environ, report)
    if not isinstance(stream, str) or not _STREAM.fullmatch(stream):
        why = "The key of a stream: 1 to 255 visible ASCII characters."
        report.add("invalid_value", below(pointer, "stream"), why)
    if maxlen is not None and not _is_whole(maxlen, 1, MAXLEN_MAX):
        report.add("invalid_value", below(pointer, "maxlen"), f"A whole number from 1 to {MAXLEN_MAX}.")
    if not isinstance(url, str) or not isinstance(stream, str) or not isinstance(maxlen, int | None):
        return None
    return RedisStream(url, stream, maxlen, retry_s)


def _pull(declared: dict[str, object], pointer: str, _environ: Mapping[str, str], report: Report) -> Target:
    lease_s, attempts_max = declared.get("lease_s", LEASE_S), declared.get("attempts_max", ATTEMPTS_MAX)
    if not _is_seconds(lease_s, LEASE_S_MAX) or lease_s == 0:
        why = f"Seconds, more than 0 and at most {LEASE_S_MAX:g}."
        report.add("invalid_value", below(pointer, "lease_s"), why)
        lease_s = LEASE_S
    if not _is_whole(attempts_max, 1, 1000):
        report.add("invalid_value", below(pointer, "attempts_max"), "A whole number from 1 to 1000.")
        attempts_max = ATTEMPTS_MAX
    assert isinstance(lease_s, int | float) and isinstance(attempts_max, int)
    return Pull(float(lease_s), attempts_max)


_TARGETS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...], Reader]] = complete(
    KINDS,
    {
        "webhook": (("url", "secret", "retry_s"), ("url", "secret"), _webhook),
        "redis_stream": (("url", "stream", "maxlen", "retry_s"), ("url", "stream"), _redis_stream),
        "pull": (("lease_s", "attempts_max"), (), _pull),
    },
)


def _retry_s(declared: dict[str, object], pointer: str, report: Report) -> tuple[float, ...]:
    if "retry_s" not in declared:
        return RETRY_S
    value, place = declared["retry_s"], below(pointer, "retry_s")
    if not isinstance(value, list):
        report.add("wrong_type", place, "A list of seconds is needed here, one for each further attempt.")
        return RETRY_S
    if len(value) > RETRIES_MAX:
        report.add("invalid_value", place, f"At most {RETRIES_MAX} further attempts.")
    for index, each in enumerate(value):
        if not _is_seconds(each, RETRY_S_MAX):
            report.add("invalid_value", below(place, index), f"Seconds from 0 to {RETRY_S_MAX:g}.")
            return RETRY_S
    return tuple([float(each) for each in value])


def _is_seconds(value: object, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _check_url(
    value: object,
    pattern: re.Pattern[str],
    form: str,
    pointer: str,
    environ: Mapping[str, str],
    report: Report,
) -> None:
    place = below(pointer, "url")
    if not isinstance(value, str) or len(value) > URL_CHARS_MAX or not pattern.fullmatch(value):
        report.add("invalid_value", place, f"A URL like {form} is needed here, in plain ASCII.")
        return
    if value.endswith(QUERY_MASK):
        words = f"`{QUERY_MASK}` stands for the query that is deployed with the same URL, and there is none"
        report.add("invalid_value", place, f"{words}: write the query out.")
        return
    if not _can_be_called(value):
        report.add("invalid_value", place, "Invalid host or port.")
        return
    why = unsafe(value)
    allowed = environ.get(ALLOW_PRIVATE, "")
    if why is not None and allowed.lower() not in _TRUE and allowed != UNSEEN:
        report.add("unsafe_target", place, f"{why} {ALLOW_PRIVATE}=on allows it, for development.")


def _can_be_called(url: str) -> bool:
    """Whether host and port are such that anybody could be asked for them (RFC 1035 section 2.3.4)."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").removesuffix("."), parts.port
        if ":" in host:
            ipaddress.ip_address(host)
    except ValueError:
        return False
    labels = [] if ":" in host else host.split(".")
    return port != 0 and len(host) <= 253 and all(1 <= len(label) <= 63 for label in labels)


def unsafe(url: str) -> str | None:
    """Why a URL of a target can be seen, without asking anybody, to lead where no event may go; None if it
    can't. What its name resolves to is looked at when it is connected to."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return "Invalid address or port."
    if parts.scheme not in ("https", "rediss"):
        return f"A target is reached over TLS: {'https' if parts.scheme == 'http' else 'rediss'}://."
    if parts.scheme == "https" and port not in PUBLIC_PORTS:
        return "A webhook is served on port 443 or 8443."
    if host == "" or host == "localhost" or host.endswith(_PRIVATE_NAMES):
        return "The host is a private name; events go to public addresses only."
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        # `2130706433`, `0x7f.1` and `127.1` are addresses to a resolver, and no names anywhere.
        if re.fullmatch(r"(?:.*\.)?(?:[0-9]+|0[xX][0-9A-Fa-f]*)", host):
            return "The host is an address in a form that hides it; write a name."
        return None
    return None if is_public(address) else "The host is a private address; events go to public ones only."


_GLOBAL_V6 = ipaddress.ip_network("2000::/3")
# What lies within it and leads back into IPv4, or nowhere: Teredo and its neighbours, documentation, 6to4;
# and the name servers of AS112, which a network may have of its own.
_NOT_GLOBAL = tuple(
    map(
        ipaddress.ip_network,
        ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"),
    )
)
# Protocol assignments, what leads from IPv4 into 6to4, and what a network may have of its own: AS112 and AMT.
_NOT_GLOBAL_V4 = tuple(
    map(
        ipaddress.ip_network,
        ("192.0.0.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.175.48.0/24"),
    )
)


def is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether it is a unicast address of the public internet (RFC 6890): not private, loopback, link-local,
    shared (CGNAT), unique local, mapped, translated, multicast, reserved."""
    if isinstance(address, ipaddress.IPv6Address):
        return address in _GLOBAL_V6 and address.is_global and not any(address in net for net in _NOT_GLOBAL)
    return (
        address.is_global and not address.is_multicast and not any(address in net for net in _NOT_GLOBAL_V4)
    )


def _check_secret(value: object, pointer: str, environ: Mapping[str, str], report: Report) -> None:
    if not isinstance(value, str) or len(value) > SECRET_CHARS_MAX or not _SECRET.fullmatch(value):
        why = "A secret is whsec_ and base64, or env:SLUICE_SECRET_…, or file: and a name."
        report.add("invalid_value", pointer, why)
        return
    text = secret_text(value, environ)
    if not text:
        why = f"{shown(value)} is not there where the gateway runs, or is not this tenant's."
        report.add("missing_secret", pointer, why)
    elif text != UNSEEN and signing_key(text) is None:
        report.add("invalid_secret", pointer, "This secret must be whsec_ and base64.")


def secret_text(declared: str, environ: Mapping[str, str]) -> str:
    """The secret that a target declares, literal or where it is; empty where it is not there. `environ` has
    files under their own name, with the prefix."""
    if declared.startswith("file:"):
        return environ.get(declared, "")
    return environ.get(declared.removeprefix("env:"), "") if declared.startswith("env:") else declared


def signing_key(secret: str) -> bytes | None:
    """The bytes that sign, of a secret as Standard Webhooks writes it; None where it is not written so."""
    try:
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True) or None
    except (binascii.Error, ValueError):
        return None
