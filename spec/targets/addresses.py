"""The addresses of targets: which URLs are taken, and which lead to the public internet.

Must not know what a name resolves to.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from spec.errors import Report, below
from spec.targets.form import Schema
from spec.webhooks.sources import QUERY_MASK, UNSEEN

URL_CHARS_MAX: Final = 2048

ALLOW_PRIVATE: Final = "SLUICE_ALLOW_PRIVATE_TARGETS"
"""The setting by which http and private addresses are no fault; for development."""

PUBLIC_PORTS: Final = (None, 443, 8443)
"""Where webhooks are served on public addresses; another port is a way to knock on other doors."""

HOST: Final = r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_.-]{1,253})(:[0-9]{1,5})?"
"""The pattern of a host and a port, for URLs of all kinds of targets."""

_PRIVATE_NAMES = (".localhost", ".local", ".internal", ".lan", ".home.arpa")
_TRUE = frozenset(("1", "true", "yes", "on"))


def url_schema(pattern: str) -> Schema:
    return {"type": "string", "maxLength": URL_CHARS_MAX, "pattern": f"^{pattern}$"}


def check_url(
    value: object,
    pattern: str,
    form: str,
    pointer: str,
    environ: Mapping[str, str],
    report: Report,
) -> None:
    """Reports the faults of a field `url`; `form` is an example of `pattern`."""
    place = below(pointer, "url")
    if not isinstance(value, str) or len(value) > URL_CHARS_MAX or not re.fullmatch(pattern, value):
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
    """Whether host and port are such that they can exist (RFC 1035 section 2.3.4)."""
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
    """Why a URL of a target can be seen, without a query, to lead where no event may go; None if it
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
