"""Reads an nginx configuration; holds it against what nginx documents of the directives in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

TOKEN = re.compile(r"""#[^\n]*|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[{};]|(?:[^\s{};'"#]|(?<=\S)[#'"])+""")


@dataclass(frozen=True, slots=True)
class Directive:
    """`block` is None for one that ends in a semicolon."""

    name: str
    args: tuple[str, ...]
    block: tuple[Directive, ...] | None = field(default=None)

    def all(self, name: str) -> list[Directive]:
        """Those in its block."""
        return [each for each in self.block or () if each.name == name]

    def one(self, name: str) -> Directive:
        (found,) = self.all(name)
        return found

    def value(self, name: str) -> str:
        """The one argument of the one `name` in its block."""
        (argument,) = self.one(name).args
        return argument


def parse(text: str) -> Directive:
    """The file as the block of a directive `main`. Raises ValueError where it is not well-formed."""
    tokens = [token for token in TOKEN.findall(text) if not token.startswith("#")]
    rest = iter(tokens)
    block = tuple(_block(rest, nested=False))
    return Directive("main", (), block)


def _block(tokens: Iterator[str], *, nested: bool) -> Iterator[Directive]:
    words: list[str] = []
    for token in tokens:
        if token == ";":
            yield _directive(words, None)
            words = []
        elif token == "{":
            yield _directive(words, tuple(_block(tokens, nested=True)))
            words = []
        elif token == "}":
            if words or not nested:
                raise ValueError(f"unexpected }} after {words}")
            return
        else:
            words.append(token)
    if words or nested:
        raise ValueError(f"the file ends within {words or 'a block'}")


def _directive(words: list[str], block: tuple[Directive, ...] | None) -> Directive:
    if not words:
        raise ValueError("a directive without a name")
    return Directive(words[0], tuple(_unquoted(word) for word in words[1:]), block)


def _unquoted(word: str) -> str:
    return word[1:-1] if word[0] in "'\"" and word[-1] == word[0] else word


HTTP = ("http", "server", "location")
# Where each directive may stand, with a block of its own or how many arguments (None: any number).
BLOCKS: dict[str, tuple[str, ...]] = {
    "events": ("main",),
    "http": ("main",),
    "upstream": ("http",),
    "server": ("http",),
    "location": ("server",),
    "if": ("location",),
    "map": ("http",),
}
SIMPLE: dict[str, tuple[tuple[str, ...], int, int | None]] = {
    "worker_processes": (("main",), 1, 1),
    "worker_rlimit_nofile": (("main",), 1, 1),
    "pid": (("main",), 1, 1),
    "error_log": (("main", *HTTP), 1, 2),
    "worker_connections": (("events",), 1, 1),
    "server": (("upstream",), 1, None),
    "keepalive": (("upstream",), 1, 1),
    "keepalive_timeout": (("upstream", *HTTP), 1, 2),
    "limit_req_status": (HTTP, 1, 1),
    "limit_conn_status": (HTTP, 1, 1),
    "listen": (("server",), 1, None),
    "server_name": (("server",), 1, None),
    "merge_slashes": (("http", "server"), 1, 1),
    "client_header_timeout": (("http", "server"), 1, 1),
    "client_header_buffer_size": (("http", "server"), 1, 1),
    "large_client_header_buffers": (("http", "server"), 2, 2),
    "ssl_session_cache": (("http", "server"), 1, 2),
    "proxy_set_header": (HTTP, 2, 2),
    "add_header": ((*HTTP, "if"), 2, 3),
    "error_page": ((*HTTP, "if"), 2, None),
    "proxy_pass": (("location", "if"), 1, 1),
    "proxy_next_upstream": (HTTP, 1, None),
    "internal": (("location",), 0, 0),
    "return": (("server", "location", "if"), 1, 2),
    "log_format": (("http",), 2, None),
    "access_log": ((*HTTP, "if"), 1, None),
    **dict.fromkeys(
        ("ssl_certificate", "ssl_certificate_key", "ssl_session_tickets"), (("http", "server"), 1, 1)
    ),
    "ssl_protocols": (("http", "server"), 1, None),
    **dict.fromkeys(
        (
            "client_body_timeout",
            "client_max_body_size",
            "default_type",
            "proxy_buffering",
            "proxy_connect_timeout",
            "proxy_http_version",
            "proxy_next_upstream_tries",
            "proxy_read_timeout",
            "proxy_request_buffering",
            "proxy_send_timeout",
            "reset_timedout_connection",
            "send_timeout",
            "server_tokens",
            "client_body_temp_path",
            "fastcgi_temp_path",
            "proxy_temp_path",
            "scgi_temp_path",
            "uwsgi_temp_path",
        ),
        (HTTP, 1, 1),
    ),
}


def faults(block: Directive, context: str = "main") -> Iterator[str]:
    """What nginx would refuse, in words."""
    for each in block.block or ():
        if context == "map" and each.block is None:
            if len(each.args) != 1:
                yield f"a line of a map has one value: {each.name} {each.args}"
        elif each.block is not None:
            if context not in BLOCKS.get(each.name, ()):
                yield f"{each.name} {{…}} can't stand in {context}"
            yield from faults(each, each.name)
        elif each.name not in SIMPLE:
            yield f"{each.name} is not known"
        else:
            contexts, least, most = SIMPLE[each.name]
            if context not in contexts:
                yield f"{each.name} can't stand in {context}"
            if len(each.args) < least or (most is not None and len(each.args) > most):
                yield f"{each.name} can't have {len(each.args)} arguments"


def in_bytes(size: str) -> int:
    units = {"k": 1024, "m": 1024**2, "g": 1024**3}
    return int(size[:-1]) * units[size[-1].lower()] if size[-1].isalpha() else int(size)


def in_seconds(time: str) -> float:
    found = re.fullmatch(r"(\d+)(ms|s|m|h)?", time)
    assert found, time
    return int(found[1]) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600, None: 1}[found[2]]
