"""Answers: status, headers and body to ASGI messages. What every answer carries is said here once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from starlette.responses import Response

from gateway.edge.cycle import WHOLE
from gateway.edge.render import refusal_json
from gateway.edge.request import Send
from gateway.errors import Refusal

Headers = list[tuple[bytes, bytes]]

API_VERSION = (b"sluice-api", b"1")
_JSON = (b"content-type", b"application/json")
_HEAD = b"content-type: application/json\r\nsluice-api: 1\r\n"
# The state of an aggregate is its tenant's alone, and old as soon as it is appended to.
_NO_STORE = (b"cache-control", b"no-cache, private")


async def answer(send: Send, status: int, body: bytes, more: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """One JSON answer, whole. No value in `more` may hold a line break: none is taken from outside unless it
    was held to a grammar without."""
    if getattr(send, "knows_whole_answers", False):
        await send({"type": WHOLE, "status": status, "head": head_lines(body, more), "body": body})
        return
    length = (b"content-length", b"%d" % len(body))
    await send(
        {"type": "http.response.start", "status": status, "headers": [_JSON, length, API_VERSION, *more]}
    )
    await send({"type": "http.response.body", "body": body})


def head_lines(body: bytes, more: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The header of a JSON answer as it is sent, each line with its CR LF."""
    lines = [b"%b: %b\r\n" % header for header in more]
    return b"%bcontent-length: %d\r\n%b" % (_HEAD, len(body), b"".join(lines))


def json_response(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> Response:
    """The same for endpoints that Starlette serves."""
    return Response(body, status, {"sluice-api": "1", **(headers or {})}, media_type="application/json")


async def answer_read(
    send: Send, body: bytes, head_only: bool, more: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """200 to a GET; to a HEAD the same without the body."""
    if not head_only:
        await answer(send, 200, body, (_NO_STORE, *more))
        return
    headers = [_JSON, (b"content-length", b"%d" % len(body)), API_VERSION, _NO_STORE, *more]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def not_modified(send: Send, more: Iterable[tuple[bytes, bytes]]) -> None:
    """304: the client's copy is the current one."""
    await send({"type": "http.response.start", "status": 304, "headers": [API_VERSION, _NO_STORE, *more]})
    await send({"type": "http.response.body", "body": b""})


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
        await send({"type": "http.response.start", "status": 204, "headers": [allow, API_VERSION]})
        await send({"type": "http.response.body", "body": b""})
    else:
        await refuse(send, Refusal("method_not_allowed", f"This path answers {allowed} alone."), [allow])


def no_such_route() -> Refusal:
    return Refusal("not_found", "There is no such path. docs/http-api.md lists what there is.")
