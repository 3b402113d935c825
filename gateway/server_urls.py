"""URLs of Redis and Postgres: what their drivers would only stumble over later, or not notice at all.

Must not know what a URL is for, nor repeat any part of one in a sentence: it may be of a password. To be
shown, a URL is redacted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv6Address
from typing import Final
from urllib.parse import parse_qsl

POSTGRES: Final = ("postgresql", "postgres")
REDIS: Final = ("redis", "rediss", "redis+cluster", "rediss+cluster", "unix")

_PORT_MAX: Final = 65_535
_HOST: Final = r"(?:\[[0-9a-fA-F:.]+\]|[^:@/?#\[\],]*)(?::[0-9]{1,5})?"
_URL: Final = re.compile(
    rf"(?P<scheme>[a-z+]+)://(?:[^@/?#]*@)?(?P<hosts>{_HOST}(?:,{_HOST})*)(?P<tail>[/?][!-~]*)?"
)
_BY_HOST: Final = re.compile(r"([^:/?#]+://(?:[^/?#]*@)?)([^/?#]*)(.*)", re.DOTALL)
_NUMBER: Final = r"[0-9]{1,9}"
_REDIS_OPTIONS: Final = {"db": _NUMBER, "username": ".+", "password": ".+"}
_TLS_OPTIONS: Final = {
    "ssl_ca_certs": ".+",
    "ssl_ca_path": ".+",
    "ssl_ca_data": ".+",
    "ssl_certfile": ".+",
    "ssl_keyfile": ".+",
    "ssl_password": ".+",
    "ssl_cert_reqs": "none|optional|required",
    "ssl_check_hostname": ".+",
    "ssl_ciphers": ".+",
    "ssl_min_version": _NUMBER,
}


class Unfit(ValueError):
    """A URL of the right form that no server could be reached by; the text continues after its name."""


def postgres(text: str) -> str:
    """The text as it is. Raises ValueError for what is no such URL."""
    _, hosts, _, options = _parts(text, POSTGRES)
    ports = [port for name, value in options if name == "port" for port in value.split(",")]
    _check_ports((*_ports(hosts), *ports))
    return text


def redis(text: str) -> str:
    """The same."""
    scheme, hosts, path, options = _parts(text, REDIS)
    _check_ports(_ports(hosts))
    if scheme != "unix" and not re.fullmatch(f"(/({_NUMBER})?)?", path):
        raise Unfit("names a database that is not a number")
    known = _REDIS_OPTIONS | (_TLS_OPTIONS if scheme.startswith("rediss") else {})
    for name, value in options:
        if not re.fullmatch(known.get(name, "(?!)"), value):
            raise Unfit(f"has an unknown option or an invalid value; the options are {', '.join(known)}")
    return text


def by_host(url: str) -> list[str]:
    """A URL for each host that this one names, everything else as it is. `urllib` of newer Pythons reads no
    URL of several hosts with an IPv6 address among them."""
    found = _BY_HOST.fullmatch(url)
    if found is None:
        return [url]
    before, hosts, after = found.groups()
    return [f"{before}{host}{after}" for host in hosts.split(",")]


def _parts(text: str, schemes: tuple[str, ...]) -> tuple[str, str, str, list[tuple[str, str]]]:
    """Scheme, hosts, path, options."""
    found = _URL.fullmatch(text)
    if not re.fullmatch(r"[!-~]+", text) or found is None or found["scheme"] not in schemes:
        raise ValueError
    for address in re.findall(r"\[(.*?)\]", found["hosts"]):
        IPv6Address(address)  # a ValueError itself
    path, _, query = (found["tail"] or "").partition("#")[0].partition("?")
    return found["scheme"], found["hosts"], path, parse_qsl(query, keep_blank_values=True)


def _ports(hosts: str) -> list[str]:
    return re.findall(r":([0-9]+)(?=,|$)", hosts)


def _check_ports(ports: Iterable[str]) -> None:
    if not all(re.fullmatch(_NUMBER, port) and 1 <= int(port) <= _PORT_MAX for port in ports):
        raise Unfit(f"has a port that is not a number from 1 to {_PORT_MAX}")


def redacted(url: str) -> str:
    """A URL to show to people: `***` for a password, in whichever place, the rest as it is."""
    _, *path = re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)
    if path and "@" in path[0]:
        return re.sub("://.*", "://***", url)  # perhaps a password with an unescaped / ? or #
    hidden = re.sub(r"(://[^/?#:@]*):[^/?#]*@", r"\1:***@", url)
    return re.sub(r"([?&](?:ssl)?password=)[^&#]*", r"\1***", hidden)
