"""Answers: status, headers and body to ASGI messages. What every answer carries is said here once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from starlette.responses import Response

from gateway.errors import Refusal
from gateway.http.asgi_extension import ROOM, WHOLE
from gateway.http.render import refusal_json
from gateway.http.request import Message, Refused, Send
from gateway.http.unread import LARGE_BYTES

Headers = list[tuple[bytes, bytes]]

API_VERSION = (b"sluice-api", b"1")
_JSON = (b"content-type", b"application/json")
# An answer is for its tenant only, and may be old a moment later. A cache that is shared all the same is told
# what the answer depends on.
NOT_KEPT = (b"cache-control", b"no-cache, private")
BY_KEY = (b"vary", b"authorization")
PRIVATE = (NOT_KEPT, BY_KEY)
_PRIVATE = {name.decode(): value.decode() for name, value in PRIVATE}
_ALWAYS = b"sluice-api: 1\r\n" + b"".join([b"%b: %b\r\n" % header for header in PRIVATE])
_HEAD = b"content-type: application/json\r\n" + _ALWAYS


async def answer(send: Send, status: int, body: bytes, more: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """One JSON answer, whole. No value in `more` may hold a line break: none is taken from outside unless it
    was held to a grammar without."""
    await send({"type": WHOLE, "status": status, "head": head_lines(body, more), "body": body})


async def answer_with(send: Send, status: int, body: bytes, lines: bytes) -> None:
    """The same with headers in `lines` as they are sent, each with its CR LF."""
    await send({"type": WHOLE, "status": status, "head": head_with(body, lines), "body": body})


def head_lines(body: bytes, more: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The header of a JSON answer as it is sent, each line with its CR LF."""
    return head_with(body, _lines(more))


def head_with(body: bytes, lines: bytes) -> bytes:
    """The same, with more `lines`."""
    return b"%bcontent-length: %d\r\n%b" % (_HEAD, len(body), lines)


def _lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers]) if headers else b""


def json_response(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> Response:
    """The same for endpoints that Starlette serves."""
    told = {"sluice-api": "1", **_PRIVATE, **(headers or {})}
    return Response(body, status, told, media_type="application/json")


def unchanged(headers: Mapping[str, str]) -> Response:
    """304: the client's copy is the current one."""
    return Response(status_code=304, headers={"sluice-api": "1", **_PRIVATE, **headers})


class ReadAnswer(msgspec.Struct, frozen=True, gc=False):
    """A read that is granted: 200, or without a body 304, the client's copy is the current one."""

    body: bytes
    more: tuple[tuple[bytes, bytes], ...] = ()
    status: int = 200

    @property
    def head(self) -> bytes:
        """Its header as it is sent, each line with its CR LF."""
        if self.status == 200:
            return head_lines(self.body, self.more)
        return _ALWAYS + _lines(self.more)


async def answer_read(send: Send, read: ReadAnswer, head_only: bool) -> None:
    """To a HEAD without the body. Raises Refused (429) where the key has not read what it was sent before."""
    if len(read.body) > LARGE_BYTES and not head_only:
        await require_room(send, len(read.body))
    body = b"" if head_only else read.body
    await send({"type": WHOLE, "status": read.status, "head": read.head, "body": body})


async def require_room(send: Send, size: int) -> None:
    """Before a large answer is begun. Raises Refused (429) where the key has not read earlier ones."""
    message: Message = {"type": ROOM, "bytes": size}
    await send(message)
    if refused := message.get("refused"):
        raise Refused(Refusal("rate_limited", refused))


async def refuse(
    send: Send,
    refusal: Refusal,
    more: Iterable[tuple[bytes, bytes]] = (),
    body_more: Mapping[str, object] | None = None,
) -> None:
    """A refusal in the one shape that all have."""
    headers = refusal_headers(refusal, more)
    await answer(send, refusal.http_status, refusal_json(refusal, body_more), headers)


def refusal_headers(refusal: Refusal, more: Iterable[tuple[bytes, bytes]] = ()) -> Headers:
    """What goes with every refusal of its kind, after `more`."""
    headers: Headers = list(more)
    if refusal.code == "unauthorized":
        headers.append((b"www-authenticate", b"Bearer"))
    if refusal.http_status in (429, 503, 504) and not any(name == b"retry-after" for name, _ in headers):
        headers.append((b"retry-after", b"1"))
    if refusal.http_status == 408:
        headers.append((b"connection", b"close"))
    return headers


async def allowed_only(send: Send, method: str, allowed: str) -> None:
    """405 to a method that is not among those `allowed`; to OPTIONS, 204 with what is."""
    allow = (b"allow", allowed.encode())
    if method == "OPTIONS":
        headers = [allow, API_VERSION, *PRIVATE]
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
    else:
        refusal = Refusal("method_not_allowed", f"This path supports only {_listed(allowed)}.")
        await refuse(send, refusal, [allow])


def _listed(allowed: str) -> str:
    """`POST, OPTIONS` as words: POST and OPTIONS."""
    *others, last = allowed.split(", ")
    return f"{', '.join(others)} and {last}" if others else last


def no_such_route() -> Refusal:
    return Refusal("not_found", "No such path. GET /_/openapi.json describes all paths.")
