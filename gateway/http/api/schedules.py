"""/_/schedules: timers that specs declare or clients set: list, cancel, run, move."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gateway.admit.address import RESERVED, bad_identifier, undeclared_event, undeclared_type
from gateway.admit.preconditions import read_asked
from gateway.admit.query import UNIX_SECONDS_MAX, UNIX_SECONDS_MIN
from gateway.aggregates.implied import NotAdmitted, SchemaWork, admitted
from gateway.aside import Aside, Busy
from gateway.catalog.catalog import Catalog
from gateway.catalog.model import Deployed, Principal
from gateway.config import Config
from gateway.errors import Refusal
from gateway.http.json_body import read_object, read_object_and_text, require_known
from gateway.http.outcomes import refused
from gateway.http.parameters import Parameters, uuid_of
from gateway.http.render import encode, raw
from gateway.http.request import Refused
from gateway.http.response import json_response
from gateway.json_values import decode_data
from gateway.postgres.errors import PostgresTrouble
from gateway.postgres.shares import Shares
from gateway.reactions.database import fetch
from gateway.reactions.pending import Pending
from gateway.reactions.timers import Emission, Watched, time_of, timer_id
from spec.identifiers import canonicalize
from spec.implications import read_delay
from spec.violations import is_light

LISTED_DEFAULT, LISTED_MAX = 50, 1_000
PAGE_BYTES: Final = 4 * 1024 * 1024
"""Of the events of a page's timers, or of the states of its sagas; and one more."""
STATES: Final = ("pending", "fired", "cancelled", "parked")
_UNAVAILABLE: Final = Refusal(
    "unavailable", "Postgres, which stores schedules, does not answer. Try again shortly."
)
_KEYS: Final = (b"idempotency-key", b"x-idempotency-key")
_SAME_S: Final = 0.001
"""A float of seconds has microseconds, as Postgres has; and rounds."""
_NOTHING: Final = UUID(int=0)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_BEFORE_ALL: Final = UNIX_SECONDS_MIN * 1_000_000, _NOTHING


class _SentEmit(msgspec.Struct):
    data: msgspec.Raw = msgspec.Raw(b"{}")


class _Sent(msgspec.Struct):
    """A body that was read, of which the data are stored byte for byte."""

    emit: _SentEmit


_sent = msgspec.json.Decoder(_Sent).decode
_emission_of = msgspec.json.Decoder(Emission).decode

PositionOf = Callable[[bytes], Any]


