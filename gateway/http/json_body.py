"""The body of a request that is neither an append nor a line of one, as a value.

Owns: where it is decoded, and that it has no other fields. Must not know: what it is about.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from starlette.requests import Request

from gateway.admit.strict_json import Malformed, decode
from gateway.aside import Aside, Busy
from gateway.catalog.model import Principal
from gateway.config import Config
from gateway.errors import Refusal
from gateway.http.request import Head, Refused, check_json_body, content_length, read_body
from spec.errors import nearest, shown
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


async def read_object(
    request: Request, aside: Aside, config: Config, known: Collection[str], *, needed: bool = True
) -> dict[str, object]:
    """The body, an object of some of the fields `known`; null counts as absent, and so does a body that is
    not `needed`. Raises Refused."""
    head = Head(request.scope)
    if not needed and not content_length(head) and head.get(b"transfer-encoding") is None:
        return {}
    return (await read_object_and_text(request, aside, config, known))[0]


async def read_object_and_text(
    request: Request, aside: Aside, config: Config, known: Collection[str]
) -> tuple[dict[str, object], bytes]:
    """The same of a body that is needed, and its bytes, for values that are stored as they were sent."""
    head = Head(request.scope)
    refusal = check_json_body(head, config.body_bytes_max)
    if refusal is not None:
        raise Refused(refusal)
    text = await read_body(request.receive, config.body_bytes_max, config.body_timeout_s)
    body = await decoded(aside, request.scope["sluice.principal"], text)
    if not isinstance(body, dict):
        raise Refused(Refusal("invalid_field", "The body must be an object."))
    for name in body:
        if name not in known:
            why = f"{shown(name)} is not a field here{nearest(name, known)}."
            raise Refused(Refusal("unknown_field", why, name[:64]))
    return {name: value for name, value in body.items() if value is not None}, text


def require_known(value: Mapping[str, object], known: Collection[str], of: str = "", path: str = "") -> None:
    """Of a body, or of the object `of` at `path` in it. Raises Refused."""
    for name in value:
        if name not in known:
            short = name[:64]
            if not of:
                raise Refused(Refusal("unknown_field", f"There is no field {short!r} here.", short))
            raise Refused(Refusal("unknown_field", f"{of} has no {short!r}.", f"{path}.{short}"))
