"""/_/webhooks/{tenant}/{source}: how a webhook is read, and how what became of it is told over HTTP.

No key opens this path: the source's signature does. Owns the body's cap and the answers; everything between
is the intake's. Which tenants and sources there are is known from memory, so no stranger reaches a
database; where that is stale, one look at Postgres serves all deliveries that wait.
"""

from __future__ import annotations

from functools import partial
from typing import Final, assert_never

from gateway.admit.path import split
from gateway.catalog.catalog import Catalog
from gateway.catalog.model import Scope as KeyScope
from gateway.config import Config
from gateway.errors import Refusal
from gateway.http import response
from gateway.http.addresses import Addresses
from gateway.http.authentication import spec_unread
from gateway.http.bounds import Bounded, Received
from gateway.http.correlation import NAME, line_of
from gateway.http.render import position_text, refusal_json
from gateway.http.request import Head, Receive, Refused, Scope, Send, content_length, read_body, too_large
from gateway.http.server.fast_path import Reply
from gateway.inbound.handshakes import REFUSED, Answered, echoed
from gateway.inbound.intake import Intake
from gateway.inbound.receipts import Place, place_of
from gateway.inbound.request import Request
from gateway.inbound.results import Accepted, Deferred, Result, Told
from gateway.inbound.verdicts import Rejected
from gateway.telemetry.metrics import Metrics
from spec.identifiers import uuid_text

PREFIX: Final = b"/_/webhooks/"
"""Below it a signature is the key."""
BAD_SIGNATURE: Final = "The request's signature is missing, too old or wrong."
"""All that a sender learns of it."""
_PLACES_MAX: Final = 1_024
"""Paths whose sources are remembered."""
_ASKED_BY_GET = (
    "validation_token",
    "hub_challenge",
    "hub_challenge_json",
    "crc",
    "bt_challenge",
    "challenge",
    "okta",
    "client_id",
)
_METHODS = ("POST", "GET", "HEAD", "OPTIONS")
_CLOSED = Refusal(
    "not_committed",
    "The event will never appear by this request: this gateway can't read the source, or a secret of it.",
)
_RESTING = Refusal("not_committed", "The event will never appear by this request: the tenant is suspended.")
_REJECTED = Refusal("unauthorized", BAD_SIGNATURE)
_ACCEPTED = b'{"ok":true,"event_id":"%b","duplicate":%b,"position":"%b"}'
_QUARANTINED = b'{"ok":true,"quarantined":true,"event_id":null}'
_QUARANTINED_ITEM = b'{"ok":true,"quarantined":true,"event_id":null,"duplicate":false}'
_IGNORED = b'{"ok":true,"ignored":true,"event_id":null}'
_NOSNIFF = (b"x-content-type-options", b"nosniff")


