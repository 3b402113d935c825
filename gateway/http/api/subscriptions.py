"""/_/subscriptions: events that go out, their targets, and the claims of pull consumers."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from gateway.admit.items import read_items
from gateway.aside import Aside
from gateway.catalog.catalog import Catalog
from gateway.catalog.model import Principal
from gateway.config import Config
from gateway.errors import Refusal
from gateway.http.api.named_answers import NamedAnswers, wanted
from gateway.http.declared import undeclared_name
from gateway.http.json_body import decoded, require_known
from gateway.http.key_watch import KeyWatch
from gateway.http.parameters import Parameters, uuid_of
from gateway.http.render import encode
from gateway.http.request import Head, Refused, check_json_body, content_length, read_body
from gateway.http.response import ReadAnswer, json_response
from gateway.postgres.errors import PostgresTrouble
from gateway.relay.pull import CLAIM_EVENTS_MAX, Claim, NotPulled, Pull
from gateway.relay.subscription_rows import SUBSCRIPTIONS_MAX, Declared, NoPosition, Put, TooMany
from gateway.relay.subscriptions import Subscriptions
from gateway.relay.targets.contract import Confirmed, word_of
from gateway.relay.trial import Tested, Trials
from spec.errors import Fault, Faults
from spec.subscriptions import NAME_GRAMMAR, is_filtered_name, is_subscription_name
from spec.targets.pull import LEASE_S_MAX

logger = logging.getLogger("sluice.edge")

LISTED_DEFAULT, LISTED_MAX = 100, 1000
WAIT_S_MAX = 20.0
ACKED_MAX = 1000
_POLL_S = 0.25
_EACH_S = 0.004
"""Between two looks of a claim that waits, for each that does of its tenant: together they look 250 times a
second at most."""
_STATES = ("retrying", "claimed", "parked")

Endpoint = Callable[[Request], Awaitable[Response]]


class SubscriptionPaths:
    def __init__(
        self,
        subscriptions: Subscriptions,
        trials: Trials,
        pull: Pull,
        keys: KeyWatch,
        catalog: Catalog,
        aside: Aside,
        config: Config,
        stopping: asyncio.Event,
        named: NamedAnswers,
    ) -> None:
        self._subscriptions = subscriptions
        self._trials = trials
        self._pull = pull
        self._keys = keys
        self._catalog = catalog
        self._aside = aside
        self._stopping = stopping
        self._named = named
        self._waiting: Counter[UUID] = Counter()  # claims, by tenant
        self._body_bytes_max = config.body_bytes_max
        self._body_timeout_s = config.body_timeout_s

    def endpoints(self) -> Mapping[tuple[str, str], Endpoint]:
        """By method and path below /_/subscriptions."""
        found: dict[tuple[str, str], Endpoint] = {
            ("GET", ""): self.every,
            ("GET", "/{name}"): self.get,
            ("PUT", "/{name}"): self.put,
            ("DELETE", "/{name}"): self.delete,
            ("GET", "/{name}/waiting"): self.waiting,
            ("GET", "/{name}/attempts"): self.attempts,
            ("POST", "/{name}/pause"): self.pause,
            ("POST", "/{name}/resume"): self.resume,
            ("POST", "/{name}/replay"): self.replay,
            ("POST", "/{name}/skip"): self.skip,
            ("POST", "/{name}/test"): self.test,
            ("POST", "/{name}/claim"): self.claim,
            ("POST", "/{name}/ack"): self.ack,
        }
        return {at: _answered(endpoint) for at, endpoint in found.items()}

    async def every(self, request: Request) -> Response:
        """All of the tenant's, by name."""
        return _done({"subscriptions": await self._subscriptions.every(_tenant(request))})

    async def get(self, request: Request) -> Response:
        """One, with how it stands; no secret is shown."""
        name = _name(request)
        shown = await self._subscriptions.shown(_tenant(request), name)
        return _done(_there(shown, name))

    async def put(self, request: Request) -> Response:
        """Makes it, or changes it."""
        name = request.path_params["name"]
        if not is_subscription_name(name):
            why = f"A subscription's name is {NAME_GRAMMAR}: a lower-case letter first."
            raise Refused(Refusal("invalid_field", why, "name"))
        document = await self._object(request, needed=True)
        self._require_declared(request, document.get("filter"))
        result = await self._subscriptions.put(_tenant(request), name, document)
        if not isinstance(result, Put):
            raise Refused(_refusal(result, name))
        _tell(request, name, "put")
        return _done(result.shown, 201 if result.created else 200)

    def _require_declared(self, request: Request, filtered: object) -> None:
        """Raises Refused where a filter names a type that the spec does not declare. What is wrong with its
        shape is told elsewhere."""
        principal: Principal = request.scope["sluice.principal"]
        deployed = self._catalog.deployed(principal.tenant.id)
        if deployed is None or not isinstance(filtered, dict) or filtered.get("include_undeclared") is True:
            return
        types, event_types = (
            [(name, f"filter.{key}[{n}]") for n, name in enumerate(given) if is_filtered_name(name)]
            for key in ("types", "event_types")
            for given in [filtered[key] if isinstance(filtered.get(key), list) else []]
        )
        refusal = undeclared_name(deployed.reading, types, event_types)
        if refusal is None and isinstance(listed := filtered.get("items"), list):
            read = read_items(listed, deployed.reading, deployed.salt, "filter.items")
            refusal = read if isinstance(read, Refusal) else None
        if refusal is not None:
            raise Refused(refusal)

    async def delete(self, request: Request) -> Response:
        """Ends it; what it has not sent stays in the feed."""
        name = _name(request)
        ended = await self._subscriptions.end(_tenant(request), name)
        if isinstance(ended, Declared):
            raise Refused(_refusal(ended, name))
        _there(ended or None, name)
        _tell(request, name, "delete")
        return _done({})

    async def waiting(self, request: Request) -> Response:
        """What is tried again, claimed, or parked."""
        name, query = _name(request), Parameters(request.scope["query_string"])
        state = query.choice("state", _STATES, "") or None
        limit = query.integer("limit", LISTED_DEFAULT, 1, LISTED_MAX)
        found = await self._subscriptions.waiting(_tenant(request), name, state, limit)
        deployed = self._catalog.deployed(_tenant(request))
        asked = wanted(query, None if deployed is None else deployed.reading)
        read = ReadAnswer(encode({"ok": True, "waiting": _there(found, name)}))
        return json_response(200, (await self._named.told(_tenant(request).bytes, read, asked)).body)

    async def attempts(self, request: Request) -> Response:
        """What was tried and answered, newest first."""
        name, query = _name(request), Parameters(request.scope["query_string"])
        text = query.text("event_id")
        event_id = None if text is None else uuid_of(text, "event_id")
        limit = query.integer("limit", LISTED_DEFAULT, 1, LISTED_MAX)
        found = await self._subscriptions.attempts(_tenant(request), name, event_id, limit)
        return _done({"attempts": _there(found, name)})

    async def pause(self, request: Request) -> Response:
        """Nothing more is sent until it is resumed."""
        return await self._switched(request, self._subscriptions.pause, "pause")

    async def resume(self, request: Request) -> Response:
        """Continues where it stopped, also after it was disabled."""
        return await self._switched(request, self._subscriptions.resume, "resume")

    async def _switched(
        self, request: Request, switch: Callable[[UUID, str], Awaitable[bool]], change: str
    ) -> Response:
        name = _name(request)
        _there(await switch(_tenant(request), name) or None, name)
        _tell(request, name, change)
        return _done(_there(await self._subscriptions.shown(_tenant(request), name), name))

    async def replay(self, request: Request) -> Response:
        """Parked events are tried again: all, or the one named."""
        name, body = _name(request), _fields(await self._object(request), ("event_id",))
        event_id = uuid_of(body["event_id"], "event_id") if "event_id" in body else None
        replayed = _there(await self._subscriptions.replay(_tenant(request), name, event_id), name)
        _tell(request, name, "replay")
        return _done({"replayed": replayed})

    async def skip(self, request: Request) -> Response:
        """A parked event is given up; what is behind it continues."""
        name, body = _name(request), _fields(await self._object(request, needed=True), ("event_id",))
        if "event_id" not in body:
            raise Refused(Refusal("missing_field", "Name the parked event as `event_id`.", "event_id"))
        event_id = uuid_of(body["event_id"], "event_id")
        skipped = _there(await self._subscriptions.skip(_tenant(request), name, event_id), name)
        if not skipped:
            raise Refused(Refusal("not_found", f"No event {event_id} is parked there."))
        _tell(request, name, "skip")
        return _done({})

    async def test(self, request: Request) -> Response:
        """One marked message to its target, now; what came back. Nothing of the subscription changes."""
        name = _name(request)
        _fields(await self._object(request), ())
        found = _there(await self._subscriptions.found(_tenant(request), name), name)
        if found.kind == "pull":
            raise Refused(
                Refusal("invalid_field", "This is a pull subscription: nothing is sent to it.", "name")
            )
        tested = await self._trials.send(found)
        if tested is None:
            why = "A test of this subscription, or too many other tests, are under way; try again in 1 s."
            raise Refused(Refusal("rate_limited", why), [(b"retry-after", b"1")])
        _tell(request, name, "test")
        return _done(_told(tested))

    async def claim(self, request: Request) -> Response:
        """Events for a consumer that pulls, until the lease is over; waits for some if asked, until who
        asked hangs up."""
        name, body = (
            _name(request),
            _fields(await self._object(request), ("aliases", "keys", "limit", "lease_s", "wait")),
        )
        limit = int(_number(body, "limit", 100, 1, CLAIM_EVENTS_MAX, whole=True))
        lease_s = _number(body, "lease_s", 0, 0.001, LEASE_S_MAX) or None
        aliases = body.get("aliases")
        if not isinstance(aliases, bool | None):
            raise Refused(Refusal("invalid_field", "`aliases` is true or false.", "aliases"))
        keyless = True if "keys" in body else None
        if body.get("keys", "alias") != "alias":
            raise Refused(Refusal("invalid_field", '`keys` is "alias", or left out.', "keys"))
        loop, tenant = asyncio.get_running_loop(), _tenant(request)
        until = loop.time() + _number(body, "wait", 0, 0, WAIT_S_MAX)
        gone = asyncio.ensure_future(request.receive())  # the body was read: nothing else can come
        self._waiting[tenant] += 1
        try:
            with self._keys.watching(Head(request.scope)) as key:
                while True:
                    claim = await self._pull.claim(tenant, name, limit, lease_s, aliases, keyless=keyless)
                    if isinstance(claim, NotPulled):
                        raise Refused(_not_pulled(claim))
                    left = until - loop.time()
                    if claim.events or left <= 0 or self._stopping.is_set():
                        return _claimed(claim)
                    pause_s = max(_POLL_S, _EACH_S * self._waiting[tenant])
                    await asyncio.wait((gone,), timeout=min(left, pause_s))
                    if key.ended:
                        raise Refused(key.ended)
                    if gone.done():
                        return _claimed(claim)
        finally:
            gone.cancel()
            self._waiting[tenant] -= 1
            if not self._waiting[tenant]:
                del self._waiting[tenant]

    async def ack(self, request: Request) -> Response:
        """What was claimed is done: a whole claim, or the events named."""
        name, body = _name(request), _fields(await self._object(request, needed=True), ("claim", "ids"))
        if not body:
            raise Refused(Refusal("missing_field", "Name a `claim`, or events as `ids`.", "claim"))
        claims = [uuid_of(body["claim"], "claim")] if "claim" in body else []
        result = await self._pull.ack(_tenant(request), name, claims, _uuids(body.get("ids", [])))
        if isinstance(result, NotPulled):
            raise Refused(_not_pulled(result))
        return _done({"aggregates": result})

    async def _object(self, request: Request, *, needed: bool = False) -> dict[str, Any]:
        head = Head(request.scope)
        empty = not content_length(head) and head.get(b"transfer-encoding") is None
        refusal = None if empty and not needed else check_json_body(head, self._body_bytes_max)
        if refusal is not None:
            raise Refused(refusal)
        text = await read_body(request.receive, self._body_bytes_max, self._body_timeout_s)
        if empty and not needed:
            return {}
        body = await decoded(self._aside, request.scope["sluice.principal"], text)
        if not isinstance(body, dict):
            raise Refused(Refusal("invalid_field", "The body must be an object."))
        return body