class Schedules:
    """`head_of` says where the tenant's feed ends: what cancels is looked for behind it."""

    def __init__(
        self, shares: Shares, catalog: Catalog, head_of: PositionOf, aside: Aside, config: Config
    ) -> None:
        self._shares = shares
        self._catalog = catalog
        self._head_of = head_of
        self._aside = aside
        self._config = config
        self._pending = Pending(shares, config.schedules_max)

    async def every(self, request: Request) -> Response:
        """By the time at which they are due; `next` is the `cursor` of the next page."""
        query = Parameters(request.scope["query_string"])
        state = query.choice("state", STATES, "") or None
        of, key = query.text("type"), query.text("key")
        limit = query.integer("limit", LISTED_DEFAULT, 1, LISTED_MAX)
        after_us, after_id = cursor_of(query.text("cursor")) or _BEFORE_ALL
        tenant = _tenant(request)
        deployed = self._catalog.deployed(tenant)
        singletons = () if deployed is None else deployed.reading.singletons
        canonical = None if key is None else canonicalize(key, singletons)
        wanted = state, of, canonical or key
        asked = tenant, *wanted, after_us, after_id, limit + 1, PAGE_BYTES
        rows = await self._fetched(tenant, "list_schedules", *asked)
        if not rows:  # what is withdrawn by now may have timers
            if of is not None and (deployed is None or of not in deployed.reading.aggregate_types):
                raise Refused(undeclared_type(deployed.reading if deployed else None, of, status=422))
            if deployed is not None and key is not None and canonical is None:
                raise Refused(bad_identifier(key, deployed.reading, "key"))
        more = bool(rows) and rows[0]["found"] > len(rows[:limit])
        rows = rows[:limit]
        following = cursor_text(rows[-1]["due_at"], rows[-1]["id"]) if more else None
        return _done({"items": [_shown(row) for row in rows], "next": following})

    async def get(self, request: Request) -> Response:
        tenant = _tenant(request)
        rows = await self._fetched(tenant, "get_schedule", tenant, _id(request))
        if not rows:
            raise Refused(Refusal("not_found", "There is no such schedule."))
        return _done(_single(rows[0]))

    async def create(self, request: Request) -> Response:
        """Sets a timer of the client's own. Its Idempotency-Key makes it one."""
        key = _idempotency_key(request)
        known = ("due_at", "delay", "emit", "cancel_on")
        body, text = await read_object_and_text(request, self._aside, self._config, known)
        principal: Principal = request.scope["sluice.principal"]
        deployed = self._catalog.deployed(principal.tenant.id)
        if deployed is None:
            raise Refused(Refusal("not_found", "No spec was deployed yet; PUT one at /_/spec."))
        delay_s, at_s = _due(body)
        owner, tenant = principal.tenant.id, principal.tenant.id.bytes
        timer = timer_id(tenant, f"key {key}")
        emission = await self._judged(body.get("emit"), text, deployed, tenant, timer)
        watched = _watched(body.get("cancel_on", []), deployed)
        try:
            full = await self._pending.full(owner)
            seq, mark = await self._head_of(tenant)
        except PostgresTrouble as trouble:
            raise Refused(_UNAVAILABLE) from trouble
        if full and not await self._fetched(owner, "get_schedule", owner, UUID(bytes=timer)):
            why = f"This tenant has {self._pending.most} pending timers, which is the limit."
            raise Refused(Refusal("storage_full", why))
        correlation = request.headers.get("x-correlation-id")
        correlated = _uuid(correlation) or UUID(bytes=timer)
        added = await self._fetched(
            owner, "add_schedules", [UUID(bytes=timer)], owner, [None], [None], [None], [None], [seq],
            [mark], [delay_s], [at_s], [encode(emission)], [encode(watched)], [correlated],
            None,
        )  # fmt: skip
        if added:
            self._pending.added(owner)
        (row,) = await self._fetched(owner, "get_schedule", owner, UUID(bytes=timer))
        stored = _emission_of(row["emit"])
        if stored.id is not None:  # as it was sent, where an earlier release stored it
            stored = msgspec.structs.replace(stored, id=canonicalize(stored.id, deployed.reading.singletons))
        same = _told(stored) == _told(emission) and bytes(row["cancel_on"]) == encode(watched)
        if not same or not (row["moved"] or _is_due(row, delay_s, at_s)):
            why = "This Idempotency-Key belongs to another request, which `receipt` answered. "
            refusal = Refusal("idempotency_mismatch", f"{why}Use a new one for a new request.")
            receipt = {"ok": True, **_single(row)}
            answer = refused(refusal, by="idempotency_key", receipt=receipt)
            return json_response(answer.status, answer.body)
        headers = {"location": f"/_/schedules/{row['id']}"}
        return _done(_single(row), 201, headers if added else {**headers, "idempotency-replayed": "true"})

    async def cancel(self, request: Request) -> Response:
        return await self._act(request, "cancelled")

    async def run(self, request: Request) -> Response:
        """Fires it now, by Postgres' clock; one that is parked, once more."""
        return await self._act(request, "pending", now=True)

    async def move(self, request: Request) -> Response:
        body = await read_object(request, self._aside, self._config, ("due_at",))
        if "due_at" not in body:
            raise Refused(Refusal("missing_field", "Send `due_at`, the new time.", "due_at"))
        at_s = time_of(body["due_at"])
        if at_s is None:
            raise Refused(
                Refusal("invalid_field", "`due_at` is a time: RFC 3339, or Unix seconds.", "due_at")
            )
        return await self._act(request, "pending", datetime.fromtimestamp(at_s, UTC))

    async def _act(
        self, request: Request, to: str, due_at: datetime | None = None, *, now: bool = False
    ) -> Response:
        tenant, schedule, states = _tenant(request), _id(request), ("pending", "parked")
        rows = await self._fetched(tenant, "act_on_schedule", tenant, schedule, list(states), to, due_at, now)
        if rows:
            return _done(_single(rows[0]))
        found = await self._fetched(tenant, "get_schedule", tenant, schedule)
        if not found:
            raise Refused(Refusal("not_found", "There is no such schedule."))
        why = "it is being fired" if found[0]["state"] in states else f"it is {found[0]['state']}"
        raise Refused(Refusal("schedule_ended", f"The timer cannot be changed any more: {why}."))

    async def _judged(
        self, value: object, text: bytes, deployed: Deployed, tenant: bytes, timer: bytes
    ) -> Emission:
        """`value` is `emit` in the body `text`. Beside other requests where its schema may take long. Raises
        Refused."""
        work = partial(self._emission, value, text, deployed, tenant, timer)
        if is_light(text, deployed.reading.weight):
            return work()
        try:
            return await self._aside.run(tenant, work)
        except Busy as busy:
            raise Refused(Refusal("unavailable", busy.why)) from busy

    def _emission(
        self, value: object, text: bytes, deployed: Deployed, tenant: bytes, timer: bytes
    ) -> Emission:
        """Raises Refused."""
        if not isinstance(value, dict):
            raise Refused(_unfit(value, "`emit` is {aggregate_type, id, event_type, data}.", "emit"))
        require_known(value, ("aggregate_type", "id", "event_type", "data"), "`emit`", "emit")
        of, name = _text(value, "aggregate_type", "emit"), _text(value, "event_type", "emit")
        if name.startswith("_"):
            raise Refused(Refusal("reserved_event_type", RESERVED, "emit.event_type"))
        declared = deployed.reading.aggregate_types.get(of)
        if declared is None:
            raise Refused(undeclared_type(deployed.reading, of, "emit.aggregate_type", status=422))
        event_type = declared.events.get(name)
        if event_type is None:
            raise Refused(undeclared_event(name, declared, "emit.event_type", status=422))
        identifier = value.get("id")
        identifier = None if identifier == {"mint": True} else _text(value, "id", "emit")
        data = bytes(_sent(text).emit.data)
        most, work = self._config.event_bytes_max, SchemaWork(self._config.schema_work_max)
        try:
            found = admitted(deployed, tenant, declared, event_type, identifier, data, timer, most, work)
            found.claims(0)
        except NotAdmitted as fault:
            raise Refused(_not_admitted(fault)) from fault
        return Emission(of, None if identifier is None else found.stream.key, name, msgspec.Raw(data))

    async def _fetched(self, tenant: UUID, name: str, *args: object) -> list[Any]:
        try:
            return await fetch(self._shares.of(tenant.bytes), name, *args)
        except PostgresTrouble as trouble:
            raise Refused(_UNAVAILABLE) from trouble


