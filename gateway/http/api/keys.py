"""/_/keys: keys made, listed and ended over HTTP. Any key makes keys of at most its own scope and narrowness,
which end with it.

Owns what one key may give another. How keys are kept is the catalog's.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from gateway.admit.address import bad_identifier
from gateway.aside import Aside
from gateway.catalog import keys
from gateway.catalog.catalog import Catalog
from gateway.catalog.model import CatalogError, Principal, Scope
from gateway.catalog.narrowness import NAMES_MAX, Only, read_only
from gateway.config import Config
from gateway.errors import Refusal
from gateway.http.authentication import UNAUTHORIZED
from gateway.http.json_body import read_object
from gateway.http.parameters import Parameters
from gateway.http.render import encode
from gateway.http.request import Refused
from gateway.http.response import json_response
from gateway.postgres.connection_errors import UNANSWERED
from gateway.postgres.shares import Share, Shares
from spec.errors import nearest, shown
from spec.identifiers import canonicalize

_FIELDS: Final = ("scope", "name", "only", "expires_in")
_UNAVAILABLE: Final = Refusal(
    "unavailable", "Postgres, which stores keys, does not answer. Try again shortly."
)


class Keys:
    """`shares`: of the pool for changes of the catalog."""

    def __init__(self, catalog: Catalog, shares: Shares, aside: Aside, config: Config) -> None:
        self._catalog, self._shares, self._aside, self._config = catalog, shares, aside, config

    def _share(self, request: Request) -> Share:
        return self._shares.of(_principal(request).tenant.id.bytes)

    async def every(self, request: Request) -> Response:
        """The tenant's, without the keys themselves, in pages: `next` is the `after` of the next one."""
        query = Parameters(request.scope["query_string"])
        limit = query.integer("limit", keys.PAGE_MAX, 1, keys.PAGE_MAX)
        try:
            share, tenant = self._share(request), _principal(request).tenant
            found = await keys.page(share, tenant, query.text("after"), limit + 1)
        except UNANSWERED as error:
            raise Refused(_UNAVAILABLE) from error
        more = found[limit - 1].handle if len(found) > limit else None
        told = [_listed(each) for each in found[:limit]]
        return json_response(200, encode({"ok": True, "keys": told, "next": more}))

    async def make(self, request: Request) -> Response:
        """A key of at most the caller's scope and narrowness, shown this once."""
        principal = _principal(request)
        body = await read_object(request, self._aside, self._config, _FIELDS)
        scope, only = _scope(body, principal), self._only(body, principal)
        if only is not None and scope > Scope.WRITE:
            why = f"A key of scope {scope.text} can't be narrowed; take read or write."
            raise Refused(Refusal("invalid_field", why, "only"))
        try:
            made = await keys.create(
                self._share(request),
                principal.tenant,
                scope,
                name=_name(body),
                expires_in=_lifetime(body),
                only=only,
                made_by=principal.handle,
            )
        except keys.MakerEnded as ended:
            raise Refused(UNAUTHORIZED) from ended
        except keys.TooManyKeys as many:
            raise Refused(Refusal("rate_limited", f"{str(many).capitalize()}.")) from many
        except UNANSWERED as error:
            raise Refused(_UNAVAILABLE) from error
        return _shown_once(made)

    async def rotate(self, request: Request) -> Response:
        """A successor of a key of the tenant, shown this once; it ends with the caller, as what a key makes
        does. The old one ends after `grace`, or when it is ended."""
        principal, handle = _principal(request), request.path_params["handle"]
        body = await read_object(request, self._aside, self._config, ("grace",), needed=False)
        grace = _lifetime(body, "grace")
        try:
            scope = await keys.scope_of(self._share(request), handle, principal.tenant)
            if scope > principal.scope or handle == principal.handle:
                raise Refused(_not_its_to_rotate(principal, scope))
            share, made_by = self._share(request), principal.handle
            made = await keys.rotate(share, handle, grace=grace, made_by=made_by)
        except keys.MakerEnded as ended:
            raise Refused(UNAUTHORIZED) from ended
        except keys.TooManyKeys as many:
            raise Refused(Refusal("rate_limited", f"{str(many).capitalize()}.")) from many
        except keys.NotRotated as fault:
            why = f"{str(fault).capitalize()}."
            raise Refused(Refusal("invalid_field", why, "handle")) from fault
        except CatalogError as fault:
            raise Refused(Refusal("not_found", f"There is no key {shown(handle)}.")) from fault
        except UNANSWERED as error:
            raise Refused(_UNAVAILABLE) from error
        return _shown_once(made, rotated_from=handle)

    async def end(self, request: Request) -> Response:
        """Ends a key of the tenant, and those that it made; gateways refuse them within 5 s, this one now."""
        handle = request.path_params["handle"]
        try:
            await keys.revoke(self._share(request), handle, _principal(request).tenant)
        except CatalogError as fault:
            raise Refused(Refusal("not_found", f"There is no key {shown(handle)}.")) from fault
        except UNANSWERED as error:
            raise Refused(_UNAVAILABLE) from error
        await self._catalog.refresh()
        return json_response(200, encode({"ok": True}))

    def _only(self, body: dict[str, object], principal: Principal) -> Only | None:
        """What the key is narrowed to; as the caller is where the body does not say. Raises Refused."""
        names = body.get("only")
        if names is None:
            return principal.only
        if not isinstance(names, list) or not 1 <= len(names) <= NAMES_MAX:
            why = f"`only` lists 1 to {NAMES_MAX} of `type`, `type/id` and `type.event_type`."
            raise Refused(Refusal("invalid_field", why, "only"))
        for number, name in enumerate(names):
            found = read_only([name]) if isinstance(name, str) else ""
            if isinstance(found, str):
                why = "This is not a `type`, `type/id` or `type.event_type`."
                raise Refused(Refusal("invalid_field", why, f"only[{number}]"))
            self._require_declared(principal, found, f"only[{number}]")
            if principal.only is not None and not principal.only.covers(found):
                why = f"This key is narrowed to {', '.join(principal.only.names)} and cannot grant more."
                raise Refused(Refusal("forbidden", why, f"only[{number}]"))
        only = read_only(names)
        assert isinstance(only, Only)
        return only

    def _require_declared(self, principal: Principal, only: Only, path: str) -> None:
        """A name with a typo would open nothing. Raises Refused."""
        deployed = self._catalog.deployed(principal.tenant.id)
        if deployed is None:
            return
        types = deployed.reading.aggregate_types
        for name in only.all_types:
            if name not in types:
                why = f"The spec declares no aggregate type {name!r}{nearest(name, types)}."
                raise Refused(Refusal("unknown_aggregate_type", why, path, status=422))
        for _, key in only.aggregates:
            if canonicalize(key, deployed.spec.singletons) is None:
                raise Refused(bad_identifier(key, deployed.spec, path))
        for name, event in only.events:
            if event not in types[name].events:
                why = (
                    f"The spec declares no event {event!r} for {name!r}{nearest(event, types[name].events)}."
                )
                raise Refused(Refusal("unknown_event_type", why, path, status=422))


