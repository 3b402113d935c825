"""Aliases in the `{id}` slot: which aggregate is meant, before anything else looks at it; what names it has.

Owns how an alias that names nothing, or too much, is refused. From here on only the canonical key travels:
into the append, the answer, and the `Content-Location` of whatever is answered.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterable

from starlette.requests import Request
from starlette.responses import Response

from gateway.admit.path import split
from gateway.aliases.assigner import Assigner
from gateway.aliases.kinds import names_of_type
from gateway.aliases.resolver import Ambiguous, Resolver
from gateway.aliases.store import Found, Store
from gateway.catalog.model import Principal
from gateway.errors import Refusal
from gateway.events import Stream
from gateway.http import response
from gateway.http.api.reads import Reads, Subject, never_written, unavailable
from gateway.http.asgi_extension import WHOLE
from gateway.http.parameters import Parameters
from gateway.http.render import encode
from gateway.http.request import Message, Refused, Send
from gateway.http.response import ReadAnswer
from gateway.log.log import Log
from gateway.names.aliases import SIGIL, Alias, Kind, Malformed, parse_alias
from gateway.names.hash_ids import CHILD_NUMBER_MAX
from gateway.postgres.errors import PostgresTrouble
from spec.errors import shown
from spec.identifiers import GLOBAL
from spec.model import Spec

CHILDREN_DEFAULT = 100
CHILDREN_MAX = 1_000

NAMES_WAIT_S = 5
"""That `Prefer: wait` holds back a 201; names take about a hundredth of it."""


class Aliases:
    def __init__(
        self,
        log: Log,
        reads: Reads,
        store: Store,
        resolver: Resolver,
        assigner: Assigner,
    ) -> None:
        self._log = log
        self._reads = reads
        self._store = store
        self._resolver = resolver
        self._assigner = assigner

    def known(self, principal: Principal, aggregate_type: str, text: str) -> Subject | None:
        """The aggregate of a read whose id is `text`, sigil and all, if that is in memory and declared."""
        found = self._resolver.known(principal.tenant.id.bytes, text[1:])
        if found is None or found.aggregate_type != aggregate_type:
            return None
        try:
            return self._reads.subject(principal, aggregate_type, found.key, aliased=True)
        except Refused:
            return None

    async def subject(self, principal: Principal, aggregate_type: str, text: str) -> Subject:
        """The same wherever it is; what is stored stays readable (`Reads.stored`). Raises Refused: unknown
        type, no alias, one that names nothing of this type, or too much."""
        try:
            found = await self._resolve(principal, text, aggregate_type)
        except PostgresTrouble as trouble:
            raise Refused(unavailable()) from trouble
        except Refused:
            self._reads.subject(principal, aggregate_type, GLOBAL)  # an unknown type comes first
            raise
        return await self._reads.stored(principal, aggregate_type, found.key, aliased=True)

    async def exact(self, principal: Principal, aggregate_type: str, text: str) -> str | Refusal:
        """The key that a write means by an exact alias, or why there is none: that is refused in its turn,
        after the types. Raises Refused where that is not known now."""
        try:
            return (await self._resolve(principal, text, aggregate_type, exact=True)).key
        except Refused as refused:
            return refused.refusal
        except PostgresTrouble as trouble:
            why = "The event will never appear: Postgres does not answer, and the alias needs it."
            raise Refused(Refusal("not_committed", why)) from trouble

    async def given(self, spec: Spec | None, stream: Stream) -> tuple[str, ...] | None:
        """The aliases of an aggregate that is written, once it has them; None where it has none and its type
        gets none."""
        gets_names = spec is not None and bool(names_of_type(spec, stream.aggregate_type))
        try:
            if gets_names:
                found = await self._assigner.named(stream, NAMES_WAIT_S)
            else:
                found = await self._store.aliases_of(stream)
        except PostgresTrouble:
            return ()  # it is committed all the same, and its names will follow
        if not found and not gets_names:
            return None
        return tuple([each.alias.text for each in found if not each.retired])

    async def as_a_child(self, stream: Stream) -> tuple[str, ...]:
        """The name that a child was given before it was written."""
        try:
            found = await self._store.aliases_of(stream)
        except PostgresTrouble:
            return ()
        return tuple([each.alias.text for each in found if each.alias.kind is Kind.HASH])

    async def hash_id_of_key(self, tenant: bytes, key: str, types: Iterable[str]) -> Found | None:
        """The oldest hash id that a key has as an aggregate of one of these types. Raises PostgresTrouble."""
        return await self._store.hash_id_of_key(tenant, key, types)

    async def meant(self, principal: Principal, text: str) -> Found:
        """What an exact alias names, of whatever type. Raises Refused and PostgresTrouble."""
        return await self._resolve(principal, text, None, exact=True)

    async def names(self, spec: Spec, stream: Stream) -> list[Found]:
        """The names of an aggregate; one that is written and about to get some is waited for. Raises
        PostgresTrouble."""
        found = await self._store.aliases_of(stream)
        if found or not names_of_type(spec, stream.aggregate_type) or not await self._log.length(stream):
            return found
        return await self._assigner.named(stream, NAMES_WAIT_S)

    async def of(self, subject: Subject) -> ReadAnswer:
        """GET /{type}/{id}/aliases. 404 for an aggregate that was never written and has no name either."""
        try:
            found = await self._store.aliases_of(subject.stream)
            if not found and not subject.singleton and await self._log.length(subject.stream) == 0:
                raise Refused(never_written(subject))
        except PostgresTrouble as trouble:
            raise Refused(unavailable()) from trouble
        told: dict[str, object] = {
            "ok": True,
            "key": subject.stream.key,
            "aliases": [each.alias.text for each in found if not each.retired],
        }
        if retired := [each.alias.text for each in found if each.retired]:
            told["retired"] = retired
        return ReadAnswer(encode(told))

    async def children(self, subject: Subject, query: Parameters) -> ReadAnswer:
        """GET /{type}/{id}/children: by their numbers, under the aggregate's oldest hash id."""
        limit = query.integer("limit", CHILDREN_DEFAULT, 1, CHILDREN_MAX)
        after = _number_in(query)
        stream = subject.stream
        try:
            names = await self._store.aliases_of(stream)
            if not names and not subject.singleton and await self._log.length(stream) == 0:
                raise Refused(never_written(subject))
            own = next((each.alias for each in names if each.alias.kind is Kind.HASH), None)
            found = []
            if own is not None:
                found = await self._store.children_of(stream.tenant, own, after, limit + 1)
        except PostgresTrouble as trouble:
            raise Refused(unavailable()) from trouble
        told: dict[str, object] = {
            "ok": True,
            "key": stream.key,
            "alias": None if own is None else own.text,
            "children": [
                {"alias": each.alias.text, "aggregate_type": each.aggregate_type, "key": each.key}
                for each in found[:limit]
            ],
            "next": int(found[limit - 1].alias.path.rpartition(".")[2]) if len(found) > limit else None,
        }
        return ReadAnswer(encode(told))

    async def resolve(self, request: Request) -> Response:
        """GET /_/resolve/@{alias}: of any type."""
        segments = split(request.scope["raw_path"].partition(b"?")[0])
        if segments is None or len(segments) != _RESOLVE_SEGMENTS:
            raise Refused(response.no_such_route())
        text = segments[-1]
        if text is None or not text.startswith(SIGIL):
            why = _UNDECODABLE if text is None else f"An alias is requested with its sigil: {SIGIL}VNO-42."
            raise Refused(Refusal("invalid_identifier", why, "key"))
        try:
            found = await self._resolve(request.scope["sluice.principal"], text, None, fresh=True)
        except PostgresTrouble as trouble:
            raise Refused(unavailable()) from trouble
        told: dict[str, object] = {
            "ok": True,
            "aggregate_type": found.aggregate_type,
            "key": found.key,
            "alias": found.alias.text,
        }
        if found.retired:
            told["retired"] = True
        location = f"/{found.aggregate_type}/{found.key}"
        return response.json_response(200, encode(told), {"content-location": location})

    async def _resolve(
        self,
        principal: Principal,
        text: str,
        aggregate_type: str | None,
        *,
        exact: bool = False,
        fresh: bool = False,
    ) -> Found:
        """Raises Refused and PostgresTrouble."""
        alias = parse_alias(text.removeprefix(SIGIL))
        if isinstance(alias, Malformed):
            raise Refused(Refusal("invalid_identifier", alias.reason, "key"))
        tenant = principal.tenant.id.bytes
        resolve = self._resolver.look if fresh else self._resolver.resolve
        match await resolve(tenant, alias, aggregate_type, exact=exact):
            case Ambiguous(candidates):
                why = (
                    f"{shown(alias.text)} is ambiguous: it abbreviates more than one alias; write more of it."
                )
                raise Refused(Refusal("ambiguous_alias", why, "key", candidates=candidates))
            case Found() as found:
                return found
            case None:
                raise Refused(_unknown(alias, aggregate_type, exact=exact))