class Webhooks:
    def __init__(
        self,
        intake: Intake,
        catalog: Catalog,
        addresses: Addresses,
        bodies: Bounded,
        config: Config,
        metrics: Metrics,
    ) -> None:
        self._addresses = addresses
        self._bodies = bodies
        self._responses = metrics.responses
        self._intake = intake
        self._catalog = catalog
        self._places: dict[bytes, Place] = {}  # that were found, by path; of sources only
        self._bytes_max = config.webhook_bytes_max
        self._timeout_s = config.body_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method: str = scope["method"]
        place = await self._current(scope["raw_path"])
        if method not in _METHODS:
            await response.allowed_only(send, method, _allowed(place))
            return
        head = Head(scope)
        if head.get(b"content-encoding") is not None:
            why = "Send the body as it is, without Content-Encoding."
            raise Refused(Refusal("unsupported_media_type", why, "Content-Encoding"))
        if content_length(head) > self._bytes_max:
            raise Refused(too_large(self._bytes_max))
        received = Received(self._bodies, self._addresses.client(head) or "", receive)
        try:
            body = await read_body(received.receive, self._bytes_max, self._timeout_s)
        finally:
            received.end()
        path, _, _ = scope["raw_path"].partition(b"?")
        place = await self._current(path)  # a body may come slowly, and another spec be deployed meanwhile
        asked = b"GET" if method == "HEAD" else method.encode()  # whose answer's body is left out on its way
        request = Request(asked, path, scope["query_string"], tuple(scope["headers"]), body)
        if method == "POST":
            await _tell(send, await self._intake.receive(place, request), echoed(place.source, request))
            return
        answered = self._intake.greeted(place, request)
        if answered is None:
            await response.allowed_only(send, method, _allowed(place))
        else:
            await _tell(send, answered, [])

    def take(self, target: bytes, headers: dict[bytes, bytes], body: bytes, reply: Reply) -> bool:
        """As the fast path does: a delivery that waits for nothing but its append, or False."""
        if not self._catalog.fresh:
            return False
        path, _, query = target.partition(b"?")
        if len(body) > self._bytes_max or b"content-encoding" in headers:
            return False
        try:
            place = self._known(path) or self._place(path)
        except Refused:
            return False
        request = Request(b"POST", path, query, tuple(headers.items()), body)
        echo = echoed(place.source, request)
        return self._intake.at_once(
            place, request, partial(self._reply, reply, echo, line_of(headers.get(NAME)))
        )

    def _reply(
        self, reply: Reply, echo: response.Headers, correlation: bytes, result: Accepted | Deferred
    ) -> None:
        status, body, more = _told(result, echo)
        self._responses["POST", status] += 1
        reply(status, response.head_lines(body, more) + correlation, body)

    async def _current(self, raw_path: bytes) -> Place:
        """As `_place`, by a spec that is young enough: a gateway that stood still, or is cut off from
        Postgres, can't know that a secret was replaced. Raises CatalogUnavailable too."""
        if not self._catalog.fresh:
            await self._catalog.refresh()  # one try serves all that wait for it
        path = raw_path.partition(b"?")[0]
        return self._known(path) or self._place(path)

    def _known(self, path: bytes) -> Place | None:
        """As `_place` found it for a request before, if nothing was deployed since."""
        place = self._places.get(path)
        if place is None or self._catalog.deployed(place.tenant.id) is not place.deployed:
            return None
        if self._catalog.resting(place.tenant.id):
            return None
        return place if self._catalog.tenant(place.tenant.name) is place.tenant else None

    def _place(self, raw_path: bytes) -> Place:
        """Raises Refused: no such source (404), or none that can be verified here (503)."""
        path = raw_path.partition(b"?")[0]
        segments = split(path) or ()
        if len(segments) == 4 and segments[2] is not None and segments[3] is not None:
            tenant = self._catalog.tenant(segments[2])
            deployed = None if tenant is None else self._catalog.deployed(tenant.id)
            source = None if deployed is None else deployed.spec.webhooks.get(segments[3])
            if tenant is not None and self._catalog.resting(tenant.id):
                raise Refused(_RESTING)
            if tenant is not None and deployed is not None and source is not None:
                if len(self._places) >= _PLACES_MAX:  # a path has many spellings
                    self._places.clear()
                place = self._places[path] = place_of(tenant, deployed, source)
                return place
            if deployed is not None and segments[3] in deployed.closed:
                raise Refused(_CLOSED)
            if tenant is not None and self._catalog.unserved(tenant.id):
                raise Refused(spec_unread(KeyScope.WRITE))
        raise Refused(
            Refusal("not_found", "There is no such source of webhooks: /_/webhooks/{tenant}/{source}.")
        )


def _allowed(place: Place) -> str:
    return "GET, HEAD, POST, OPTIONS" if place.source.handshake in _ASKED_BY_GET else "POST, OPTIONS"


async def _tell(send: Send, result: Result, echo: response.Headers) -> None:
    match result:
        case Answered():
            await _answer_handshake(send, result)
        case Rejected():
            await response.refuse(send, _REJECTED)
        case Accepted() | Deferred():
            await response.answer(send, *_told(result, echo))
        case _:
            assert_never(result)


def _told(result: Accepted | Deferred, echo: response.Headers) -> tuple[int, bytes, response.Headers]:
    """Status, body, headers; `echo` goes with a 202."""
    if isinstance(result, Accepted):
        told = result.deliveries
        return 202, _batch_json(told) if result.batch else _told_json(told[0]), echo
    why = result.why
    refusal = Refusal("not_committed", f"The event will never appear by this request: {why}.")
    if result.unknown:
        words = f"The event may or may not appear: {why}. Send it again."
        refusal = Refusal("outcome_unknown", words, status=503)
    retry = (b"retry-after", b"%d" % result.retry_after_s)
    return refusal.http_status, refusal_json(refusal), response.refusal_headers(refusal, [retry])


async def _answer_handshake(send: Send, answered: Answered) -> None:
    if answered == REFUSED:
        await response.refuse(
            send,
            Refusal("forbidden", "The handshake's token or signature is missing or wrong."),
        )
        return
    headers = [(b"content-type", answered.content_type), _NOSNIFF, response.API_VERSION]
    headers += [*response.PRIVATE, *answered.headers]
    if answered.status != 204:
        headers.append((b"content-length", b"%d" % len(answered.body)))
    await send({"type": "http.response.start", "status": answered.status, "headers": headers})
    await send({"type": "http.response.body", "body": answered.body})


def _told_json(told: Told) -> bytes:
    if told.event_id is None:
        return _IGNORED if told.ignored else _QUARANTINED
    duplicate = b"true" if told.duplicate else b"false"
    return _ACCEPTED % (uuid_text(told.event_id).encode(), duplicate, position_text(told.last).encode())


def _batch_json(deliveries: tuple[Told, ...]) -> bytes:
    items = [
        _QUARANTINED_ITEM if each.event_id is None and not each.ignored else _told_json(each)
        for each in deliveries
    ]
    return b'{"ok":true,"events":[%b]}' % b",".join(
        [b"{" + item.removeprefix(b'{"ok":true,') for item in items]
    )
