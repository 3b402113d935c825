"""/_/spec: what the tenant declares, and how that changes while requests go on."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from functools import partial
from typing import Any, Final

import asyncpg
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gateway.admit.preconditions import not_modified
from gateway.aside import Aside
from gateway.catalog import specs
from gateway.catalog.catalog import Catalog
from gateway.catalog.database import UNANSWERED
from gateway.catalog.model import Principal
from gateway.catalog.model import Scope as KeyScope
from gateway.catalog.secrets import Secrets
from gateway.config import Config
from gateway.errors import Refusal
from gateway.http.json_body import decoded
from gateway.http.parameters import Parameters
from gateway.http.render import encode, raw, refusal_json
from gateway.http.request import Head, Refused, check_json_body, read_body
from gateway.http.response import json_response, unchanged
from gateway.log.postgres import PostgresTrouble
from gateway.relay.subscriptions import Subscriptions
from spec.errors import Faults
from spec.subscriptions import PermissiveEnviron

logger = logging.getLogger("sluice.edge")

DEPLOYED_AT_ONCE: Final = 2
"""Deployments at a time: to read a spec takes up to seconds of a core, and each holds a connection."""
DEPLOY_WAIT_S: Final = 10.0
"""How long a deployment waits for its turn."""

_ETAG = re.compile(rb'"(0|[1-9][0-9]{0,8})"')


class Specs:
    def __init__(
        self,
        catalog: Catalog,
        pool: asyncpg.Pool,
        subscriptions: Subscriptions,
        aside: Aside,
        config: Config,
    ) -> None:
        self._aside = aside
        self._catalog = catalog
        self._pool = pool
        self._turns = asyncio.Semaphore(DEPLOYED_AT_ONCE)
        self._subscriptions = subscriptions
        self._secrets_of = Secrets(os.environ).of
        self._allow_private = config.allow_private_targets
        self._body_bytes_max = config.body_bytes_max
        self._body_timeout_s = config.body_timeout_s

    async def get(self, request: Request) -> Response:
        """The deployed document as it was sent, with its revision, but for secrets and, for keys below
        admin, queries of targets."""
        principal: Principal = request.scope["sluice.principal"]
        deployed = self._catalog.deployed(principal.tenant.id)
        if deployed is None:
            raise Refused(Refusal("not_found", "No spec was deployed yet; PUT one here."))
        headers = {"etag": deployed.etag}
        if not_modified(Head(request.scope).joined(b"if-none-match"), deployed.etag):
            return unchanged(headers)
        spec = specs.bare(deployed.document, queries_hidden=principal.scope < KeyScope.ADMIN)
        body = encode({"ok": True, "revision": deployed.revision, "spec": raw(spec)})
        return json_response(200, body, headers)

    async def put(self, request: Request) -> Response:
        """Deploys the body; every gateway serves by it within 5 s, this one at once."""
        head = Head(request.scope)
        expected = _expected(head.joined(b"if-match"), head.joined(b"if-none-match"))
        force = Parameters(request.scope["query_string"]).boolean("force")
        refusal = check_json_body(head, self._body_bytes_max)
        if refusal is not None:
            raise Refused(refusal)
        document = await read_body(request.receive, self._body_bytes_max, self._body_timeout_s)
        principal: Principal = request.scope["sluice.principal"]
        read = await decoded(self._aside, principal, document)
        document, forced = _unwrapped_force(document, read)
        force = force or forced
        await self._turn()
        try:
            result = await specs.deploy(
                self._pool,
                principal.tenant.id,
                document,
                PermissiveEnviron(self._secrets_of(principal.tenant.name), self._allow_private),
                force=force,
                expect_revision=expected,
                look=partial(self._subscriptions.undeclarable, principal.tenant.id),
            )
        except (*UNANSWERED, PostgresTrouble) as error:
            why = "Postgres does not answer. GET the spec to see whether this one is deployed; send it again."
            raise Refused(Refusal("unavailable", why)) from error
        finally:
            self._turns.release()
        if isinstance(result, specs.Accepted):
            told = {"tenant": str(principal.tenant.id), "key": principal.handle, "revision": result.revision}
            logger.info("spec_deployed", extra={**told, "forced": bool(force)})
            await self._catalog.refresh()
        return _answer(result)

    async def _turn(self) -> None:
        """Raises Refused where others deploy all the while."""
        try:
            async with asyncio.timeout(DEPLOY_WAIT_S):
                await self._turns.acquire()
        except TimeoutError as late:
            why = "Other specs are being deployed; this one was not looked at. Send it again shortly."
            raise Refused(Refusal("unavailable", why)) from late


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
        why = '`If-Match` must be one revision in quotes, like "3", or `*`; "0" is none yet.'
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
                answer["notices"] = [{"pointer": each.pointer, "notice": each.text} for each in notices]
            return json_response(200, encode(answer), {"etag": f'"{revision}"'})
        case specs.RevisionMismatch(current):
            deployed = f"Revision {current} is deployed, not the one expected."
            stale = Refusal("version_conflict", deployed if current else "No spec is deployed yet.")
            return json_response(409, refusal_json(stale, {"revision": current}), {"etag": f'"{current}"'})
        case specs.Conflicts(revision, conflicts):
            told = [{"pointer": each.pointer, "error": each.error} for each in conflicts]
            refusal = Refusal("spec_conflict", f"{specs.CONFLICT} ?force=true deploys it all the same.")
            return json_response(409, refusal_json(refusal, {"revision": revision, "conflicts": told}))
        case faults:
            listed = [{"code": each.code, "pointer": each.pointer, "error": each.error} for each in faults]
            return json_response(
                422, refusal_json(Refusal("invalid_spec", specs.INVALID), {"faults": listed})
            )
