"""`GET /_/receipts`: what a committed append was answered, by what its client chose to recognize it by.

Owns: the query and the answer. A program that comes back from a crash learns here what it did. Must not know
how identities are kept (`log`).
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from gateway.admit.line import read_key
from gateway.appends import event_identity, identity
from gateway.errors import Refusal
from gateway.http import outcomes, response
from gateway.http.api.reads import unavailable
from gateway.http.parameters import Parameters, uuid_of
from gateway.http.request import Refused
from gateway.log.log import Log
from gateway.postgres.errors import PostgresTrouble


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
            raise Refused(unavailable()) from trouble
        if found is None:
            raise Refused(Refusal("not_found", f"No committed append has {shown}."))
        return response.json_response(200, outcomes.appended(found, batch=found.of_batch).body)


def _named(query: Parameters, tenant: bytes) -> tuple[bytes, bytes | None, str]:
    """The identity, the event id where it is one, and words for both. Raises Refused."""
    key, event_id = query.text("idempotency_key"), query.text("event_id")
    why = "Name the append by one of `idempotency_key` and `event_id`."
    if key is None and event_id is None:
        raise Refused(Refusal("missing_field", why, "idempotency_key"))
    if key is not None and event_id is not None:
        raise Refused(Refusal("invalid_field", why, "idempotency_key"))
    if event_id is None:
        chosen = read_key(key)
        if isinstance(chosen, Refusal):
            raise Refused(chosen)
        return identity(tenant, "key", chosen.encode()), None, "this Idempotency-Key"
    event = uuid_of(event_id, "event_id")
    return event_identity(tenant, event.bytes), event.bytes, f"the event id {event}"