def _answered(endpoint: Endpoint) -> Endpoint:
    async def answered(request: Request) -> Response:
        try:
            return await endpoint(request)
        except PostgresTrouble as trouble:
            why = "Postgres, which stores subscriptions, does not answer. Try again shortly."
            raise Refused(Refusal("unavailable", why)) from trouble

    return answered


def _tenant(request: Request) -> UUID:
    principal: Principal = request.scope["sluice.principal"]
    return principal.tenant.id


def _name(request: Request) -> str:
    name: str = request.path_params["name"]
    if not is_subscription_name(name):
        raise Refused(_unknown(name))
    return name


def _there(found: Any, name: str) -> Any:
    if found is None:
        raise Refused(_unknown(name))
    return found


def _unknown(name: str) -> Refusal:
    return Refusal("not_found", f"There is no subscription {name[:64]!r}.")


def _tell(request: Request, name: str, change: str) -> None:
    principal: Principal = request.scope["sluice.principal"]
    told = {"tenant": str(principal.tenant.id), "subscription": name, "key": principal.handle}
    logger.info("subscription_changed", extra={**told, "change": change})


def _done(body: dict[str, Any], status: int = 200) -> Response:
    return json_response(status, encode({"ok": True, **body}))


def _told(tested: Tested) -> dict[str, Any]:
    """As the log of attempts has it."""
    outcome = tested.outcome
    return {
        "event_id": str(tested.event_id),
        "outcome": word_of(outcome),
        "status": outcome.status,
        "took_ms": tested.took_ms,
        "error": None if isinstance(outcome, Confirmed) else outcome.why,
        "response": outcome.response.decode(errors="replace"),
    }


