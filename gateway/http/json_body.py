"""The body of a request that is neither an append nor a line of one, as a value.

Owns: where it is decoded. Must not know: what it is about.
"""

from __future__ import annotations

from functools import partial

from gateway.admit.strict_json import Malformed, decode
from gateway.aside import Aside, Busy
from gateway.catalog.model import Principal
from gateway.errors import Refusal
from gateway.http.request import Refused
from spec.violations import WEIGHT_MIN, is_light


async def decoded(aside: Aside, principal: Principal, body: bytes) -> object:
    """Its value; a large one is decoded beside other requests. Raises Refused: it is not JSON, or too much
    of this tenant's waits already."""
    if is_light(body, WEIGHT_MIN):
        value = decode(body)
    else:
        try:
            value = await aside.run(principal.tenant.id.bytes, partial(decode, body))
        except Busy as busy:
            raise Refused(Refusal("unavailable", busy.why)) from busy
    if isinstance(value, Malformed):
        raise Refused(Refusal("invalid_json", value.reason))
    return value