def _idempotency_key(request: Request) -> str:
    """Raises Refused."""
    headers: list[tuple[bytes, bytes]] = request.scope["headers"]
    asked = read_asked((name, value) for name, value in headers if name in _KEYS)
    if isinstance(asked, Refusal):
        raise Refused(asked)
    if asked.idempotency_key is None:
        why = "Send an `Idempotency-Key`, so that a repeated request does not set a second timer."
        raise Refused(Refusal("missing_field", why, "Idempotency-Key"))
    return asked.idempotency_key


def _told(emission: Emission) -> tuple[object, ...]:
    """What makes it the same as another: earlier releases stored other bytes of the same data."""
    return emission.aggregate_type, emission.id, emission.event_type, decode_data(emission.data)


def _text(value: dict[str, Any], name: str, path: str) -> str:
    """Raises Refused."""
    found = value.get(name)
    if isinstance(found, str):
        return found
    raise Refused(_unfit(found, f"`{path}.{name}` must be a string.", f"{path}.{name}"))


def _unfit(found: object, why: str, path: str) -> Refusal:
    """Of a field that is absent, or has another type."""
    if found is None:
        return Refusal("missing_field", why, path)
    return Refusal("invalid_field", why, path)


def _not_admitted(fault: NotAdmitted) -> Refusal:
    path = f"emit.{fault.path}"
    match fault.code:
        case "invalid_identifier":
            return Refusal("invalid_identifier", fault.error, path)
        case "invalid_tag":
            return Refusal("invalid_tag", fault.error, path)
        case "invalid_claim":
            return Refusal("invalid_claim", fault.error, path)
    return Refusal("schema_violation", fault.error, path)