def _claimed(claim: Claim) -> Response:
    """By hand: events are bytes already."""
    text = b"null" if claim.id is None else b'"%b"' % str(claim.id).encode()
    head = b'{"ok":true,"claim":%b,"lease_s":%b,"events":[' % (text, encode(claim.lease_s))
    return json_response(200, head + b",".join(claim.events) + b"]}")


def _refusal(result: Declared | TooMany | NoPosition | Faults, name: str) -> Refusal:
    match result:
        case Declared():
            why = f"{name!r} is declared in the spec; remove it there."
            return Refusal("declared_by_spec", why, "name")
        case TooMany():
            return Refusal(
                "invalid_field", f"A tenant has at most {SUBSCRIPTIONS_MAX} subscriptions.", "name"
            )
        case NoPosition(why):
            return Refusal("invalid_position", why, "start")
        case faults:
            return _fault(faults[0])


def _fault(fault: Fault) -> Refusal:
    path = re.sub(r"/([0-9]+)(?=/|$)", r"[\1]", fault.pointer).strip("/").replace("/", ".")
    if fault.code == "missing_key":  # a fault points to what lacks it
        missing = re.search("needs `([a-z_]+)`", fault.error)
        return Refusal("missing_field", fault.error, ".".join(filter(None, (path, missing and missing[1]))))
    if fault.code == "unknown_key":
        return Refusal("unknown_field", fault.error, path)
    return Refusal("invalid_field", fault.error, path or None)


def _not_pulled(result: NotPulled) -> Refusal:
    return Refusal("invalid_field", result.why, "name") if result.found else Refusal("not_found", result.why)


def _fields(body: dict[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """Those that are given: null counts as absent."""
    require_known(body, known)
    return {field: value for field, value in body.items() if value is not None}


def _number(
    body: dict[str, Any], field: str, default: float, least: float, most: float, *, whole: bool = False
) -> float:
    if field not in body:
        return default
    value = body[field]
    kinds = int if whole else int | float
    if not isinstance(value, kinds) or isinstance(value, bool) or not least <= value <= most:
        what = "whole number" if whole else "number"
        why = f"`{field}` must be a {what} from {least:g} to {most:g}."
        raise Refused(Refusal("invalid_field", why, field))
    return value


def _uuids(value: object) -> list[UUID]:
    if not isinstance(value, list) or len(value) > ACKED_MAX:
        raise Refused(Refusal("invalid_field", f"`ids` must be a list of at most {ACKED_MAX} ids.", "ids"))
    return [uuid_of(each, f"ids[{n}]") for n, each in enumerate(value)]
