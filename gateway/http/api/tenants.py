"""/_/tenants: provisioning of tenants, with a key of scope operator; and /_/tenant: the tenant of a key.

Owns how a tenant is told over HTTP. What becomes of one is the catalog's; a deletion is carried out in steps
by whichever gateway comes first (operations/deletions.py).
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar
from uuid import UUID

import asyncpg
from starlette.requests import Request
from starlette.responses import Response

from gateway.aside import Aside
from gateway.catalog import keys, tenants
from gateway.catalog.catalog import Catalog
from gateway.catalog.database import change
from gateway.catalog.model import Principal
from gateway.catalog.tenants import TENANTS_PAGE_MAX, Standing
from gateway.config import Config
from gateway.errors import Refusal
from gateway.http.json_body import decoded, require_known
from gateway.http.parameters import Parameters
from gateway.http.render import encode
from gateway.http.request import Head, Refused, check_json_body, read_body
from gateway.http.response import json_response
from gateway.postgres.connection_errors import UNANSWERED

_V7: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_PAGE: Final = 100

_T = TypeVar("_T")


class Tenants:
    """`pool` is for changes of the catalog."""

    def __init__(self, catalog: Catalog, pool: asyncpg.Pool, aside: Aside, config: Config) -> None:
        self._catalog = catalog
        self._pool = pool
        self._aside = aside
        self._body_bytes_max = config.body_bytes_max
        self._body_timeout_s = config.body_timeout_s

    async def mine(self, request: Request) -> Response:
        """Whose key it is."""
        tenant = _principal(request).tenant
        told = {"ok": True, "id": str(tenant.id), "name": tenant.name, "handle": tenant.handle}
        return json_response(200, encode(told))

    async def every(self, request: Request) -> Response:
        """All tenants by name, in pages: `next` is the `after` of the next one."""
        query = Parameters(request.scope["query_string"])
        limit = query.integer("limit", _PAGE, 1, TENANTS_PAGE_MAX)
        found = await _answered(tenants.page(self._pool, query.text("after") or "", limit + 1))
        more = found[limit - 1].name if len(found) > limit else None
        told = [_told(each) for each in found[:limit]]
        return json_response(200, encode({"ok": True, "tenants": told, "next": more}))

    async def get(self, request: Request) -> Response:
        """As it stands, also while it is being deleted and afterwards."""
        return _answer(200, await _answered(tenants.standing(self._pool, _id(request))))

    async def put(self, request: Request) -> Response:
        """A tenant under the caller's own id, and its first key. The same again changes nothing."""
        tenant_id, name = _id(request), await self._name(request)
        key = None
        async with _refusing(), change(self._pool) as (conn, revision):
            tenant, made = await tenants.provided(conn, tenant_id, name)
            if made:
                key = await keys.first(conn, tenant, revision)
        standing = await _answered(tenants.standing(self._pool, tenant_id))
        if key is None:
            return _answer(200, standing)
        return _answer(201, standing, {"key": key.text, "key_handle": key.handle})

    async def suspend(self, request: Request) -> Response:
        """Its requests are refused from now on; nothing of it is lost."""
        return await self._suspended(request, suspended=True)

    async def resume(self, request: Request) -> Response:
        return await self._suspended(request, suspended=False)

    async def _suspended(self, request: Request, *, suspended: bool) -> Response:
        standing = await _answered(tenants.suspend(self._pool, _id(request), suspended=suspended))
        await self._catalog.refresh()
        return _answer(200, standing)

    async def delete(self, request: Request) -> Response:
        """All of it goes, from now on."""
        standing = await _answered(tenants.delete(self._pool, _id(request)))
        await self._catalog.refresh()
        return _answer(202, standing)

    async def _name(self, request: Request) -> str:
        refusal = check_json_body(Head(request.scope), self._body_bytes_max)
        if refusal is not None:
            raise Refused(refusal)
        text = await read_body(request.receive, self._body_bytes_max, self._body_timeout_s)
        body = await decoded(self._aside, _principal(request), text)
        if not isinstance(body, dict) or "name" not in body:
            raise Refused(Refusal("missing_field", 'Send {"name": "acme"}.', "name"))
        require_known(body, ("name",))
        if not isinstance(body["name"], str):
            raise Refused(Refusal("invalid_field", "`name` must be a string.", "name"))
        return body["name"]


def _principal(request: Request) -> Principal:
    principal: Principal = request.scope["sluice.principal"]
    return principal


def _id(request: Request) -> UUID:
    text = request.path_params["id"].lower()
    if not _V7.fullmatch(text):
        raise Refused(Refusal("invalid_identifier", "A tenant's id is a UUIDv7.", "id"))
    return UUID(text)


async def _answered(asked: Awaitable[_T]) -> _T:
    async with _refusing():
        return await asked


@asynccontextmanager
async def _refusing() -> AsyncIterator[None]:
    """Raises Refused where the catalog refuses, or Postgres does not answer."""
    try:
        yield
    except tenants.NoSuchTenant as fault:
        raise Refused(Refusal("not_found", _sentence(fault))) from fault
    except tenants.TenantTaken as fault:
        raise Refused(Refusal("tenant_conflict", _sentence(fault))) from fault
    except tenants.BadName as fault:
        raise Refused(Refusal("invalid_field", _sentence(fault), "name")) from fault
    except UNANSWERED as error:
        why = "Postgres does not answer. GET the tenant to see its state; send the request again."
        raise Refused(Refusal("unavailable", why)) from error


def _sentence(fault: Exception) -> str:
    text = str(fault)
    return f"{text[0].upper()}{text[1:]}."


def _answer(status: int, standing: Standing, more: dict[str, object] | None = None) -> Response:
    return json_response(status, encode({"ok": True, **_told(standing), **(more or {})}))


def _told(standing: Standing) -> dict[str, Any]:
    told: dict[str, Any] = {
        "id": str(standing.id),
        "name": standing.name,
        "handle": standing.handle,
        "status": standing.status,
        "created_at": standing.created_at,
    }
    if standing.deletion is not None:
        deletion = standing.deletion
        told["deletion"] = {
            "requested_at": deletion.requested_at,
            "events": deletion.events,
            "events_deleted": deletion.deleted,
            "finished_at": deletion.finished_at,
        }
    return told
