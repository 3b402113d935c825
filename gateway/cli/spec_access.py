"""How `sluice spec` reaches a spec: in the database, or through a gateway over HTTP. Answers have the
shape that the gateway gives them, whichever way they come."""

from __future__ import annotations

import json
import os
from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.catalog.model import CatalogError
from gateway.cli.database import is_database_set, prepared
from gateway.cli.gateways import api_key
from gateway.config import ConfigError
from gateway.server_urls import redacted

if TYPE_CHECKING:  # other commands start without the schema compiler
    from spec.errors import Faults
    from spec.model import Spec

HTTP_TIMEOUT_S = 30.0  # a removal waits until every gateway has closed for it


def gateway_of(url: str | None, postgres: str | None, key: str | None) -> str | None:
    """The gateway to speak to, None for the database: an option goes before the environment, and there the
    database before a gateway, which serves one tenant by its key. A key in an option is for a gateway."""
    if url and postgres:
        raise ConfigError(("--url and --postgres exclude each other",))
    database = postgres or (not key and is_database_set())
    return url or (None if database else os.environ.get("SLUICE_URL") or None)


async def deployed_in(
    url: str, tenant: str, document: bytes, force: bool, if_revision: int | None
) -> dict[str, Any]:
    from gateway.catalog import specs, tenants
    from gateway.catalog.secrets import Secrets
    from gateway.cli.outgoing import opened

    async with opened(url) as (subscriptions, pool):
        owner = await tenants.named(pool, tenant)
        look = partial(subscriptions.undeclarable, owner.id)
        secrets = Secrets(os.environ).of(tenant)
        result = await specs.deploy(
            pool, owner.id, document, secrets, force=force, expect_revision=if_revision, look=look
        )
    return _deployed(result)


async def rolled_back_in(
    url: str, tenant: str, revision: int, force: bool, if_revision: int | None
) -> dict[str, Any]:
    from gateway.catalog import spec_history, tenants
    from gateway.catalog.secrets import Secrets
    from gateway.cli.outgoing import opened

    async with opened(url) as (subscriptions, pool):
        owner = await tenants.named(pool, tenant)
        look = partial(subscriptions.undeclarable, owner.id)
        secrets = Secrets(os.environ).of(tenant)
        result = await spec_history.roll_back(
            pool, owner.id, revision, secrets, force=force, expect_revision=if_revision, look=look
        )
    return _no_revision(revision) if result is None else _deployed(result)


async def compared_in(url: str, tenant: str, document: bytes) -> dict[str, Any]:
    from gateway.catalog import spec_history, tenants
    from gateway.catalog.secrets import Secrets

    async with prepared(url) as conn:
        owner = await tenants.named(conn, tenant)
        secrets = Secrets(os.environ).of(tenant)
        result = await spec_history.compare(conn, owner.id, document, secrets)
    if isinstance(result, spec_history.Plan):
        return {"ok": True, **result.told()}
    return _deployed(result)


async def history_in(url: str, tenant: str, limit: int) -> dict[str, Any]:
    from gateway.catalog import spec_history, tenants

    async with prepared(url) as conn:
        owner = await tenants.named(conn, tenant)
        found = await spec_history.history(conn, owner.id, limit=limit)
    return {"ok": True, "revisions": [each.told() for each in found]}


def _deployed(result: Any) -> dict[str, Any]:
    """What a deployment came to, in the shape that the gateway gives it."""
    from gateway.catalog import specs

    match result:
        case specs.Accepted(revision, changed, notices):
            accepted: dict[str, Any] = {"ok": True, "revision": revision, "changed": changed}
            if notices:
                accepted["notices"] = [each.as_json() for each in notices]
            return accepted
        case specs.Conflicts(_, conflicts):
            listed = [{"pointer": conflict.pointer, "error": conflict.error} for conflict in conflicts]
            return _refusal("spec_conflict", specs.CONFLICT, conflicts=listed)
        case specs.RevisionMismatch(current):
            return _refusal("version_conflict", specs.stale(current), revision=current)
        case faults:
            return _refusal("invalid_spec", specs.INVALID, faults=fault_list(faults))


async def refused_examples_in(url: str, tenant: str, spec: Spec, document: bytes) -> Faults | None:
    """What is wrong with steps between revisions, by the examples of schemas that were deployed before."""
    from gateway.catalog import specs, tenants
    from gateway.catalog.spec_examples import upcast_faults

    async with prepared(url) as conn:
        owner = await tenants.named(conn, tenant)
        return await upcast_faults(conn, owner.id, spec, specs.pointer_of(document))


async def shown_in(url: str, tenant: str, revision: int | None) -> dict[str, Any]:
    from gateway.catalog import spec_history, specs, tenants

    async with prepared(url) as conn:
        owner = await tenants.named(conn, tenant)
        if revision is None:
            stored = await specs.stored(conn, owner.id)
        else:
            stored = await spec_history.revision_of(conn, owner.id, revision)
    if stored is None and revision is not None:
        return _no_revision(revision)
    if stored is None:
        return _refusal("not_found", f"tenant {tenant} has no spec yet: `sluice spec deploy FILE`")
    return {"ok": True, "revision": stored.revision, "spec": json.loads(specs.bare(stored.document))}


def over_http(
    method: str,
    url: str,
    key: str | None,
    body: bytes | None,
    query: dict[str, str],
    below: str = "",
    if_revision: int | None = None,
) -> dict[str, Any]:
    """The answer of /_/spec or of a path `below` it, a refusal too. Raises ConfigError where the key can't be
    sent, CatalogError where no gateway answers."""
    import httpx

    from gateway.client import Refused
    from gateway.client.connection import authorization

    try:
        bearer = authorization(api_key(key))
    except Refused as refused:
        raise ConfigError((refused.error,)) from None
    headers = {"Authorization": bearer, "Content-Type": "application/json"}
    if if_revision is not None:
        headers["If-Match"] = f'"{if_revision}"'
    try:
        response = httpx.request(
            method,
            f"{url.rstrip('/')}/_/spec{below}",
            content=body,
            params=query,
            headers=headers,
            timeout=HTTP_TIMEOUT_S,
        )
    except (httpx.InvalidURL, ValueError):  # their texts quote it, perhaps with a password
        raise CatalogError(f"the gateway at {redacted(url)} cannot be reached: that is not a URL") from None
    except httpx.HTTPError as error:
        raise CatalogError(f"the gateway at {redacted(url)} cannot be reached: {error}") from error
    answer = _json_object(response.content)
    if not (answer.get("ok") is True and answer.keys() & {"revision", "revisions"}) and "error" not in answer:
        status = response.status_code
        raise CatalogError(f"the server at {redacted(url)} is not a Sluice gateway: status {status}")
    return answer


def _json_object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _no_revision(revision: int) -> dict[str, Any]:
    return _refusal(
        "not_found", f"there is no revision {revision} of the spec: `sluice spec history` lists them"
    )


def _refusal(code: str, error: str, **more: Any) -> dict[str, Any]:
    return {"ok": False, "code": code, "error": error, **more}


def fault_list(faults: Any) -> list[dict[str, str]]:
    return [{"code": fault.code, "pointer": fault.pointer, "error": fault.error} for fault in faults]
