"""`GET /_/receipts`: what a committed append was answered, by what its client chose to recognize it by.

Owns: the query and the answer. A program that comes back from a crash learns here what it did. Must not know
how identities are kept (`log`).
"""

from __future__ import annotations

import re
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from gateway.errors import Refusal
from gateway.events import event_identity, identity
from gateway.http import outcomes, response
from gateway.http.parameters import Parameters
from gateway.http.request import Refused
from gateway.log.log import Log
from gateway.log.postgres import PostgresTrouble
from gateway.relay.position import Place, encode_alone

_KEY: Final = re.compile(r"[!-~]{1,255}")
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)


class Receipts:
    def __init__(self, log: Log) -> None:
        self._log = log

    async def get(self, request: Request, tenant: bytes) -> Response:
        """The receipt of the append, with the feed's position behind its last event. Raises Refused: 422
        where the query does not name one identity, 404 where no committed append has it, 503."""
        chosen, event_id, shown = _named(Parameters(request.scope["query_string"]), tenant)
        try:
            found = await self._log.receipt(tenant, chosen, event_id)
        except PostgresTrouble as trouble:
            why = "Postgres does not answer, and this read needs it. Try again shortly."
            raise Refused(Refusal("unavailable", why)) from trouble
        if found is None:
            raise Refused(Refusal("not_found", f"No committed append has {shown}."))
        body = outcomes.appended(found.done, batch=len(found.done.event_ids) > 1).body
        position = encode_alone(found.p, Place(found.last_seq, found.mark))
        return response.json_response(200, b'%b,"position":"%b"}' % (body[:-1], position.encode()))


def _named(query: Parameters, tenant: bytes) -> tuple[bytes, bytes | None, str]:
    """The identity, the event id where it is one, and words for both. Raises Refused."""
    key, event_id = query.text("idempotency_key"), query.text("event_id")
    if (key is None) == (event_id is None):
        why = "Name the append by one of `idempotency_key` and `event_id`."
        raise Refused(Refusal("missing_field" if key is None else "invalid_field", why, "idempotency_key"))
    if event_id is None:
        assert key is not None
        if not _KEY.fullmatch(key):
            why = "`idempotency_key` must be 1 to 255 visible ASCII characters, without blanks."
            raise Refused(Refusal("invalid_field", why, "idempotency_key"))
        return identity(tenant, "key", key.encode()), None, "this Idempotency-Key"
    if not _UUID.fullmatch(event_id):
        raise Refused(Refusal("invalid_field", "An event's id is a UUID.", "event_id"))
    raw = bytes.fromhex(event_id.replace("-", ""))
    return event_identity(tenant, raw), raw, f"the event id {event_id.lower()}"