def _shown_once(made: keys.Minted, **more: object) -> Response:
    told = {
        "ok": True,
        "key": made.text,
        "handle": made.handle,
        "scope": made.scope.text,
        "only": made.only,
        "name": made.name,
        "expires_at": _at(made.expires_at),
        **more,
    }
    return json_response(201, encode(told), {"location": f"/_/keys/{made.handle}"})


def _not_its_to_rotate(principal: Principal, scope: Scope) -> Refusal:
    if scope > principal.scope:
        why = f"This key has the scope {principal.scope.text} and cannot grant more."
    else:
        why = "The successor would end with this key, which creates it; rotate this key by another one."
    return Refusal("forbidden", why, "handle")


def _principal(request: Request) -> Principal:
    principal: Principal = request.scope["sluice.principal"]
    return principal


def _scope(body: dict[str, object], principal: Principal) -> Scope:
    text = body.get("scope")
    if text is None:
        raise Refused(Refusal("missing_field", "Say which `scope`: read, write or admin.", "scope"))
    scope = Scope.parse(text) if isinstance(text, str) else None
    if scope is None or scope > Scope.ADMIN:
        raise Refused(Refusal("invalid_field", "`scope` is read, write or admin.", "scope"))
    if scope > principal.scope:
        why = f"This key has the scope {principal.scope.text} and cannot grant more."
        raise Refused(Refusal("forbidden", why, "scope"))
    return scope


def _name(body: dict[str, object]) -> str:
    name = body.get("name", "")
    if not isinstance(name, str) or len(name) > keys.NAME_CHARS_MAX or not name.isprintable():
        why = f"`name` has at most {keys.NAME_CHARS_MAX} characters, all printable."
        raise Refused(Refusal("invalid_field", why, "name"))
    return name


def _lifetime(body: dict[str, object], field: str = "expires_in") -> timedelta | None:
    value = body.get(field)
    if value is None:
        return None
    found = None
    if isinstance(value, str):
        found = keys.lifetime_of(value)
    elif isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _SECONDS_MAX:
        found = timedelta(seconds=value)
    if found is None:
        why = f"`{field}` is whole seconds, or 90s, 15m, 1h, 7d, 4w or 1y; at most a hundred years."
        raise Refused(Refusal("invalid_field", why, field))
    return found


_SECONDS_MAX: Final = int(keys.LIFETIME_MAX.total_seconds())


def _at(moment: datetime | None) -> str | None:
    """RFC 3339 in UTC, to the second."""
    return None if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _listed(key: keys.Listed) -> dict[str, object]:
    return {
        "handle": key.handle,
        "scope": key.scope.text,
        "only": key.only,
        "name": key.name,
        "status": key.status,
        "created_at": _at(key.created_at),
        "expires_at": _at(key.expires_at),
        "last_used_at": _at(key.last_used_at),
        "revoked_at": _at(key.revoked_at),
        "rotated_from": key.rotated_from,
        "made_by": key.made_by,
    }
