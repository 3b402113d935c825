"""GET /{type}?content= and ?context=: which aggregates of a type have a content, or a context, in their last
record. It needs no list."""

from __future__ import annotations

import re
from typing import Final

from gateway.admit.address import undeclared_type
from gateway.catalog.catalog import Catalog
from gateway.catalog.database import statement
from gateway.catalog.model import Principal
from gateway.errors import Refusal
from gateway.http.api.reads import unavailable
from gateway.http.parameters import Parameters, require_declared
from gateway.http.render import encode
from gateway.http.request import Refused
from gateway.http.response import ReadAnswer
from gateway.postgres.connection_errors import UNANSWERED
from gateway.postgres.shares import Shares
from spec.identifiers import uuid_text

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1_000
_QUERY: Final = ("content", "context", "limit", "cursor")
_DIGEST: Final = re.compile("[0-9a-f]{64}")
_ASKED: Final = re.compile(rb"(?:^|&)conte[nx]t=")


def of_content(method: str, raw_query: bytes) -> bool:
    """Whether a request for a type's path asks for this."""
    return method in ("GET", "HEAD") and _ASKED.search(raw_query) is not None


class Contents:
    def __init__(self, catalog: Catalog, shares: Shares) -> None:
        self._catalog = catalog
        self._shares = shares

    async def get(self, principal: Principal, aggregate_type: str, raw_query: bytes) -> ReadAnswer:
        """A page by key. Raises Refused: an unknown type, one without `identity`, no digest."""
        require_declared(raw_query, _QUERY)
        deployed = self._catalog.deployed(principal.tenant.id)
        spec = None if deployed is None else deployed.reading
        declared = None if spec is None else spec.aggregate_types.get(aggregate_type)
        if declared is None:
            raise Refused(undeclared_type(spec, aggregate_type))
        if declared.identity is None:
            why = f"{aggregate_type} declares no `identity`, so its events have no content."
            raise Refused(Refusal("invalid_field", why, "content"))
        query = Parameters(raw_query)
        content, context = (_digest(query, name) for name in ("content", "context"))
        limit = query.integer("limit", LIMIT_DEFAULT, 1, LIMIT_MAX)
        named = ("find_by_content", content, context) if content is not None else ("find_by_context", context)
        name, *digests = named
        after = query.text("cursor") or ""
        try:
            rows = await self._shares.of(principal.tenant.id.bytes).fetch(
                statement(str(name)), principal.tenant.id, aggregate_type, after, limit + 1, *digests
            )
        except UNANSWERED as error:
            raise Refused(unavailable()) from error
        items = [{"key": row["key"], "event_id": uuid_text(row["id"].bytes)} for row in rows[:limit]]
        following = items[-1]["key"] if len(rows) > limit else None
        return ReadAnswer(encode({"ok": True, "items": items, "next": following}))


def _digest(query: Parameters, name: str) -> bytes | None:
    text = query.text(name)
    if text is None:
        return None
    if not _DIGEST.fullmatch(text):
        raise Refused(Refusal("invalid_field", "This is a SHA-256 in lower-case hex.", name))
    return text.encode()
