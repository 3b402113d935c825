"""/_/spec: the tenant's spec, and its deployment while requests are served."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID
from weakref import WeakValueDictionary

import asyncpg
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gateway.admit.preconditions import not_modified
from gateway.aside import Aside, Busy
from gateway.catalog import spec_history, specs
from gateway.catalog.catalog import Catalog
from gateway.catalog.model import Principal
from gateway.catalog.model import Scope as KeyScope
from gateway.catalog.secrets import Secrets
from gateway.catalog.spec_history import REVISION_MAX
from gateway.catalog.spec_trial import Bounds, told, tried
from gateway.config import Config
from gateway.errors import Refusal
from gateway.http.api.reads import unavailable
from gateway.http.json_body import decoded
from gateway.http.parameters import Parameters
from gateway.http.render import encode, raw, refusal_json
from gateway.http.request import Head, Refused, check_json_body, read_body
from gateway.http.response import json_response, unchanged
from gateway.log.storage import Storage
from gateway.postgres.connection_errors import UNANSWERED
from gateway.postgres.errors import PostgresTrouble
from gateway.relay.subscriptions import Subscriptions
from spec.errors import Faults, nearest, shown
from spec.model import Spec
from spec.parse import parse
from spec.subscriptions import PermissiveEnviron

logger = logging.getLogger("sluice.edge")

DEPLOYED_AT_ONCE: Final = 2
"""Deployments at a time: to read a spec takes up to seconds of a core, and each holds a connection."""
DEPLOY_WAIT_S: Final = 10.0
"""How long a deployment, or a trial, waits for its turn."""

TRIED_EVENTS_MAX: Final = 10_000
"""Events that a trial over HTTP folds at most; `sluice spec try` folds all."""
TRY_S: Final = 5.0
"""Then a trial ends with what it has: it takes a share of the interpreter."""
_TRIED_PAGE: Final = 20
_TRIED_VALUE_CHARS_MAX: Final = 500

_R = TypeVar("_R")
_ETAG = re.compile(rb'"(0|[1-9][0-9]{0,8})"')


class Specs:
    def __init__(
        self,
        catalog: Catalog,
        pool: asyncpg.Pool,
        subscriptions: Subscriptions,
        storage: Storage,
        aside: Aside,
        config: Config,
    ) -> None:
        self._aside = aside
        self._catalog = catalog
        self._pool = pool
        self._deploying, self._trying = _Turns(DEPLOYED_AT_ONCE), _Turns(1)
        self._state_bytes_max = config.state_bytes_max
        self._subscriptions = subscriptions
        self._storage = storage
        self._secrets_of = Secrets(os.environ).of
        self._allow_private = config.allow_private_targets
        self._body_bytes_max = config.body_bytes_max
        self._body_timeout_s = config.body_timeout_s

    async def get(self, request: Request) -> Response:
        """The deployed document as it was sent, with its revision, but for secrets and, for keys below
        admin, queries of targets."""
        principal: Principal = request.scope["sluice.principal"]
        wanted = Parameters(request.scope["query_string"]).integer("revision", 0, 1, REVISION_MAX)
        found = await self._stored(principal, wanted)
        headers = {"etag": f'"{found.revision}"'}
        if not_modified(Head(request.scope).joined(b"if-none-match"), headers["etag"]):
            return unchanged(headers)
        spec = specs.bare(found.document, queries_hidden=principal.scope < KeyScope.ADMIN)
        body = encode({"ok": True, "revision": found.revision, "spec": raw(spec)})
        return json_response(200, body, headers)

    async def _stored(self, principal: Principal, revision: int) -> specs.Stored:
        """A revision, or with 0 what is deployed. Raises Refused."""
        deployed = self._catalog.deployed(principal.tenant.id)
        if not revision:
            if deployed is None:
                raise Refused(Refusal("not_found", "No spec was deployed yet; PUT one here."))
            return specs.Stored(deployed.revision, deployed.document)
        try:
            found = await spec_history.revision_of(self._pool, principal.tenant.id, revision)
        except UNANSWERED as error:
            raise Refused(unavailable()) from error
        if found is None:
            raise Refused(_no_revision(revision))
        return found

    async def history(self, request: Request) -> Response:
        """Which revisions there were, the newest first."""
        principal: Principal = request.scope["sluice.principal"]
        query = Parameters(request.scope["query_string"])
        limit = query.integer("limit", spec_history.LISTED_DEFAULT, 1, spec_history.LISTED_MAX)
        before = query.integer("before", REVISION_MAX, 1, REVISION_MAX)
        try:
            found = await spec_history.history(self._pool, principal.tenant.id, before=before, limit=limit)
        except UNANSWERED as error:
            raise Refused(unavailable()) from error
        listed = [each.told() for each in found]
        more = found[-1].revision if len(found) == limit and found[-1].revision > 1 else None
        return json_response(200, encode({"ok": True, "revisions": listed, "next": more}))

    async def diff(self, request: Request) -> Response:
        """What deploying the body would change and meet; nothing is deployed."""
        principal, document = await self._sent(request)
        document, _ = _unwrapped_force(document, await decoded(self._aside, principal, document))
        try:
            async with self._deploying.turn(principal.tenant.id, _DEPLOYING):
                result = await spec_history.compare(
                    self._pool, principal.tenant.id, document, self._environ(principal)
                )
        except (*UNANSWERED, PostgresTrouble) as error:
            raise Refused(unavailable()) from error
        if not isinstance(result, spec_history.Plan):
            return _answer(result)
        return json_response(200, encode({"ok": True, **result.told()}))

    async def try_out(self, request: Request) -> Response:
        """Stored events folded by the body and by what is deployed, and what differs; nothing is stored. One
        trial at a time in a gateway."""
        query = Parameters(request.scope["query_string"])
        limit = query.integer("limit", TRIED_EVENTS_MAX, 1, TRIED_EVENTS_MAX)
        principal, document = await self._sent(request)
        document, _ = _unwrapped_force(document, await decoded(self._aside, principal, document))
        try:
            async with self._trying.turn(principal.tenant.id, _TRYING):
                return await self._tried(principal, document, limit)
        except Busy as busy:
            raise Refused(Refusal("unavailable", busy.why)) from busy
        except (*UNANSWERED, PostgresTrouble) as error:
            raise Refused(unavailable()) from error

    async def _tried(self, principal: Principal, document: bytes, limit: int) -> Response:
        tenant = principal.tenant.id
        if specs.HIDDEN in document:
            document = await specs.with_secrets(self._pool, tenant, document)
        parsed = await asyncio.to_thread(parse, document, self._environ(principal))  # up to seconds
        if isinstance(parsed, Faults):
            return _answer(parsed)
        serving = self._catalog.deployed(tenant)
        deployed = None if serving is None else serving.spec
        types = parsed.aggregate_types.keys() | (deployed.aggregate_types.keys() if deployed else set())
        bounds = Bounds(
            page_events=_TRIED_PAGE,
            bytes_max=self._state_bytes_max,
            until=time.monotonic() + TRY_S,
            value_chars_max=_TRIED_VALUE_CHARS_MAX,
            run=partial(self._aside.run, tenant.bytes),
        )
        trial = await tried(self._pool, tenant, deployed, parsed, sorted(types), limit, _unseen, bounds)
        found = {name: value for name, value in told(trial).items() if name != "memory_bytes"}
        return json_response(200, _encode_exactly({"ok": True, **found}))

    async def roll_back(self, request: Request) -> Response:
        """Deploys a former revision once more, by the rules of `put`."""
        expected, force = self._asked(request)
        principal, body = await self._sent(request)
        revision, forced = _former(await decoded(self._aside, principal, body))
        deploying = partial(
            spec_history.roll_back,
            self._pool,
            principal.tenant.id,
            revision,
            self._environ(principal),
            force=force or forced,
            expect_revision=expected,
            look=partial(self._in_the_way, principal.tenant.id),
        )
        result = await self._deployed(principal, deploying, forced=force or forced)
        if result is None:
            raise Refused(_no_revision(revision))
        return _answer(result)

    def _asked(self, request: Request) -> tuple[int | None, bool]:
        """The revision that the caller expects, and `?force=`. Raises Refused."""
        head = Head(request.scope)
        expected = _expected(head.joined(b"if-match"), head.joined(b"if-none-match"))
        return expected, Parameters(request.scope["query_string"]).boolean("force")

    async def _sent(self, request: Request) -> tuple[Principal, bytes]:
        """The caller and the body. Raises Refused."""
        refusal = check_json_body(Head(request.scope), self._body_bytes_max)
        if refusal is not None:
            raise Refused(refusal)
        body = await read_body(request.receive, self._body_bytes_max, self._body_timeout_s)
        principal: Principal = request.scope["sluice.principal"]
        return principal, body

    def _environ(self, principal: Principal) -> PermissiveEnviron:
        return PermissiveEnviron(self._secrets_of(principal.tenant.name), self._allow_private)

    async def put(self, request: Request) -> Response:
        """Deploys the body; every gateway serves by it within 5 s, this one at once."""
        expected, force = self._asked(request)
        principal, document = await self._sent(request)
        read = await decoded(self._aside, principal, document)
        document, forced = _unwrapped_force(document, read)
        deploying = partial(
            specs.deploy,
            self._pool,
            principal.tenant.id,
            document,
            self._environ(principal),
            force=force or forced,
            expect_revision=expected,
            look=partial(self._in_the_way, principal.tenant.id),
        )
        return _answer(await self._deployed(principal, deploying, forced=force or forced))

    async def _in_the_way(self, tenant: UUID, spec: Spec, pointer: str) -> Faults | None:
        """What keeps a changed spec from being stored. Raises Refused."""
        refusal = self._storage.refusal(tenant.bytes)
        if refusal is not None:
            raise Refused(refusal)
        return await self._subscriptions.undeclarable(tenant, spec, pointer)

    async def _deployed(
        self, principal: Principal, deploying: Callable[[], Awaitable[_R]], *, forced: bool
    ) -> _R:
        """What a deployment came to; this gateway follows at once. Raises Refused."""
        try:
            async with self._deploying.turn(principal.tenant.id, _DEPLOYING):
                result = await deploying()
        except (*UNANSWERED, PostgresTrouble) as error:
            why = "Postgres does not answer. GET the spec to see whether this one is deployed; send it again."
            raise Refused(Refusal("unavailable", why)) from error
        if isinstance(result, specs.Accepted):
            told = {"tenant": str(principal.tenant.id), "key": principal.handle, "revision": result.revision}
            logger.info("spec_deployed", extra={**told, "forced": forced})
            await self._catalog.refresh()
        return result


class _Turns:
    """`most` at a time. Of a tenant one is under way or next in line, so another one's wait behind few of
    them, however many it sends."""

    def __init__(self, most: int) -> None:
        self._all = asyncio.Semaphore(most)
        self._own: WeakValueDictionary[UUID, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, tenant: UUID, late: Refusal) -> AsyncIterator[None]:
        """Raises Refused, as `late`, where it does not come."""
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(DEPLOY_WAIT_S):
                    await held.enter_async_context(self._own.setdefault(tenant, asyncio.Lock()))
                    await held.enter_async_context(self._all)
            except TimeoutError as waited:
                raise Refused(late) from waited
            yield


_DEPLOYING: Final = Refusal(
    "unavailable", "Other specs are being deployed; this one was not processed. Send it again shortly."
)
_TRYING: Final = Refusal("rate_limited", "Other specs are being tried; try again in 1 s.")
_encode_exactly = msgspec.json.Encoder(decimal_format="number").encode


def _unseen(_events: int) -> None:
    """No person watches."""


def _no_revision(revision: int) -> Refusal:
    return Refusal("not_found", f"There is no revision {revision} of the spec.")


def _former(read: object) -> tuple[int, bool]:
    """`{"revision": 3, "force"?: true}`. Raises Refused."""
    if not isinstance(read, dict) or "revision" not in read:
        why = 'Name the revision to go back to: {"revision": 3}.'
        raise Refused(Refusal("missing_field", why, "revision"))
    for name in read:
        if name not in ("revision", "force"):
            near = nearest(name, ("revision", "force"))
            raise Refused(Refusal("unknown_field", f"{shown(name)} is not a field here{near}.", name))
    revision, force = read["revision"], read.get("force", False)
    if isinstance(revision, bool) or not isinstance(revision, int) or not 1 <= revision <= REVISION_MAX:
        raise Refused(Refusal("invalid_field", "`revision` is a whole number from 1.", "revision"))
    if not isinstance(force, bool):
        raise Refused(Refusal("invalid_field", "`force` is true or false.", "force"))
    return revision, force


def _unwrapped_force(document: bytes, read: object) -> tuple[bytes, bool]:
    """A document wrapped as `{"spec": {…}, "force": true}` without its `force`, and that. Raises Refused."""
    if not isinstance(read, dict) or "spec" not in read or "force" not in read:
        return document, False
    if not isinstance(read["force"], bool):
        raise Refused(Refusal("invalid_field", "`force` is true or false.", "force"))
    members = msgspec.json.decode(document, type=dict[str, msgspec.Raw])
    del members["force"]
    return msgspec.json.encode(members), read["force"]


def _expected(if_match: bytes | None, if_none_match: bytes | None) -> int | None:
    """The revision that the caller thinks is deployed, or specs.ANY_REVISION; None where it does not say."""
    if if_none_match not in (None, b"*"):
        why = "`If-None-Match` can only be `*` here: deploy where there is no spec yet."
        raise Refused(Refusal("invalid_field", why, "If-None-Match"))
    if if_match is None:
        return None if if_none_match is None else 0
    found = _ETAG.fullmatch(if_match)
    if found is None and if_match != b"*":
        why = '`If-Match` must be one revision in quotes, like "3", or `*`; "0" if no spec was deployed.'
        raise Refused(Refusal("invalid_field", why, "If-Match"))
    expected = int(found[1]) if found else specs.ANY_REVISION
    if if_none_match is not None and expected:
        why = "`If-Match` contradicts `If-None-Match: *`; send one of them."
        raise Refused(Refusal("invalid_field", why, "If-Match"))
    return expected


def _answer(
    result: specs.Accepted | specs.Conflicts | Faults | specs.RevisionMismatch,
) -> Response:
    match result:
        case specs.Accepted(revision, changed, notices):
            answer: dict[str, Any] = {"ok": True, "revision": revision, "changed": changed}
            if notices:
                answer["notices"] = [each.as_json() for each in notices]
            return json_response(200, encode(answer), {"etag": f'"{revision}"'})
        case specs.RevisionMismatch(current):
            stale = Refusal("version_conflict", specs.stale(current))
            return json_response(409, refusal_json(stale, {"revision": current}), {"etag": f'"{current}"'})
        case specs.Conflicts(revision, conflicts):
            told = [{"pointer": each.pointer, "error": each.error} for each in conflicts]
            refusal = Refusal("spec_conflict", f"{specs.CONFLICT} ?force=true deploys it anyway.")
            return json_response(409, refusal_json(refusal, {"revision": revision, "conflicts": told}))
        case faults:
            listed = [{"code": each.code, "pointer": each.pointer, "error": each.error} for each in faults]
            return json_response(
                422, refusal_json(Refusal("invalid_spec", specs.INVALID), {"faults": listed})
            )