def _due(body: dict[str, Any]) -> tuple[float | None, float | None]:
    """Seconds from now, or Unix seconds. Raises Refused."""
    if "due_at" in body and "delay" in body:
        raise Refused(Refusal("invalid_field", "Send one of `due_at` and `delay`.", "due_at"))
    if "due_at" not in body and "delay" not in body:
        raise Refused(Refusal("missing_field", "Send one of `due_at` and `delay`.", "due_at"))
    if "delay" in body:
        delay = read_delay(body["delay"])
        if delay is None:
            why = 'A delay is "30s", "5m", "24h", "7d" or a number of milliseconds: 1 s to ten years.'
            raise Refused(Refusal("invalid_field", why, "delay"))
        return delay / 1000, None
    at_s = time_of(body["due_at"])
    if at_s is None:
        raise Refused(Refusal("invalid_field", "`due_at` is a time: RFC 3339, or Unix seconds.", "due_at"))
    return None, at_s


def _is_due(row: Any, delay_s: float | None, at_s: float | None) -> bool:
    """As this request has it; a delay began with the row."""
    begun = row["created_at"].timestamp()
    wanted = begun + delay_s if at_s is None and delay_s is not None else at_s
    return wanted is not None and abs(row["due_at"].timestamp() - wanted) < _SAME_S


def _watched(value: object, deployed: Deployed) -> tuple[Watched, ...]:
    """Raises Refused."""
    if not isinstance(value, list) or len(value) > 100:
        raise Refused(Refusal("invalid_field", "`cancel_on` is a list of at most 100 objects.", "cancel_on"))
    found = []
    for n, each in enumerate(value):
        path = f"cancel_on[{n}]"
        if not isinstance(each, dict):
            raise Refused(Refusal("invalid_field", "This is {aggregate_type, id, event_type}.", path))
        require_known(each, ("aggregate_type", "id", "event_type"), f"`{path}`", path)
        of, name, identifier = (_text(each, field, path) for field in ("aggregate_type", "event_type", "id"))
        declared = deployed.reading.aggregate_types.get(of)
        if declared is None:
            raise Refused(undeclared_type(deployed.reading, of, f"{path}.aggregate_type", status=422))
        if name not in declared.events:
            raise Refused(undeclared_event(name, declared, f"{path}.event_type", status=422))
        key = canonicalize(identifier, deployed.reading.singletons)
        if key is None:
            raise Refused(bad_identifier(identifier, deployed.reading, f"{path}.id"))
        found.append(Watched(declared.name, key, name))
    return tuple(found)


def _shown(row: Any) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": str(row["id"]),
        "state": row["state"],
        "due_at": time_text(row["due_at"]),
        "reason": row["reason"],
        "emit": raw(bytes(row["emit"])),
        "cancel_on": raw(bytes(row["cancel_on"])),
        "created_at": time_text(row["created_at"]),
    }
    if row["trigger_id"] is not None:
        shown["trigger"] = {
            "event_id": str(row["trigger_id"]),
            "aggregate_type": row["trigger_type"],
            "key": row["trigger_key"],
            "type": row["trigger_event"],
        }
    for name in ("fired_event", "ended_at"):
        if row[name] is not None:
            shown[name] = time_text(row[name]) if name == "ended_at" else str(row[name])
    return shown


def _single(row: Any) -> dict[str, Any]:
    """As lists have it; and under a name, as answers had it at first."""
    shown = _shown(row)
    return {**shown, "schedule": shown}


def time_text(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def cursor_text(time: datetime, identifier: Any) -> str:
    """Of what is listed by a time and an id: behind this one."""
    micros = (time - _EPOCH) // _MICROSECOND  # not of a float, which rounds
    made = micros.to_bytes(8, "big", signed=True) + identifier.bytes
    return base64.urlsafe_b64encode(made).decode().rstrip("=")


def cursor_of(text: str | None) -> tuple[int, UUID] | None:
    """Unix microseconds and id. Raises Refused."""
    if text is None:
        return None
    try:
        made = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        made = b""
    micros = int.from_bytes(made[:8], "big", signed=True)
    if len(made) != 24 or not UNIX_SECONDS_MIN <= micros // 1_000_000 <= UNIX_SECONDS_MAX:
        raise Refused(Refusal("invalid_field", "`cursor` is the `next` of another page.", "cursor"))
    return micros, UUID(bytes=made[8:])


def _uuid(text: str | None) -> UUID | None:
    try:
        return None if text is None else UUID(text)
    except ValueError:
        return None


def _id(request: Request) -> UUID:
    return uuid_of(request.path_params["id"] or "", "id")


def _tenant(request: Request) -> UUID:
    principal: Principal = request.scope["sluice.principal"]
    return principal.tenant.id


def _done(body: dict[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return json_response(status, encode({"ok": True, **body}), headers)