_RESOLVE_SEGMENTS = 3
_NUMBER = re.compile("[0-9]{1,19}")
_UNDECODABLE = "The alias is not valid percent-encoded UTF-8, or holds control characters."


def _number_in(query: Parameters) -> int:
    """The number behind which a page begins. Raises Refused."""
    text = query.text("after") or "0"
    if not _NUMBER.fullmatch(text) or int(text) > CHILD_NUMBER_MAX:
        raise Refused(Refusal("invalid_field", "`after` is the `next` of the previous page.", "after"))
    return int(text)


def _unknown(alias: Alias, aggregate_type: str | None, *, exact: bool) -> Refusal:
    what = "aggregate" if aggregate_type is None else aggregate_type
    why = f"There is no {what} with the alias {shown(alias.text)}."
    return Refusal("unknown_alias", f"{why} Only reads take abbreviations." if exact else why, "key")


def location_line(aggregate_type: str, key: str) -> bytes:
    """The header of what is granted to an alias, as it is sent."""
    return f"content-location: /{aggregate_type}/{key}\r\n".encode()


def located(send: Send, aggregate_type: str, key: str) -> Send:
    """The same, with `Content-Location: /{type}/{key}` on what is granted."""
    location = f"/{aggregate_type}/{key}".encode()
    line = location_line(aggregate_type, key)

    def send_located(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start" and message["status"] < 400:
            message["headers"] = [*message["headers"], (b"content-location", location)]
        elif message["type"] == WHOLE and message["status"] < 400:
            message["head"] += line
        return send(message)

    return send_located
